"""The teachers of a distillation, and the tasks that they teach. A teacher is a policy, or a search that the game
brings; all must agree in what they see and do.

A task is one stage of Mario, or one board of Snake. Boards of different sizes share the frame of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.config.game import game_of
from engine.config.reading import tasks_of
from engine.config.run_config import COMMON, HEAD_OPTIONS
from engine.envs.lanes import Frames
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.extras.distillation.contract import Searchable, adapter_of, distillation_of
from engine.runs.checkpoints import policy_metadata
from engine.runs.lookup import origin_of
from engine.runtime.text import in_words


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
    """A task that is taught by a search instead of a policy."""

    name: str  # the task
    metadata: dict[str, Any]

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.name,)


def load_teachers(
    names: Sequence[str], searched_by: str | None = None, options: Mapping[str, Any] = {}
) -> list[Teacher | SearchTeacher]:
    """The teachers in these policy files. Raises `UserError` naming policy and field if they don't fit together.

    searched_by: the game whose `Distillation.searched` tasks some of the names may be; None if all are policies.
    options: those of the game's `Distillation.search_options` that were given.
    """
    first: tuple[str, dict[str, Any]] | None = None
    owners: dict[str, str] = {}
    searched = () if searched_by is None else distillation_of(searched_by).searched
    like = next((policy_metadata(Path(name)) for name in names if name not in searched), {})
    teachers = list[Teacher | SearchTeacher]()
    for given in names:
        path = None if given in searched else Path(given)
        if path is None:
            assert searched_by is not None
            searcher = adapter_of(searched_by)
            assert isinstance(searcher, Searchable)
            name, metadata = given, searcher.described_for_search(given, like, **options)
        else:
            name, metadata = origin_of(path).name, policy_metadata(path)
        first = first or (name, metadata)
        _check(name, metadata, *first)
        teacher = SearchTeacher(name, metadata) if path is None else Teacher(name, metadata, load_policy(path))
        for task in teacher.tasks:
            if task in owners:
                raise UserError(f"{name}: {task} must have one teacher, got {owners[task]} before")
            owners[task] = name
        teachers.append(teacher)
    return teachers


def _check(name: str, metadata: dict[str, Any], first_name: str, first: dict[str, Any]) -> None:
    try:
        distillation = distillation_of(metadata["game"])
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    for field in ("game", *distillation_of(first["game"]).must_agree):
        wanted, found = first.get(field), metadata.get(field)
        if found != wanted:
            raise UserError(f"{name}: {field} must be {in_words(wanted)} as in {first_name}, got {in_words(found)}")
    tasks = game_of(metadata["game"]).tasks
    if metadata[tasks] in distillation.untaught:
        raise UserError(f"{name}: {tasks} must be one or more {tasks}s, got {metadata[tasks]}")


def describe_student(teachers: Sequence[Teacher | SearchTeacher], network: str | None = None) -> dict[str, Any]:
    """The metadata of a student: its tasks are those of all teachers, in order, and its frame holds the largest board.

    network: name of its network, one that fits the game; None for the default.
    """
    first = teachers[0].metadata
    distillation = distillation_of(first["game"])
    tasks = ",".join(task for teacher in teachers for task in teacher.tasks)
    shapes = [teacher.metadata["frame_shape"] for teacher in teachers]
    return {
        "network": network or distillation.network,
        "stack": first["stack"],
        "frame_shape": [*shapes[0][:-2], *(max(shape[axis] for shape in shapes) for axis in (-2, -1))],
        "outputs": first["outputs"],
        "game": first["game"],
        game_of(first["game"]).tasks: tasks,
        **{name: first[name] for name in distillation.copied},
        "teachers": [teacher.name for teacher in teachers],
    }


def check_initial(policy: Path, student: dict[str, Any]) -> None:
    """Raises `UserError` naming the field if a student can't begin with the weights of a policy."""
    metadata = policy_metadata(policy)
    must_agree = distillation_of(student["game"]).must_agree
    for field in ("game", "network", "stack", "frame_shape", "outputs", *must_agree):
        wanted, found = student.get(field), metadata.get(field)
        if found != wanted:
            raise UserError(
                f"--initial-policy: {field} must be {in_words(wanted)} as in the student, got {in_words(found)} in "
                f"{origin_of(policy).name}"
            )
    for field in HEAD_OPTIONS:
        if metadata[field]:
            off, got = in_words(COMMON[field].default), in_words(metadata[field])
            raise UserError(
                f"--initial-policy: {field} must be {off} as in every student, got {got} in {origin_of(policy).name}"
            )
