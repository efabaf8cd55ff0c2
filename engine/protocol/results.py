"""What the engine's commands that have a result, such as `evaluate`, report to the program that has started them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from engine.protocol.message import Message
from engine.protocol.messages import Episode, Failed, Log
from engine.protocol.outcome import Outcome

PolicyKind = Literal["best", "checkpoint", "saved", "included", "file"]
"""What a policy is: of a run the best one, that of a checkpoint or one that was saved; one that comes with the package;
any other file."""


class TaskScore(msgspec.Struct, frozen=True):
    """Episodes of a policy in one of its stages or on one of its boards."""

    task: str  # the stage or board
    episodes: int
    clears: int  # that reached the game's goal
    mean_return: float
    results: dict[str, float]  # means, by name


class Mean(msgspec.Struct, frozen=True):
    """A mean over episodes, and its 95 % interval (Student's t), which is NaN for a single episode."""

    mean: float
    low: float
    high: float


class Evaluated(Message, frozen=True):
    """Result of `mario-tui eval`."""

    policy: str  # path of its file
    name: str  # see `engine.runs.origin`, like the next five
    kind: PolicyKind
    run: str | None
    trained_on: str
    trained_env_steps: int | None
    trained_updates: int | None
    game: str
    outcome: Outcome  # of the game's episodes
    stage: str  # stage and emulator: Mario's; empty in other games
    emulator: str
    episodes: int
    epsilon: float
    sticky_actions: float | None  # this and the no-ops: None for games without them
    noop_min: int | None
    noop_max: int | None
    seed: int
    clears: int
    clear_rate: float
    clear_rate_low: float  # 95 % interval (Wilson)
    clear_rate_high: float
    mean_return: float
    mean_return_low: float  # 95 % interval (Student's t)
    mean_return_high: float
    mean_length: float  # environment steps
    results: dict[str, Mean]  # by name
    seconds: float
    tasks: list[TaskScore] = []  # of a policy for several stages or boards


class DistillationProgress(Message, frozen=True):
    """Where a distillation is, about twice a second."""

    env_steps: int
    updates: int
    seconds: float
    loss: float
    agreement: float  # share of visited states in which student and teacher prefer the same action
    searching: str = ""  # for a way to the flag: the stage, and how far the search is


class StudentEvaluation(Message, frozen=True):
    """An evaluation of the student in all its tasks."""

    env_steps: int
    updates: int
    seconds: float
    agreement: float
    clear_rate: float  # the mean over all tasks, as the next two
    mean_return: float
    results: dict[str, float]
    tasks: list[TaskScore]
    best: bool  # so far; the student was written to the file


class Distilled(Message, frozen=True):
    """Result of `mario-tui distill`: the best student, which is in the file `policy`. If there was no evaluation, the
    student as it was is there, or `policy` is None if that would have replaced an earlier file."""

    policy: str | None
    game: str
    network: str
    env_steps: int  # of the whole distillation, like the next two
    updates: int
    seconds: float
    evaluation: StudentEvaluation | None  # of the student that was kept; None if it was stopped before the first one


class Profiled(Message, frozen=True):
    """Result of `mario-tui profile`: a report in Markdown, and the same as figures."""

    run: str
    report: str
    figures: dict[str, Any]


class Exported(Message, frozen=True):
    """Result of `mario-tui export --format onnx`: the model, and how it compares with the policy's network."""

    size: int  # bytes
    opset: int
    observations: int  # on which both were computed
    agreeing: int  # of them, where both choose the same action
    largest_difference: float  # of a Q-value


EvaluationReport = Episode | Evaluated | Failed
DistillationReport = DistillationProgress | StudentEvaluation | Distilled | Failed
ProfileReport = Log | Profiled | Failed
ExportReport = Exported | Failed
