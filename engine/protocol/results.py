"""What the engine's commands `evaluate` and `profile` report to the program that has started them."""

from __future__ import annotations

from typing import Any

from engine.protocol.message import Message
from engine.protocol.messages import Episode, Failed, Log


class Evaluated(Message, frozen=True):
    """Result of `mario-tui eval`."""

    policy: str  # path of its file
    name: str  # see `engine.runs.origin`, like the next four
    run: str | None
    trained_on: str
    trained_env_steps: int | None
    trained_updates: int | None
    game: str
    stage: str  # stage and emulator: Mario's; empty in other games
    emulator: str
    episodes: int
    epsilon: float
    sticky_actions: float
    noop_min: int
    noop_max: int
    seed: int
    clears: int
    clear_rate: float
    clear_rate_low: float  # 95 % interval (Wilson)
    clear_rate_high: float
    mean_return: float  # gym-super-mario-bros 7.4 rewards
    mean_x_pos: float
    mean_length: float  # environment steps
    mean_time_left: float  # on the game's clock
    mean_score: float
    mean_score_low: float  # 95 % interval (normal)
    mean_score_high: float
    seconds: float


class Profiled(Message, frozen=True):
    """Result of `mario-tui profile`: a report in Markdown, and the same as figures."""

    run: str
    report: str
    figures: dict[str, Any]


EvaluationReport = Episode | Evaluated | Failed
ProfileReport = Log | Profiled | Failed
