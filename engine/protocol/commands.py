"""Commands: what clients send to a run, and the host passes on to its runner; and the base class of all messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import msgspec

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """Base class of all messages: immutable, tagged with the class name.

    None refers to one that refers to it, so Python's garbage collector need not look at them: with the messages of
    hundreds of runs, that would hold up the screen.
    """


def bounded(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """A decoder of msgspec's that raises `msgspec.DecodeError`, as for other invalid data, if it is nested too deeply.

    Also fields that a message doesn't have are read, so any message can be.
    """

    def decode_bounded(data: bytes) -> T:
        try:
            return decode(data)
        except RecursionError:
            raise msgspec.DecodeError("nested too deeply") from None

    return decode_bounded


class Pause(Message, frozen=True):
    """Pause acting and learning after the current iteration."""


class Resume(Message, frozen=True):
    """Continue after a pause."""


class Save(Message, frozen=True):
    """Save the policy's weights, for `play` and `eval`."""


class Checkpoint(Message, frozen=True):
    """Write a checkpoint, from which `--resume` continues."""


class Stop(Message, frozen=True):
    """Write a checkpoint, then end the run. With `at_once`, end it without one, also if it is stopping already."""

    reason: str = "asked to stop"
    at_once: bool = False


class Render(Message, frozen=True):
    """Start or stop sending frames of the rank-0 game."""

    on: bool
    fps: Annotated[float, msgspec.Meta(gt=0)] = 10.0


class Evaluate(Message, frozen=True):
    """Run a greedy evaluation now."""


Tunable = Literal["learning_rate", "epsilon_scale", "beta", "replay_ratio", "gamma"]
"""Settings that can be changed during a run."""


class Set(Message, frozen=True):
    """Change a setting. Answered by `Changed`, or by a warning that names the accepted values."""

    name: Tunable
    value: float


class Trace(Message, frozen=True):
    """Record the stopwatch sections of all processes into the run's folder; see `engine.runtime.stopwatch`."""

    seconds: float


Command = Pause | Resume | Save | Checkpoint | Stop | Render | Evaluate | Set | Trace
