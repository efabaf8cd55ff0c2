"""What the engine's commands and the programs that have started them tell each other: orders and reports."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import msgspec

from engine.protocol.commands import Message, Pause, Resume
from engine.protocol.messages import Episode, Failed, FinalEvaluation, Frame, Log, Mean
from engine.protocol.outcome import Conditions, Outcome

PolicyKind = Literal["best", "checkpoint", "saved", "included", "file"]
"""What a policy is: of a run the best one, that of a checkpoint or one that was saved; one that comes with the package;
any other file."""


_MOST_RESULTS = 256
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Score = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]


class BestEvaluation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evaluation of the run's best policy."""

    env_steps: Count
    episodes: Count
    clears: Count
    mean_return: Score
    results: Annotated[dict[str, Score], msgspec.Meta(max_length=_MOST_RESULTS)] = {}
    """Means, by name."""


class Interval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mean or a rate, and its 95 % interval, which is unknown (None) for a single episode."""

    mean: Score
    low: Score | None = None
    high: Score | None = None


class FinalResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The final evaluation of a run, which is its result."""

    env_steps: Count
    """At which the policy was chosen."""
    episodes: Count
    """0: it has no result, as `note` says."""
    clears: Count = 0
    clear_rate: Interval | None = None
    mean_return: Interval | None = None
    results: Annotated[dict[str, Interval], msgspec.Meta(max_length=_MOST_RESULTS)] = {}
    """By name."""
    starts: str = ""
    note: str = ""
    """Why there are no or fewer episodes than were asked for."""

    @classmethod
    def of(cls, event: FinalEvaluation, outcome: Outcome) -> FinalResult:
        """That of a game with this outcome."""
        rate = Mean(event.clears / max(1, event.episodes), event.clear_rate_low, event.clear_rate_high)
        means = {name: _interval(mean) for name, mean in outcome.named(event.results).items()}
        return cls(
            env_steps=event.policy_env_steps,
            episodes=event.episodes,
            clears=event.clears,
            clear_rate=_interval(rate) if event.episodes and outcome.goal else None,
            mean_return=_interval(event.mean_return),
            results={name: mean for name, mean in means.items() if mean is not None},
            starts=event.starts,
            note=event.note,
        )


def _interval(mean: Mean) -> Interval | None:
    """As a record has it; None if the mean is not finite."""
    low, high = (each if math.isfinite(each) else None for each in (mean.low, mean.high))
    return Interval(mean.mean, low, high) if math.isfinite(mean.mean) else None


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a command of the engine is started with. The command line of mario-tui has read and checked it: the options
    of a command stand there alone."""

    own: dict[str, Any] = {}
    """Options of the game, by name."""

    def argument(self) -> str:
        """Return it as the only argument of the command. Paths may have bytes that are no text."""
        return json.dumps(msgspec.to_builtins(self))


class _WithPolicy(Order, frozen=True, kw_only=True):
    conditions: Conditions = Conditions(noop_max=0)
    seed: int = 0
    others: list[str] = []
    """Policies that take turns with it, each in the tasks that it was trained on."""


class EvaluationOrder(_WithPolicy, frozen=True, kw_only=True):
    """Of `mario-tui eval`."""

    policy: str
    called: str = ""
    """What policies that take turns are called together."""
    episodes: int
    fresh: bool = False
    """Instead of the conditions and the seed."""
    processes: int = 1
    """That share the cores, this one included."""


class PlayOrder(_WithPolicy, frozen=True, kw_only=True):
    """Of `mario-tui play`: with a policy, or a game for a person."""

    policy: str | None = None
    game: str = ""
    episodes: int | None = None
    record: str | None = None
    unpaced: bool = False


class ExportOrder(Order, frozen=True, kw_only=True):
    """Of `mario-tui export --format onnx`."""

    policy: str
    output: str


class ProfileOrder(Order, frozen=True, kw_only=True):
    """Of `mario-tui profile`: the folder with the options of the run, and seconds."""

    folder: str
    duration: float
    trials: int
    trial_duration: float
    trace: str | None = None


class DistillationOrder(Order, frozen=True, kw_only=True):
    """Of `mario-tui distill`."""

    teachers: list[str]
    into: str
    game: str
    searched_by: str | None = None
    initial_policy: str | None = None
    steps: int
    minutes: float | None = None
    eval_every: int
    eval_episodes: int
    eval_epsilon: float
    seed: int


class TaskScore(msgspec.Struct, frozen=True):
    """Episodes of a policy in one of its stages or on one of its boards."""

    task: str  # the stage or board
    episodes: int
    clears: int  # that reached the game's goal
    mean_return: float
    results: dict[str, float]  # means, by name


class Evaluated(Message, frozen=True):
    """Result of `mario-tui eval`."""

    policy: str  # path of its file
    name: str  # see `engine.runs.lookup`, like the next five
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
    sticky_actions: float | None  # this and the other conditions: None for games without them
    noop_min: int | None
    noop_max: int | None
    random_phase: bool | None
    halfway_starts: float | None
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
    fresh: bool = False  # neither training nor the evaluations of its run had these episodes


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


EvaluationReport = Episode | Log | Evaluated | Failed
DistillationReport = DistillationProgress | StudentEvaluation | Distilled | Failed


class Checked(Message, frozen=True):
    """All networks can be trained."""


Buttons = Annotated[int, msgspec.Meta(ge=0, lt=2**24)]
"""Bits of `engine.config.capabilities.PersonKeys`."""


class Press(Message, frozen=True):
    """The buttons that the person holds from now on."""

    buttons: Buttons


class Speed(Message, frozen=True):
    """Play at a multiple of normal speed."""

    times: Annotated[float, msgspec.Meta(ge=1 / 8, le=8)]


class Step(Message, frozen=True):
    """While paused: play one environment step, in which a person holds these buttons."""

    buttons: Buttons = 0


class Begin(Message, frozen=True):
    """Begin an episode, in another of the game's stages if one is given."""

    episode: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    stage: Annotated[str, msgspec.Meta(max_length=40)] | None = None


PlayCommand = Pause | Resume | Step | Speed | Press | Begin


class Playing(Message, frozen=True):
    """State of the game of `mario-tui play`."""

    paused: bool
    speed: float  # 1 is normal
    stage: str  # the option's value, such as 1-2 or random; empty in games without stages
    episode: int  # number of the current one, from 1
    seed: int  # of that episode: `--seed` plays it again
    steps: int  # environment steps of that episode
    filmed: int | None  # pictures in the video so far; None without a video
    outcome: Outcome = Outcome()  # of the game's episodes
    place: str = ""  # the stage on the screen: one of the game's, also where `stage` names several
    actions: list[str] = []  # names of the actions in the frames' thoughts


class Filmed(Message, frozen=True):
    """The video is complete."""

    path: str
    pictures: int
    seconds: float  # that it plays
    size_bytes: int


PlayReport = Frame | Playing | Episode | Log | Filmed | Failed
Answer = EvaluationReport | DistillationReport | PlayReport | Profiled | Exported | Checked
"""What any command of the engine tells the program that has started it."""
