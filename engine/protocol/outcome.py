"""What the episodes of a game yield besides return and length, as the game declares it; conditions under which they are
played.

Tables, charts, log lines, TensorBoard tags and the keys of JSON lines follow from the declaration. It travels once, in
the greeting of a connection, and is stored with a run's recording, so that numbers keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")
MAX_RESULTS = 8
"""Results that a game may declare."""
MAX_TASKS = 52
"""Tasks that a game may tell apart: each is a bit of a number that is stored as a float."""
Name = Annotated[str, msgspec.Meta(max_length=40, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z")]
"""Shown to people: no control characters, not even line breaks."""
_Noops = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Starts and random decisions of an evaluation.

    `noop_min`, `noop_max`: range of the number of no-op frames before an episode. `epsilon`: probability of a random
    action at each environment step. `sticky_actions`: probability that the previous action is repeated instead, at each
    frame or other step of the game itself. `random_phase`: whether an episode begins in a random phase of the game's
    counters and random numbers, and its frames end where those of a whole game may. `halfway_starts`: share of the
    episodes that begin in the middle of a stage.
    """

    noop_min: _Noops = 0
    noop_max: _Noops = 30
    epsilon: _Probability = 0.0
    sticky_actions: _Probability = 0.0
    random_phase: bool = False
    halfway_starts: _Probability = 0.0


class Result(msgspec.Struct, frozen=True):
    """A number that every episode yields; more is better."""

    name: Name
    """In JSON lines, TensorBoard tags and files: `x_pos`."""
    label: Name
    """Stands before the number: `x`."""
    place: int = 0
    """More than 0: this tells how far an episode came, and `eval` lists where episodes end, in steps of so many."""


class Goal(msgspec.Struct, frozen=True):
    """What an episode may reach, once or more often."""

    name: Name
    """In JSON lines: `flag`."""
    label: Name
    """For people, as a noun that has a plural in s: `flag`."""


class Outcome(msgspec.Struct, frozen=True):
    """What the episodes of a game yield."""

    results: Annotated[tuple[Result, ...], msgspec.Meta(max_length=MAX_RESULTS)] = ()
    """The first stands for an episode where there is room for one number."""
    goal: Goal | None = None
    judged_by: Name = "return"
    """What evaluations are judged by, for people: `goal`, `return`, or the name of a result."""
    task: Name = ""
    """What a task is called in JSON lines, if episodes tell in which of several they ended: `stage`."""
    tasks: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_TASKS)] = ()
    """The names of these tasks, in the game's order."""

    def named(self, values: Sequence[T]) -> dict[str, T]:
        """Values of results by name, in the order of `results`."""
        return {result.name: value for result, value in zip(self.results, values, strict=False)}


def mean_keys(means: Mapping[str, T]) -> dict[str, T]:
    """The means of results by the keys that they have in JSON lines."""
    return {f"mean_{name}": value for name, value in means.items()}
