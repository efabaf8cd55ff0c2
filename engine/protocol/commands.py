"""Commands: what clients send to a run, and the host passes on to its runner."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from engine.protocol.message import Message


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
    """Record the stopwatch sections of all processes into the run's folder; see `engine.runtime.trace`."""

    seconds: float


Command = Pause | Resume | Save | Checkpoint | Stop | Render | Evaluate | Set | Trace
