"""What a run tells its sinks, and the names of its event files.

Sinks of other packages get it as messages on the standard input of their process.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Iterable
from typing import Any

from engine.protocol.commands import Message
from engine.protocol.messages import Episode, Evaluation, Failed, FinalEvaluation, Finished, Progress
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


SinkEvent = Begin | Restart | Progress | Episode | Evaluation | FinalEvaluation | Finished | Failed


EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d{10}\.\d{6})\..*\.part(\d{1,9})\.[0-9a-f]{16}")
_TICK_S = 1e-6


def next_event_file(names: Iterable[str]) -> str:
    """Return the name of the next part's event file in a folder with files of these names.

    Each part of a run, from one start of its host to the next, writes one. TensorBoard reads them in the order of their
    names, which begin with a time, and a part voids the steps of those before it that are later than its own first one.
    So a name must be later than those before it even if the clock was set back; and the number of the part tells the
    order should that fail.
    """
    earlier = [found for found in map(EVENT_FILE.fullmatch, names) if found]
    at = max([time.time(), *(float(found[1]) + _TICK_S for found in earlier)])
    part = 1 + max((int(found[2]) for found in earlier), default=0)
    host = f"{socket.gethostname()}.{os.getpid()}"
    return f"events.out.tfevents.{at:017.6f}.{host}.part{part}.{secrets.token_hex(8)}"
