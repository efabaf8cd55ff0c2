"""The teachers of a distillation, and the tasks that they teach. A teacher is a policy or a search in the emulator; all
must agree in what they see and do.

A task is one stage of Mario, or one board of Snake. Boards of different sizes share the frame of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.config.run_config import RunConfig
from engine.config.stages import STAGES, WHOLE_GAME
from engine.config.tasks import tasks_of
from engine.envs.factory import describe_task
from engine.envs.frame_stack import STACK
from engine.envs.lanes import Frames
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.games.mario.factory import make_task
from engine.games.mario.game import Mario
from engine.games.mario.options import MarioOptions
from engine.runs.checkpoints import policy_metadata
from engine.runs.origin import origin_of

_MUST_AGREE: dict[str, tuple[str, ...]] = {
    "mario": ("actions", "observation", "frame_skip", "swim_strokes"),
    "snake": (),
}
"""Fields of the metadata in which the teachers of a game must agree. Its keys are the games that can be distilled."""

_NETWORKS = {"mario": "nature", "snake": "grid"}
"""The networks of students by default. To clear 96 % of 600 episodes of six stages, `nature` needed 120,000 environment
steps (11 minutes) and `small` 340,000 (26 minutes)."""


@dataclass(frozen=True)
class Teacher:
    """A trained policy."""

    name: str
    metadata: dict[str, Any]
    network: nn.Module

    @property
    def tasks(self) -> tuple[str, ...]:
        """The stages or boards that it was trained on."""
        return tasks_of(self.metadata)

    @torch.no_grad()
    def q_values(self, obs: Frames) -> Tensor:
        """Q-values [lanes, actions] of observations of the student, uint8 [lanes, stack, *frame_shape], whose frames
        may be larger than the teacher's own."""
        height, width = self.metadata["frame_shape"][-2:]
        q: Tensor = self.network(torch.from_numpy(obs[..., :height, :width]))
        return q


@dataclass(frozen=True)
class SearchTeacher:
    """A stage that is taught by a search instead of a policy."""

    name: str  # the stage
    metadata: dict[str, Any]

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.name,)


def load_teachers(names: Sequence[str], actions: str = MarioOptions.actions) -> list[Teacher | SearchTeacher]:
    """The teachers in these policy files; where a name is a stage, a search with these actions. Raises `UserError`
    naming the policy and the field if they don't fit together."""
    first: tuple[str, dict[str, Any]] | None = None
    owners: dict[str, str] = {}
    like = next((policy_metadata(Path(name)) for name in names if name not in STAGES), {})
    teachers = list[Teacher | SearchTeacher]()
    for given in names:
        is_stage, path = given in STAGES, Path(given)
        name = given if is_stage else origin_of(path).name
        metadata = _of_stage(given, actions, like) if is_stage else policy_metadata(path)
        first = first or (name, metadata)
        _check(name, metadata, *first)
        teacher = SearchTeacher(name, metadata) if is_stage else Teacher(name, metadata, load_policy(path))
        for task in teacher.tasks:
            if task in owners:
                raise UserError(f"{name}: {task} must have one teacher, got {owners[task]} before")
            owners[task] = name
        teachers.append(teacher)
    return teachers


def _of_stage(stage: str, actions: str, like: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a teacher that is no policy, with these actions; it sees and swims like the policy with the
    metadata `like`, or, if that is empty, like most policies of the package."""
    known = {name: like[name] for name in ("observation", "frame_skip", "swim_strokes") if name in like}
    config = RunConfig.of(game=Mario.name, stage=stage, actions=actions, **{"observation": "50x60", **known})
    task = make_task(config)
    shapes = {"stack": STACK, "frame_shape": list(task.view.shape), "outputs": len(task.action_names)}
    return describe_task(config) | shapes


def _check(name: str, metadata: dict[str, Any], first_name: str, first: dict[str, Any]) -> None:
    if metadata["game"] not in _MUST_AGREE:
        raise UserError(f"{name}: game must be {' or '.join(_MUST_AGREE)}, got {metadata['game']}")
    for field in ("game", *_MUST_AGREE[first["game"]]):
        wanted, found = first.get(field), metadata.get(field)
        if found != wanted:
            raise UserError(f"{name}: {field} must be {_words(wanted)} as in {first_name}, got {_words(found)}")
    if metadata.get("stage") == WHOLE_GAME:
        raise UserError(f"{name}: stage must be one or more stages, got {WHOLE_GAME}")


def _words(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def describe_student(teachers: Sequence[Teacher | SearchTeacher], network: str | None = None) -> dict[str, Any]:
    """The metadata of a student: its tasks are those of all teachers, in order, and its frame holds the largest board.

    network: name of its network, one of `engine.agents.networks.NETWORKS` that fits the game; None for the default.
    """
    first = teachers[0].metadata
    network = network or _NETWORKS[first["game"]]
    tasks = ",".join(task for teacher in teachers for task in teacher.tasks)
    shapes = [teacher.metadata["frame_shape"] for teacher in teachers]
    copied = (
        ("emulator", "actions", "observation", "frame_skip", "swim_strokes")
        if first["game"] == "mario"
        else ("reward", "pieces", "death_penalty")
    )
    return {
        "network": network,
        "stack": first["stack"],
        "frame_shape": [*shapes[0][:-2], *(max(shape[axis] for shape in shapes) for axis in (-2, -1))],
        "outputs": first["outputs"],
        "game": first["game"],
        "stage" if first["game"] == "mario" else "board": tasks,
        **{name: first[name] for name in copied},
        "teachers": [teacher.name for teacher in teachers],
    }


def check_initial(policy: Path, student: dict[str, Any]) -> None:
    """Raises `UserError` naming the field if a student can't begin with the weights of a policy."""
    metadata = policy_metadata(policy)
    for field in ("game", "network", "stack", "frame_shape", "outputs", "observation"):
        wanted, found = student.get(field), metadata.get(field)
        if found != wanted:
            raise UserError(
                f"--initial-policy: {field} must be {_words(wanted)} as in the student, got {_words(found)} in "
                f"{origin_of(policy).name}"
            )
