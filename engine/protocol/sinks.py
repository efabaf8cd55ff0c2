"""What a run tells its sinks. Sinks of other packages get it as messages on the standard input of their process."""

from __future__ import annotations

from typing import Any

from engine.protocol.message import Message
from engine.protocol.messages import Episode, Evaluation, Failed, Finished, Progress
from engine.protocol.outcome import Outcome

BEST_POLICY_FILE = "best.safetensors"
"""In the run's folder, once there is one: the best-evaluated policy."""


class Begin(Message, frozen=True):
    """The first message: the run and its hyperparameters. It comes again after a failure of the sink's disk."""

    at: float  # unix time
    run: str
    path: str  # of the run's folder
    game: str
    task: str  # the stages, or the board
    runner: str
    steps: int  # environment steps of the whole run
    outcome: Outcome  # names the results of episodes and evaluations
    options: dict[str, Any]  # as in `config.toml`: those that apply to the game and runner, on one level
    created_at: float  # unix time; with host and path it tells the run from all others
    tags: tuple[str, ...]  # these and the note as they are when the host starts
    note: str


class Restart(Message, frozen=True):
    """The run starts, or goes on from a checkpoint, at `env_steps`: what was said of later steps is void."""

    env_steps: int


SinkEvent = Begin | Restart | Progress | Episode | Evaluation | Finished | Failed
