"""Curricula: how they set the level, how lanes apply it, and runs with curricula."""

from __future__ import annotations

import json
import math
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.text import Text
from safetensors.numpy import load_file

from engine.agents.networks import make_networks
from engine.config.reading import make_config, rounded_up
from engine.envs.factory import make_lanes
from engine.envs.lanes import curriculum_report
from engine.games.mario.actions import STAGES
from engine.games.mario.curriculum import StageCurriculum, stage_slots
from engine.games.mario.lanes import MarioLanes, stage_starts
from engine.games.mario.reference_stepper import ReferenceStepper
from engine.games.mario.rules import START
from engine.games.mario.task import MarioTask
from engine.games.tetris.curriculum import RewardCurriculum, shaping
from engine.games.tetris.rules import TetrisLanes
from engine.protocol import framing, messages
from engine.protocol.messages import Episode, Evaluation, Phase
from engine.runs import checkpoints
from mario_tui.app import MarioApp
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.panels.evaluations import CurriculumPanel
from tests.support.app import recorded_run, until
from tests.support.games.players import mostly_legal
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.program import headless, read_event, rest_of

# ---------------------------------------------------------------------------------------------- what they decide


def book(curriculum: StageCurriculum, stage: str, *cleared: bool) -> None:
    for each in cleared:
        curriculum.record_episode(stage, each)


def test_a_stage_joins_when_the_newest_is_cleared_often_enough() -> None:
    curriculum = StageCurriculum(("1-1", "1-2", "1-3"), rate=0.5, episodes=4)
    book(curriculum, "1-1", True, True, True)
    assert curriculum.level == 0  # four episodes are asked for
    book(curriculum, "1-1", False)
    assert curriculum.level == 1
    book(curriculum, "1-1", True, True, True, True)
    assert curriculum.level == 1  # only the newest stage's count
    book(curriculum, "4-1", True, True, True, True)  # through a warp zone
    book(curriculum, "1-2", False, True, False, False, False)
    assert curriculum.level == 1
    book(curriculum, "1-2", True, True)
    assert curriculum.level == 2
    book(curriculum, "1-3", *[True] * 9)
    assert curriculum.level == 2  # there is no next one
    assert curriculum.goal() == ""
    assert [(part.name, part.weight, part.clear_rate, part.episodes) for part in curriculum.parts()] == [
        ("1-1", 0.25, 1.0, 4), ("1-2", 0.25, 0.5, 4), ("1-3", 0.5, 1.0, 4),
    ]  # fmt: skip


def test_a_stage_joins_even_if_a_worse_episode_is_recorded_at_the_same_time() -> None:
    curriculum = StageCurriculum(("1-1", "1-2"), rate=0.5, episodes=2)
    book(curriculum, "1-1", True, False, False, False)  # from several processes, before the level is read
    curriculum.advance(0)
    assert curriculum.level == 1


@pytest.mark.parametrize(("level", "slots"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2, 2]), (3, [0, 1, 2, 3, 3, 3])])
def test_half_of_the_episodes_are_of_the_newest_stage_and_none_is_removed(level: int, slots: list[int]) -> None:
    assert stage_slots(level) == slots


def test_a_restored_curriculum_resumes_even_with_an_additional_stage() -> None:
    before = StageCurriculum(("1-1", "1-2"), rate=0.5, episodes=2)
    book(before, "1-1", True, True)
    book(before, "1-2", True)
    state = json.loads(json.dumps(before.state()))
    for stages in (("1-1", "1-2"), ("1-1", "1-2", "2-1")):
        after = StageCurriculum(stages, rate=0.5, episodes=2)
        after.load_state(state)
        assert (after.level, after.parts()[:2]) == (before.level, before.parts())
    book(after, "1-2", False)
    assert after.phases[int(after.level)] == "2-1"
    other = StageCurriculum(("1-2", "1-1"), rate=0.5, episodes=2)
    other.load_state(state)
    assert other.level == 1  # both have joined


def test_the_reward_is_blended_by_environment_steps() -> None:
    curriculum = RewardCurriculum(steps=1000)
    found = []
    for env_steps in (0, 499, 500, 750, 1000, 1500, 1750, 2000, 10**9):
        curriculum.advance(env_steps)
        found.append(curriculum.level)
    assert found == [0, 0, 0, 0.5, 1, 1, 1.5, 2, 2]
    assert shaping(0) == (0, 0, 0)
    assert shaping(0.5) == pytest.approx((0.1275, 0.09, 0))
    assert shaping(1) == pytest.approx((0.255, 0.18, 0))
    assert shaping(2) == pytest.approx((0.51, 0.36, 0.18))


def test_a_curriculum_that_a_resumed_run_adds_begins_there() -> None:
    later = RewardCurriculum(steps=1000, begin=50_000)
    later.advance(50_400)
    assert later.level == 0.0 and later.goal().endswith("from step 51,000 on")
    resumed = RewardCurriculum(steps=1000, begin=50_400)
    resumed.load_state(later.state())
    resumed.advance(51_000)
    assert resumed.level == 1.0


def test_the_panel_shows_phase_goal_mix_and_clear_rates() -> None:
    def shown(curriculum: Any) -> Text:
        return CurriculumPanel().compose_text(Snapshot(curriculum=curriculum_report(curriculum)), 60)

    stages = StageCurriculum(("1-1", "1-2", "1-3"), rate=0.5, episodes=4)
    book(stages, "1-1", True, False, True, True)
    book(stages, "1-2", False, False)
    lines = shown(stages).plain.split("\n")
    assert lines[0] == "phase 2 of 3: 1-2"
    assert lines[1] == "1-3 joins when 50% of the last 4 episodes at 1-2 reached the flag"
    assert lines[2].startswith("1-1 ████") and lines[2].endswith(" 0.50   75% of 4 cleared")
    assert lines[3].endswith(" 0.50    0% of 2 cleared")
    assert len(lines) == 4
    reward = RewardCurriculum(1000)
    reward.advance(1000)
    first, goal, height, holes = shown(reward).plain.split("\n")
    assert (first, goal) == (
        "phase 2 of 3: height and holes, half", "height, holes and bumpiness from step 2,000 on",
    )  # fmt: skip
    assert height.split()[0] == "height" and height.endswith(" 0.26") and holes.endswith(" 0.18")


async def test_the_dashboard_has_the_panel_where_there_is_a_curriculum(tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    with run.history_path.open("ab") as recording:
        recording.write(framing.pack(curriculum_report(StageCurriculum(("1-1", "1-2"), rate=0.5, episodes=4))))
    app = MarioApp(open_run=run)
    async with app.run_test(size=(120, 40)) as pilot:
        panel = app.screen.query_one(CurriculumPanel)
        await until(pilot, lambda: "phase 1 of 2: 1-1" in str(panel.render()), "the panel")
        await pilot.press("u")
        assert panel.has_focus and "u Curriculum" in str(panel.render())


def test_the_message_survives_encoding() -> None:
    told = curriculum_report(StageCurriculum(("1-1", "1-2"), rate=0.5, episodes=4))
    decoded = framing.decode_event(framing.encode(told))
    assert isinstance(decoded, messages.Curriculum)
    assert math.isnan(decoded.parts[0].clear_rate) and decoded.goal == told.goal


# ---------------------------------------------------------------------------------------------- what lanes do


def starts_of(env: MarioLanes, episodes: int) -> np.ndarray:
    """Indices of the stages at which new episodes begin, [episodes, lanes]."""
    found = []
    for _ in range(episodes):
        env.reset()
        found.append(env.book[:, START].copy())
    return np.array(found)


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_episodes_begin_at_the_stages_of_the_level(emulator: str) -> None:
    lanes, episodes = (16, 30) if emulator == "native" else (2, 8)
    env = MarioLanes(MarioTask(stage="1-1,4-2,8-3", noop_max=0), lanes, emulator=emulator, seed=3)
    env.set_curriculum_level(0.0)
    assert not starts_of(env, 3).any()
    env.set_curriculum_level(1.0)
    assert set(starts_of(env, episodes).ravel()) == {0, 1}
    env.set_curriculum_level(2.0)
    counts = np.bincount(starts_of(env, episodes).ravel(), minlength=3) / (lanes * episodes)
    if emulator == "native":
        assert np.allclose(counts, [0.25, 0.25, 0.5], atol=0.08)  # four standard deviations
    step = env.step(np.zeros(lanes, np.int64))
    names = [("1-1", "4-2", "8-3")[start] for start in env.book[:, START]]
    assert [STAGES[stage] for stage in step.tasks] == names
    env.close()


def test_compiled_and_reference_steppers_begin_at_the_same_stages() -> None:
    task = MarioTask(stage="1-1,1-2,1-3", stall_steps=20)
    ours, theirs = (MarioLanes(task, 4, seed=5) for _ in range(2))
    starts = stage_starts("native", task.stages, whole_game=False)
    theirs._stepper = ReferenceStepper(theirs.emulator, task, theirs.book, starts, restart=True)
    for level in (0.0, 1.0, 2.0):
        for env in (ours, theirs):
            env.set_curriculum_level(level)
        if level == 0:
            assert np.array_equal(ours.reset(), theirs.reset())
        for _ in range(45):  # two episodes
            one, other = (env.step(np.full(4, 1)) for env in (ours, theirs))
            assert np.array_equal(one.frames, other.frames)
            assert np.array_equal(ours.book[:, START], theirs.book[:, START])


@pytest.mark.parametrize(
    ("options", "each"),
    [({"stage": "1-1,1-2,1-3", "curriculum": True, "eval_episodes": 8}, 3), ({"stage": "random"}, 1), ({}, 31)],
)
def test_an_evaluation_plays_all_stages_equally_often(options: dict[str, Any], each: int) -> None:
    config = make_config(options)
    episodes = rounded_up(config.eval_episodes, config.game_info.tasks_of(config.task))
    env = make_lanes(config, episodes, threads=1, seed=0, evaluation=True)
    assert isinstance(env, MarioLanes)
    starts = starts_of(env, 3)
    assert (starts == starts[0]).all()
    assert np.bincount(starts[0]).tolist() == [each] * len(env.task.stages)


def test_a_run_of_two_stages_evaluates_both_even_for_a_single_episode(tmp_path: Path) -> None:
    options = {"stage": "1-1,1-2", "parallel_envs": 2, "eval_every": 2, "eval_episodes": 1, "checkpoint_replay": False}
    (evaluation,) = of_kind(Evaluation, train(tmp_path, options, 2))
    assert evaluation.episodes == 2


def counts_of(grid: np.ndarray) -> tuple[int, int, int]:
    """Height, holes and bumpiness of cells, bool [height, width], by looking at each."""
    heights, holes = [], 0
    for column in grid.T:
        filled = np.flatnonzero(column)
        heights.append(len(column) - int(filled[0]) if filled.size else 0)
        holes += heights[-1] - filled.size
    return sum(heights), holes, sum(abs(one - other) for one, other in pairwise(heights))


@pytest.mark.parametrize("options", [{}, {"reward": "jumanji", "height": 10, "width": 10}, {"truncate": True}])
def test_shaping_subtracts_what_the_board_after_a_piece_costs(options: dict[str, Any]) -> None:
    """The discounted return of an episode is lower by the discounted increases of the costs."""
    weights, gamma = np.array([0.5, 0.25, 0.125]), 0.75
    plain, shaped = (TetrisLanes(8, seed=4, time_limit=30, **options) for _ in range(2))
    shaped.set_shaping(weights.tolist(), gamma)
    cell = 4.0 if options.get("reward") == "jumanji" else 1.0
    random, ends = np.random.default_rng(0), 0
    before, found, expected, discount = np.zeros(8), np.zeros(8), np.zeros(8), np.ones(8)
    for _ in range(120):
        actions = mostly_legal(random, plain.masks.numpy(), 0.0)
        ours, theirs = (env.step(torch.from_numpy(actions)) for env in (shaped, plain))
        for name in ("frames", "final_frames", "terminated", "truncated", "masks", "returns", "score"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        after = cell * np.array([counts_of(frame[0].numpy() > 0) for frame in ours.final_frames]) @ weights
        found += discount * (ours.rewards - theirs.rewards).numpy()
        found -= discount * gamma * after * ours.truncated.numpy()  # the values that are bootstrapped lack it
        expected -= discount * (after - before)
        ended = (ours.terminated | ours.truncated).numpy()
        assert np.allclose(found[ended], expected[ended], rtol=1e-4, atol=1e-4)
        found[ended] = expected[ended] = 0
        before, discount = np.where(ended, 0, after), np.where(ended, 1, discount * gamma)
        ends += int(ended.sum())
    assert ends > 8
    shaped.set_shaping((0.0, 0.0, 0.0), gamma)
    ours, theirs = (env.step(torch.zeros(8, dtype=torch.int64)) for env in (shaped, plain))
    assert torch.equal(ours.rewards, theirs.rewards)


def test_equal_boards_with_equal_values_have_equal_rewards_whatever_was_before() -> None:
    """Otherwise afterstates, by which Tetris is learned by default, could not tell what a placement is worth."""
    config = make_config({"game": "tetris", "board": "6x10", "curriculum": True})
    env = make_lanes(config, 256, threads=1, seed=0)
    network, _ = make_networks(config, env.spec)
    env.set_curriculum_level(2.0)
    frames, random = torch.from_numpy(env.reset()), np.random.default_rng(0)
    found: dict[tuple[bytes, float], set[float]] = {}
    before: dict[tuple[bytes, float], set[bytes]] = {}
    for _ in range(40):
        assert env.masks is not None
        actions = torch.from_numpy(mostly_legal(random, env.masks, 0.0))
        with torch.no_grad():
            q = network(frames[:, None]).gather(1, actions[:, None])[:, 0]
        step = env.step(actions.numpy())
        for lane in np.flatnonzero(~step.terminated & ~step.truncated):
            value = step.final_frames[lane, 0].tobytes(), round(float(q[lane]), 4)
            found.setdefault(value, set()).add(round(float(step.rewards[lane]), 4))
            before.setdefault(value, set()).add(frames[lane, 0].numpy().tobytes())
        frames = torch.from_numpy(step.frames)
    assert sum(len(boards) > 1 for boards in before.values()) > 50
    assert {len(rewards) for rewards in found.values()} == {1}


# ---------------------------------------------------------------------------------------------- runs

TETRIS = {"game": "tetris", "board": "5x8", "curriculum": True, "curriculum_steps": 400, "burnin": 200,
          "batch_size": 32, "buffer_size": 2000}  # fmt: skip
MARIO = {"stage": "1-1,1-2,1-3", "curriculum": True, "curriculum_episodes": 2, "burnin": 400, "batch_size": 32,
         "replay_ratio": 1.0, "buffer_size": 20_000}  # fmt: skip


def assert_equal_ends(one: list[Any], other: list[Any]) -> None:
    """Compare the last checkpoints: weights, games, replay and curriculum."""
    ours, theirs = checkpoint_of(one), checkpoint_of(other)
    for name in (checkpoints.POLICY_FILE, "lanes.safetensors", "replay.safetensors"):
        found, wanted = load_file(ours / name), load_file(theirs / name)
        assert all(np.array_equal(array, found[key]) for key, array in wanted.items()), name
    found, wanted = (json.loads((folder / "state.json").read_text()) for folder in (ours, theirs))
    assert found["updates"] == wanted["updates"] > 10
    assert found["extra"]["curriculum"] == wanted["extra"]["curriculum"]


@pytest.mark.long
def test_a_run_resumes_exactly_while_the_reward_is_blended(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", TETRIS, 960)
    phases = [(phase.env_steps, phase.phase, phase.phases) for phase in of_kind(Phase, whole)]
    assert phases == [(400, 2, 3), (800, 3, 3)]
    half = train(tmp_path / "parts", TETRIS, 320)  # where the second phase is being blended in
    parts = train(tmp_path / "parts", TETRIS, 960, checkpoint_of(half))
    assert of_kind(Phase, half, parts) == of_kind(Phase, whole)
    assert_equal_ends(parts, whole)
    plain = train(tmp_path / "plain", {**TETRIS, "curriculum": False}, 960)
    rewards, without = (
        load_file(checkpoint_of(run) / "replay.safetensors")["storage.rewards"] for run in (whole, plain)
    )
    assert np.array_equal(rewards[:, :25], without[:, :25])  # 200 environment steps
    assert not np.array_equal(rewards, without)


@pytest.fixture(scope="module")
def nearly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a run for which the next episode at the newest stage lets another one join, however it ends."""
    checkpoint = checkpoint_of(train(tmp_path_factory.mktemp("nearly"), MARIO, 160))
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["extra"]["curriculum"] == {"joined": ["1-1"], "recent": {"1-1": [], "1-2": [], "1-3": []}}
    state["extra"]["curriculum"]["recent"] = {"1-1": [True], "1-2": [True], "1-3": []}
    (checkpoint / "state.json").write_text(json.dumps(state))
    (checkpoint / checkpoints.MANIFEST).unlink()
    checkpoints.seal(checkpoint, env_steps=160, updates=0)
    return checkpoint


@pytest.mark.long
def test_a_run_resumes_exactly_between_two_stages(nearly: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", MARIO, 4800, nearly)
    first, second = of_kind(Phase, whole)
    assert (first.name, second.name) == ("1-2", "1-3")
    half = train(tmp_path / "parts", MARIO, (first.env_steps + second.env_steps) // 2, nearly)
    parts = train(tmp_path / "parts", MARIO, 4800, checkpoint_of(half))
    for kind in (Phase, Episode):
        assert of_kind(kind, half, parts) == of_kind(kind, whole)
    for episode in of_kind(Episode, whole):
        allowed = ("1-1", "1-2", "1-3")[
            : 1 + (episode.env_steps > first.env_steps) + (episode.env_steps > second.env_steps)
        ]
        assert episode.stage in allowed
    assert_equal_ends(parts, whole)


@pytest.mark.long
@pytest.mark.parametrize(
    "runner", [*(pytest.param(name, marks=pytest.mark.long) for name in ("parallel", "ddp")), "apex"]
)
@pytest.mark.process
def test_all_processes_apply_the_level_of_the_coordinator(runner: str, nearly: Path, tmp_path: Path) -> None:
    count = "--num-actors" if runner == "apex" else "--num-processes"
    options = ("--runner", runner, count, "2", "--parallel-envs", "4", "--burnin", "20000", "--batch-size", "32",
               "--eval-every", "0", "--steps", "100000000", "--resume", str(nearly))  # fmt: skip
    with headless(*options, cwd=tmp_path) as process:
        assert read_event(process, "phase")["name"] == "1-2"
        assert read_event(process, "phase")["name"] == "1-3"
        for actor in (0, 1):
            read_event(process, "episode", stage="1-3", actor=actor)
        process.send_signal(signal.SIGINT)
        events = rest_of(process)
        assert process.returncode == 0
    state = json.loads((Path(events[-1]["checkpoint"]) / "state.json").read_text())
    assert state["extra"]["curriculum"]["joined"] == ["1-1", "1-2", "1-3"]
