"""The parts of a distillation: teachers that fit together, labels that stay with their states, the loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from engine.agents import DuelingQNetwork
from engine.config.game import Spec, options_with, own_options
from engine.envs.factory import lanes_of_policy
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.extras.distillation import contract
from engine.extras.distillation.contract import distillable, distillation_of
from engine.extras.distillation.student import TEMPERATURE, LabelledReplay, Student, distillation_loss
from engine.extras.distillation.teachers import Teacher, check_initial, describe_student, load_teachers
from engine.games.snake.rules import SnakeLanes
from engine.runs import policies
from engine.runs.checkpoints import CheckpointError
from mario_tui.cli import run
from tests.support.policy_files import altered, shipped

MARIO, SNAKE = (str(policies.folder() / f"{name}.safetensors") for name in ("mario-1-1", "snake-12x12"))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"actions": ["noop"], "outputs": 1},
            "actions must be noop,right,right+A,right+B,right+A+B as in mario-1-1, got noop",
        ),
        ({"observation": "84x84", "frame_shape": [84, 84]}, "observation must be 50x60 as in mario-1-1, got 84x84"),
        ({"observation": "50x60-red"}, "observation must be 50x60 as in mario-1-1, got 50x60-red"),
        ({"swim_strokes": True}, "swim_strokes must be False as in mario-1-1, got True"),
        ({"frame_skip": 2}, "frame_skip must be 4 as in mario-1-1, got 2"),
        ({"stage": "1-1"}, "1-1 must have one teacher, got mario-1-1 before"),
        ({"stage": "game"}, "stage must be one or more stages, got game"),
    ],
)  # fmt: skip
def test_teachers_that_do_not_fit_together_are_named(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    other = altered("mario-1-2", tmp_path, **changes)
    with pytest.raises(UserError) as error:
        load_teachers([MARIO, str(other)])
    assert str(error.value) == f"{other.name}: {complaint}"


def test_a_stage_can_be_a_teacher_among_policies() -> None:
    teachers = load_teachers([MARIO, "1-3"], "mario")
    said = describe_student(teachers, "nature")
    assert (said["stage"], said["teachers"]) == ("1-1,1-3", ["mario-1-1", "1-3"])
    (simple,) = load_teachers(["1-3"], "mario", {"actions": "simple"})
    assert len(simple.metadata["actions"]) == simple.metadata["outputs"] == 7
    with pytest.raises(UserError, match=r"^1-3: actions must be noop.* as in mario-1-1, got "):
        load_teachers([MARIO, "1-3"], "mario", {"actions": "simple"})
    with pytest.raises(UserError, match=r"^snake-12x12: game must be mario as in 1-3, got snake$"):
        load_teachers(["1-3", SNAKE], "mario")
    with pytest.raises(UserError, match=r"^snake-12x12: game must be mario as in mario-1-1, got snake$"):
        load_teachers([MARIO, SNAKE])
    with pytest.raises(UserError, match=r"^tetris-7x14: game must be mario or snake, got tetris$"):
        load_teachers([MARIO, str(shipped("tetris-7x14"))])
    with pytest.raises(UserError, match=r"^1-1: 1-1 must have one teacher, got mario-1-1 before$"):
        load_teachers([MARIO, "1-1"], "mario")


def test_a_stage_is_seen_as_the_policies_see_theirs(tmp_path: Path) -> None:
    swimmer = altered("mario-1-1", tmp_path, observation="50x60-red", swim_strokes=True)
    assert load_teachers(["1-3"], "mario")[0].metadata["observation"] == "50x60"
    for names in ((str(swimmer), "1-3"), ("1-3", str(swimmer))):
        said = describe_student(load_teachers(names, "mario"), "small")
        assert (said["observation"], said["swim_strokes"]) == ("50x60-red", True)
    told = r"^--initial-policy: observation must be 50x60-red as in the student, got 50x60 in mario-1-1$"
    with pytest.raises(UserError, match=told):
        check_initial(Path(MARIO), said)
    assert describe_student(load_teachers([MARIO, str(altered("mario-1-2", tmp_path, swim_strokes=False))]), "small")


def test_a_student_has_the_tasks_of_all_its_teachers(tmp_path: Path) -> None:
    teachers = load_teachers([MARIO, str(altered("mario-1-2", tmp_path, stage="1-2, 4-1"))])
    said = describe_student(teachers, "nature")
    assert (said["stage"], said["network"], said["outputs"]) == ("1-1,1-2,4-1", "nature", 5)
    assert said["teachers"] == ["mario-1-1", "mario-1-2-altered.safetensors"]


def test_a_student_has_what_the_policies_of_its_game_have_today() -> None:
    """The policy of the package also says what policies of Snake said in earlier versions."""
    (teacher,) = load_teachers([SNAKE])
    kept = (*options_with("policy", "snake"), "game", "stack", "frame_shape", "outputs")
    newer = dataclasses.replace(teacher, metadata={name: teacher.metadata[name] for name in kept})
    said = describe_student([newer])
    assert (said["board"], said["network"], said["death_penalty"]) == ("12x12", "grid", 3.0)


def test_a_small_board_lies_in_the_corner_of_the_frame_and_is_played_as_without_it() -> None:
    (teacher,) = load_teachers([SNAKE])
    alone = SnakeLanes(4, height=5, width=4, truncate=True, stall_limit=40, seed=3)
    framed = lanes_of_policy({**teacher.metadata, "board": "4x5", "frame_shape": [5, 7, 9]}, 4, threads=1, seed=3)
    assert framed.spec.frame_shape == (5, 7, 9)
    expected, frames = alone.reset(), framed.reset()
    random = np.random.default_rng(0)
    for _ in range(60):
        np.testing.assert_array_equal(frames[..., :5, :4], expected.numpy())
        outside = np.ones((7, 9), bool)
        outside[:5, :4] = False
        assert (frames[:, 0, outside] == 255).all() and not frames[:, 1:, outside].any()
        actions = random.integers(0, 4, 4)
        expected, frames = alone.step(torch.from_numpy(actions)).frames, framed.step(actions).frames


def test_a_teacher_of_a_smaller_board_sees_its_own_frame() -> None:
    (teacher,) = load_teachers([SNAKE])
    assert isinstance(teacher, Teacher)
    obs = np.random.default_rng(0).integers(0, 256, (3, 1, 5, 14, 13), np.uint8)
    expected = teacher.network(torch.from_numpy(obs[..., :12, :12]))
    torch.testing.assert_close(teacher.q_values(obs), expected)


def test_labels_stay_with_their_states_when_the_replay_wraps_around() -> None:
    lanes, capacity = 3, 20
    replay = LabelledReplay(lanes, capacity, Spec((2, 2), 2, stack=4, hold=1, masked=False))
    random = np.random.default_rng(0)
    for step in range(70):
        numbers = step * lanes + np.arange(lanes)
        frames = np.broadcast_to(numbers[:, None, None], (lanes, 2, 2)).astype(np.uint8)
        terminated, truncated = random.random(lanes) < 0.1, random.random(lanes) < 0.1  # the latter adds an entry
        played = PlayedStep(frames, np.zeros(lanes, int), np.zeros(lanes), terminated, truncated, frames)
        replay.append(played, np.stack([numbers, -numbers], 1).astype(np.float32))
        if step > 5:
            obs, labels = replay.sample(16, random)
            np.testing.assert_array_equal(labels[:, 0] % 256, obs[:, -1, 0, 0])
            np.testing.assert_array_equal(labels[:, 1], -labels[:, 0])
    assert replay.size == lanes * capacity


def test_lanes_can_be_stored_one_by_one() -> None:
    replay = LabelledReplay(2, 30, Spec((2, 2), 2, stack=4, hold=1, masked=False))
    random, zero, no = np.random.default_rng(0), np.zeros(1), np.zeros(1, np.bool_)
    for number in range(100):
        frame = np.full((1, 2, 2), number, np.uint8)
        lane = int(random.random() < 0.2)
        replay.append_to(lane, PlayedStep(frame, np.zeros(1, int), zero, no, no, frame), np.full(2, number, np.float32))
        if number % 25 == 24:
            replay.end_episode(lane)
    obs, labels = replay.sample(200, random)
    np.testing.assert_array_equal(labels[:, 0], obs[:, -1, 0, 0])
    assert len(np.unique(labels[:, 0])) > 30
    assert labels.max() <= 98  # the newest state has no outcome yet


def test_the_loss_is_the_divergence_of_the_teachers_choice() -> None:
    teacher, student = torch.tensor([[1.0, 1.2, 0.9]]), torch.tensor([[0.0, 0.1, 0.3]])
    p, q = (np.exp(each.numpy()[0] / TEMPERATURE) for each in (teacher, student))
    p, q = p / p.sum(), q / q.sum()
    value = 0.05 * (0.5 * (student - teacher) ** 2).where(
        (student - teacher).abs() < 1, (student - teacher).abs() - 0.5
    )
    expected = (p * np.log(p / q)).sum() + float(value.mean())
    assert float(distillation_loss(student, teacher)) == pytest.approx(expected, rel=1e-4)
    assert float(distillation_loss(teacher + 1, teacher)) == pytest.approx(0.05 * 0.5)  # another value, the same choice


def test_a_batch_that_is_split_between_threads_teaches_the_same(one_thread: None) -> None:
    students = []
    for threads in (1, 3):
        torch.manual_seed(0)
        students.append(Student(DuelingQNetwork(1, (9, 9), 3, "grid", hidden=16), learning_rate=1e-3, threads=threads))
    random = np.random.default_rng(0)
    for _ in range(5):
        obs, labels = random.integers(0, 256, (17, 1, 9, 9), np.uint8), random.normal(size=(17, 3)).astype(np.float32)
        whole, split = (student.update(obs, labels) for student in students)
        assert split.loss == pytest.approx(whole.loss, rel=1e-4)
        assert split.agreement == pytest.approx(whole.agreement)
    for one, other in zip(*(student.network.parameters() for student in students), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


class Dropping(nn.Linear):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(obs.flatten(1).float(), training=self.training))


def test_a_student_drops_values_only_when_it_learns(one_thread: None) -> None:
    torch.manual_seed(0)
    obs, labels = np.ones((8, 1, 64), np.uint8), np.zeros((8, 2), np.float32)
    student = Student(Dropping(64, 2), learning_rate=1e-9)
    assert torch.equal(student.q_values(obs), student.q_values(obs))
    assert not any(each.training for each in student.average.modules())
    assert student.update(obs, labels).loss != student.update(obs, labels).loss


def test_a_student_learns_its_labels_and_its_average_follows(one_thread: None) -> None:
    torch.manual_seed(0)
    student = Student(DuelingQNetwork(1, (9, 9), 3, "grid", hidden=16), learning_rate=1e-3)
    random = np.random.default_rng(0)
    obs, labels = random.integers(0, 256, (64, 1, 9, 9), np.uint8), random.normal(size=(64, 3)).astype(np.float32)
    fits = [student.update(obs, labels) for _ in range(300)]
    assert fits[0].agreement < 0.6 < 0.95 < fits[-1].agreement
    assert fits[-1].loss < fits[0].loss / 10
    with torch.no_grad():
        average = distillation_loss(student.average(torch.from_numpy(obs)), torch.from_numpy(labels))
    assert float(average) < fits[0].loss / 5
    pairs = zip(student.average.parameters(), student.network.parameters(), strict=True)
    assert not all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize("game", distillable())
def test_options_that_a_distillation_names_are_there(game: str) -> None:
    distillation = distillation_of(game)
    assert {*distillation.options, *distillation.search_options, *distillation.told} <= own_options(game).keys()


def test_a_game_that_can_not_be_distilled_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(contract.ADAPTERS, "snake")
    with pytest.raises(UserError, match=r"^snake-12x12: game must be mario, got snake$"):
        run(["distill", "snake-12x12"])


def test_a_student_does_not_begin_with_weights_of_another_shape_than_the_file_says(tmp_path: Path) -> None:
    network, weights = load_policy(Path(SNAKE)), load_file(SNAKE)
    bias = next(name for name, weight in weights.items() if weight.ndim == 1)
    weights[bias] = weights[bias][None]
    with safe_open(SNAKE, "pt") as file:
        save_file(weights, tmp_path / "damaged.safetensors", file.metadata())
    with pytest.raises(CheckpointError, match=rf"damaged.safetensors: damaged \(size mismatch for {bias}"):
        Student(network, learning_rate=1e-3).load(tmp_path / "damaged.safetensors")
