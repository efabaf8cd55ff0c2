"""Events: what a run sends to its clients, and reports: what a runner sends to the run's host.

Messages are msgspec structs, sent as length-prefixed MessagePack; decoding never executes anything. The same structs
travel on the queues between host, coordinator and members. Slow clients see two kinds of events differently: *lasting*
events (episodes, points, phases, checkpoints, log lines, the end) all arrive, in order; of *current* events (progress,
lanes, members, time splits, curriculum, system, frame) only the newest is kept until the client reads it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from engine.protocol.commands import Message, Tunable, bounded
from engine.protocol.metrics import Distribution as Distribution
from engine.protocol.metrics import Point as Point
from engine.protocol.metrics import Progress as Progress
from engine.protocol.metrics import ReplayContents as ReplayContents
from engine.protocol.metrics import State as State
from engine.protocol.outcome import Outcome

PROTOCOL = 6
"""Version of these messages; a client refuses a host with another version."""

_MAX_LENGTH = 2**12
"""Of a picture's dimension."""

# ---------------------------------------------------------------------------------------------- current events


class Lane(msgspec.Struct, frozen=True):
    """Statistics of one lane."""

    actor: int
    lane: int
    epsilon: float
    episodes: int
    last_return: float
    mean_return: float  # over the last 20 episodes
    best_return: float
    clears: int  # episodes that reached the goal
    returns: list[float]  # the last 20, oldest first
    best_results: tuple[float, ...] = ()  # the largest of each, in the order of `Hello.outcome`


class TaskRecord(msgspec.Struct, frozen=True):
    """Statistics of one of several tasks, such as a stage, over all lanes and all sessions of the run."""

    task: str
    episodes: int  # that reached the task
    clears: int  # of these, how many reached its goal
    recent: int  # the latest episodes that reached it, at most 100
    recent_clears: int
    first_clear: int | None  # environment steps of the run at the first clear


class Lanes(Message, frozen=True):
    """Every lane, for the actors panel; and every task that was played, in the game's order."""

    lanes: list[Lane]
    tasks: list[TaskRecord] = []


class Member(msgspec.Struct, frozen=True):
    """A process that plays: an actor, a worker or a rank."""

    role: Literal["actor", "worker", "rank"]
    index: int
    ready: bool  # False while starting
    lanes: int
    env_steps: int  # since the run was started or resumed
    env_steps_per_s: float
    episodes: int
    mean_return: float  # over its lanes; NaN before the first episode
    epsilon_high: float  # of its first lane
    epsilon_low: float  # of its last lane
    restarts: int
    lag: int  # number of updates by which its weights are out of date
    waiting_percent: float  # share of time spent waiting for other processes
    machine: str = ""  # where it is, if it may be on another machine
    waits_for_core: bool = False  # it has no process yet, because every core of the cluster is taken


class Members(Message, frozen=True):
    """The processes of a run with several, and how long each waits."""

    members: list[Member]
    inserts_per_s: float  # environment steps stored
    samples_per_s: float  # transitions learned from
    ratio: float  # samples for each insert since learning began; NaN before
    learner_waiting_percent: float  # of the coordinator
    wire_bytes_per_s: float = 0.0  # that the actors of a cluster send
    machines: list[Machine] = []  # of the cluster, without the coordinator's own


class Split(msgspec.Struct, frozen=True):
    """Where the time of a process went, by section of the loop (see `engine.runtime.stopwatch`)."""

    process: str
    seconds: float  # length of the interval; 0 if unknown
    loop: dict[str, float]  # share of the loop's time, including waiting; the sum is at most 1
    busy: dict[str, float]  # mean number of threads at work
    cpu: dict[str, float]  # mean number of cores used


class TimeSplits(Message, frozen=True):
    """Where the time of a run's processes went since the last report, coordinator first."""

    processes: list[Split]


class Part(msgspec.Struct, frozen=True):
    """A stage of a curriculum, or a term of the reward."""

    name: str
    weight: float  # of a stage: share of episodes that start there; of a term: its weight in the reward
    clear_rate: float = math.nan  # of the latest episodes in the lanes that explore least; NaN if none
    episodes: int = 0  # number of these episodes


class Curriculum(Message, frozen=True):
    """The state of a run's curriculum; phases count from 1."""

    phase: int
    phases: int
    name: str  # of the phase
    goal: str  # condition for the next phase; empty in the last one
    parts: list[Part]


class Thought(msgspec.Struct, frozen=True):
    """What the agent saw in one lane, its Q-values, and the action taken."""

    q_values: list[float]  # one per action in `Hello.actions`; -inf if illegal
    action: int
    random: bool  # chosen at random instead of by the agent
    shape: tuple[int, int, int, int]  # frames (the newest last), planes of each, height, width
    seen: bytes  # uint8, in that order
    facts: Annotated[dict[Annotated[str, msgspec.Meta(max_length=20)], int], msgspec.Meta(max_length=8)] = {}
    """Values of a board game: lines, height of the stack ..."""

    def __post_init__(self) -> None:
        """Raises `ValueError` if the values contradict each other, so that no reader has to check."""
        if not 0 <= self.action < len(self.q_values):
            raise ValueError(f"action {self.action} of {len(self.q_values)}")
        _check_size(self.shape, self.seen)


SCREEN_SHAPE = (240, 256, 3)
"""Rows, columns and colours of a game's picture for people."""


class Frame(Message, frozen=True):
    """A frame of the rank-0 game: `rgb` holds height x width x 3 bytes, row by row. `play` adds values of the game, by
    name, which may be empty."""

    index: int
    height: int
    width: int
    rgb: bytes
    facts: dict[str, int | str] = {}
    thought: Thought | None = None  # for the action taken in this frame

    def __post_init__(self) -> None:
        """Raises `ValueError` unless there are that many pixels."""
        if not self.rgb:
            raise ValueError("a frame without pixels")
        _check_size((self.height, self.width, 3), self.rgb)


def _check_size(shape: tuple[int, ...], values: bytes) -> None:
    if any(not 0 <= length <= _MAX_LENGTH for length in shape) or math.prod(shape) != len(values):
        raise ValueError(f"{len(values):,} values of shape {' x '.join(map(str, shape))}")


class GPU(msgspec.Struct, frozen=True):
    """None for values that a GPU does not report, as MIG slices, virtual and integrated GPUs do."""

    name: str
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: float | None


class Machine(msgspec.Struct, frozen=True):
    """Load of another machine that takes part in the run."""

    name: str
    cores: int
    cpu_percent: float  # mean over its cores
    memory_used_bytes: int
    memory_total_bytes: int
    gpus: list[GPU]


decode_machine = bounded(msgspec.msgpack.Decoder(Machine).decode)


class System(Message, frozen=True):
    """Load of the machine. `gpu_note` says in one line why `gpus` is empty."""

    cpu_percent: list[float]  # per core
    memory_used_bytes: int
    memory_total_bytes: int
    run_cpu_percent: float  # 100 is one core
    run_memory_bytes: int
    processes: int
    gpus: list[GPU]
    gpu_note: str


# ---------------------------------------------------------------------------------------------- lasting events


class Episode(Message, frozen=True):
    """A finished episode."""

    actor: int
    lane: int
    env_steps: int  # of the run, at the episode's end
    episode: int  # number within the run, from 1
    episode_return: float  # as people count it: not scaled or shaped; NaN if it was not finite
    length: int  # environment steps
    success: bool  # it ended by reaching the game's goal
    epsilon: float
    results: tuple[float, ...] = ()  # in the order of `Hello.outcome`
    task: str = ""  # in which it ended, such as a stage
    cleared: list[str] = []  # tasks in which it reached the goal


class Ready(Message, frozen=True):
    """The runner has started and is training."""

    device: str
    precision: str
    lane_threads: int
    torch_threads: int
    batch_size: int = 0  # of an update in one process; 0: of an earlier version, which did not tell


class Evaluation(Message, frozen=True):
    """Result of a greedy evaluation; `best`: the policy is the run's best so far and was kept."""

    env_steps: int
    episodes: int
    clears: int
    mean_return: float
    best: bool
    seconds: float
    results: tuple[float, ...] = ()  # means, in the order of `Hello.outcome`
    solved: bool | None = None  # whether the mean return solves the task; None if it does not tell when


class Mean(msgspec.Struct, frozen=True):
    """A mean over episodes, and its 95 % interval (Student's t), which is NaN for a single episode."""

    mean: float
    low: float
    high: float


class FinalEvaluation(Message, frozen=True):
    """The result of a run: the policy that it has chosen, over episodes that neither training nor the choice has seen.

    Without any episode `note` says why, and all numbers are NaN or 0.
    """

    env_steps: int
    policy_env_steps: int  # at which the policy was chosen
    episodes: int
    clears: int
    clear_rate_low: float  # 95 % interval (Wilson)
    clear_rate_high: float
    mean_return: Mean
    results: tuple[Mean, ...] = ()  # in the order of `Hello.outcome`
    starts: str = ""  # where the episodes began, if the game can tell
    note: str = ""  # why there are fewer episodes than were asked for
    seconds: float = 0.0


class Changed(Message, frozen=True):
    """A setting of the run was changed."""

    name: Tunable
    value: float
    before: float
    env_steps: int


class Phase(Message, frozen=True):
    """The curriculum entered a new phase."""

    env_steps: int
    phase: int  # from 1
    phases: int
    name: str  # such as the stage that was unlocked


class Saved(Message, frozen=True):
    """A checkpoint or a policy is complete on disk."""

    kind: Literal["checkpoint", "policy"]
    path: str
    env_steps: int


class Log(Message, frozen=True):
    """A line of the run's log."""

    at: float  # unix time
    level: Literal["info", "warning", "error"]
    text: str


class Alert(Message, frozen=True):
    """Something is wrong with the run, as one of the rules of `engine.monitoring.alerts` has found."""

    at: float  # unix time
    run: str  # its name and its path
    path: str
    rule: str
    text: str  # one line
    env_steps: int


class Summary(msgspec.Struct, frozen=True):
    """Summary at the end of a run."""

    run: str
    reason: str
    env_steps: int
    frames: int
    updates: int
    episodes: int
    wall_s: float
    env_steps_per_s: float
    updates_per_s: float
    mean_return: float | None
    checkpoint: str | None
    result: FinalEvaluation | None = None


class Finished(Message, frozen=True):
    """The run ended as requested: its steps are done, or it was stopped."""

    summary: Summary


class Failed(Message, frozen=True):
    """The run failed. `checkpoint` is the newest complete one. With `usage`, its options can't work on this machine,
    and nothing was trained."""

    reason: str
    traceback: str = ""
    log_path: str = ""
    checkpoint: str | None = None
    usage: bool = False
    final: bool = False  # a restart would fail the same way


_LastingOfRunner = Ready | Episode | Evaluation | FinalEvaluation | Changed | Phase | Saved | Log | Failed
KeptEvent = _LastingOfRunner | Alert | Finished
"""Lasting events that are kept for clients that attach later, and shown in the log."""

# ---------------------------------------------------------------------------------------------- on attach


class Hello(Message, frozen=True):
    """First event of every connection: the run, and its history so far. Comes again instead of events that the client
    did not read in time, or that a restart has undone."""

    protocol: int
    run: str
    path: str
    game: str
    task: str = msgspec.field(name="stage")  # the value of the game's option `tasks`
    runner: str
    pid: int
    steps: int
    render: bool  # the run was started with --render
    points: list[Point]
    events: list[KeptEvent]
    outcome: Outcome = Outcome()  # of the game's episodes
    actions: list[str] = []  # names, in the order of the Q-values
    points_stride: int = 1  # samples for each of `points`
    published: dict[str, int] = {}  # events of each class of `KeptEvent` since the host started, without the end
    episodes: int | None = None  # after which the run ends as well
    obeys: list[str] | None = None  # the commands that a loop outside the program obeys; None: the program trains
    folder: tuple[int, int] | None = None  # device and inode of the run's; None: the host is of an earlier version


# ---------------------------------------------------------------------------------------------- runner to host only


class Written(Message, frozen=True):
    """A complete checkpoint is in the folder `partial`; the host checks it and renames it to `final`. Both are in the
    run's folder, by a path of the writer's."""

    partial: str
    final: str
    env_steps: int


class Beat(Message, frozen=True):
    """Heartbeat: the next message follows within `within_s` seconds."""

    within_s: float


class Obeys(Message, frozen=True):
    """The commands that a training loop outside the program obeys, by the names of their classes."""

    commands: list[str]


class Trained(Message, frozen=True):
    """Training is done, and its last checkpoint announced. The final evaluation begins; whatever becomes of it, the run
    has not failed."""

    reason: str


class Done(Message, frozen=True):
    """The runner is done; it has announced its last checkpoint before."""

    reason: str


_CurrentOfRunner = Progress | Lanes | Members | TimeSplits | Curriculum
Lasting = KeptEvent | Point
Current = _CurrentOfRunner | System | Frame
Event = Lasting | Current | Hello
Report = _LastingOfRunner | _CurrentOfRunner | Written | Frame | Beat | Obeys | Trained | Done
