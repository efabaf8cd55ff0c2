"""Every command and event on one page: what clients tell a run, and what a run tells its clients.

msgspec structs, sent as length-prefixed MessagePack; decoding never executes anything. The same structs travel on the
pipe between host and runner. Two kinds of events differ in how a slow client sees them: *lasting* events (episodes,
points, phases, checkpoints, log lines, the end) arrive all and in order; *current* ones (progress, lanes, members,
stages, curriculum, system, frame) are overwritten by their newest value until the client is ready for it.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import msgspec

PROTOCOL = 3
"""Version of this page; a client refuses a host that speaks another one."""


State = Literal["starting", "running", "paused", "stopping", "finished", "failed", "lost", "damaged"]


class Message(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of everything that travels: immutable, tagged by its class name."""


# ---------------------------------------------------------------------------------------------- commands


class Pause(Message, frozen=True):
    """Hold acting and learning after the iteration in progress."""


class Resume(Message, frozen=True):
    """Go on after a pause."""


class Save(Message, frozen=True):
    """Write the policy's weights for playing."""


class Checkpoint(Message, frozen=True):
    """Write everything that `--resume` needs."""


class Stop(Message, frozen=True):
    """Checkpoint, then end the run in order."""

    reason: str = "asked to stop"


class Render(Message, frozen=True):
    """Send the rank-0 game's picture, or cease to."""

    on: bool
    fps: Annotated[float, msgspec.Meta(gt=0)] = 10.0


class Evaluate(Message, frozen=True):
    """Play the greedy evaluation now."""


Tunable = Literal["learning_rate", "epsilon_scale", "beta", "replay_ratio"]
"""What can be changed while a run goes on."""


class Set(Message, frozen=True):
    """Change one number of the run; answered by `Changed`, or a warning that names the accepted values."""

    name: Tunable
    value: float


class Trace(Message, frozen=True):
    """Record every stage of every process for so long, into the run's folder; see `engine.runtime.trace`."""

    seconds: float


Command = Pause | Resume | Save | Checkpoint | Stop | Render | Evaluate | Set | Trace

# ---------------------------------------------------------------------------------------------- current events


class Progress(Message, frozen=True):
    """Where the run stands. Rates are over the last report interval; losses are means over it, NaN before learning."""

    at: float  # unix time
    state: State
    env_steps: int
    frames: int
    updates: int
    episodes: int
    wall_s: float  # trained time, pauses left out, earlier sessions of a resumed run included
    remaining_s: float | None
    env_steps_per_s: float
    frames_per_s: float
    updates_per_s: float
    mean_return: float  # over the last 100 episodes
    best_return: float
    loss: float
    q_mean: float
    epsilon: float  # mean over lanes
    learning_rate: float
    replay_size: int
    replay_capacity: int
    beta: float
    burnin_left: int  # environment steps until learning starts


class Lane(msgspec.Struct, frozen=True):
    """One game of one actor. Mario's returns are sums of gym-super-mario-bros 7.4 rewards."""

    actor: int
    lane: int
    epsilon: float
    episodes: int
    last_return: float
    mean_return: float  # over the last 20 episodes
    best_return: float
    best_x: int  # Mario's; 0 in other games
    clears: int
    returns: list[float]  # the last 20, oldest first
    best_score: int = 0


class StageRecord(msgspec.Struct, frozen=True):
    """How a stage of Mario went so far, over all lanes and all sessions of the run."""

    stage: str
    episodes: int  # that came to it
    clears: int  # of these, that reached its flag
    recent: int  # the newest episodes that came to it, 100 at most
    recent_clears: int
    first_clear: int | None  # environment steps of the run


class Lanes(Message, frozen=True):
    """The per-actor panel, every lane; and the stages that were played, in the game's order."""

    lanes: list[Lane]
    stages: list[StageRecord] = []


class Member(msgspec.Struct, frozen=True):
    """A process of a run that plays: an actor, a worker or a rank."""

    role: Literal["actor", "worker", "rank"]
    index: int
    ready: bool  # False while it starts
    lanes: int
    env_steps: int  # since the run was started or resumed
    env_steps_per_s: float
    episodes: int
    mean_return: float  # over its lanes; NaN before the first episode
    epsilon_high: float  # of its first lane
    epsilon_low: float  # of its last lane
    restarts: int
    lag: int  # updates that its weights are behind
    waiting_percent: float  # share of the time in which it waits for the others


class Members(Message, frozen=True):
    """The processes of a run that has several, and who waits for whom."""

    members: list[Member]
    inserts_per_s: float  # environment steps stored
    samples_per_s: float  # transitions learned from
    ratio: float  # samples for each insert since learning began; NaN before
    learner_waiting_percent: float  # of the leading process


class Split(msgspec.Struct, frozen=True):
    """Where the time of a process went, by stage (see `engine.runtime.stopwatch`)."""

    process: str
    seconds: float  # of which this is the split; 0 when nothing is known
    loop: dict[str, float]  # share of the loop's time, what its thread waited for included; adds up to 1 at most
    busy: dict[str, float]  # threads that were at it, on average
    cpu: dict[str, float]  # cores that it took


class Stages(Message, frozen=True):
    """Where the time of a run's processes went since the last report, the leading one first."""

    processes: list[Split]


class Part(msgspec.Struct, frozen=True):
    """A stage of a curriculum, or a term of the reward."""

    name: str
    weight: float  # share of the episodes that begin there; what a unit of the term takes from the reward
    clear_rate: float = math.nan  # of the last episodes in lanes that hardly explore; NaN without one
    episodes: int = 0  # as many


class Curriculum(Message, frozen=True):
    """Where a run's curriculum stands; phases count from 1."""

    phase: int
    phases: int
    name: str  # of the phase
    goal: str  # what brings the next one; empty in the last
    parts: list[Part]


class GPU(msgspec.Struct, frozen=True):
    """None stands for what a GPU does not report: slices of one (MIG), virtual and integrated ones leave things out."""

    name: str
    utilisation_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_c: float | None


class System(Message, frozen=True):
    """What the machine does. `gpu_note` says in one line why `gpus` is empty."""

    cpu_percent: list[float]  # per core
    memory_used_bytes: int
    memory_total_bytes: int
    run_cpu_percent: float  # 100 is one core
    run_memory_bytes: int
    processes: int
    gpus: list[GPU]
    gpu_note: str


class Thought(msgspec.Struct, frozen=True):
    """What the agent saw in one game, what it made of it, and what was done."""

    q_values: list[float]  # of every action, as named in `Hello.actions`; -inf where it is illegal
    action: int
    random: bool  # the action was not the agent's choice
    shape: tuple[int, int, int, int]  # frames (the newest last), planes of each, height, width
    seen: bytes  # uint8, in that order


class Frame(Message, frozen=True):
    """The rank-0 game's picture: `rgb` holds height x width x 3 bytes, row by row. `play` adds what the game's memory
    says: coins, life, score, stage, time, world, x_pos, y_pos ..."""

    index: int
    height: int
    width: int
    rgb: bytes
    info: dict[str, int] = {}
    thought: Thought | None = None  # of what is done next in this picture


# ---------------------------------------------------------------------------------------------- lasting events


class Episode(Message, frozen=True):
    """An episode that ended in a lane."""

    actor: int
    lane: int
    env_steps: int  # of the run, when it ended
    episode: int  # of the run, counted from 1
    episode_return: float  # in Mario: sum of gym-super-mario-bros 7.4 rewards
    length: int  # environment steps
    x_pos: int  # furthest; 0 in games without
    flag: bool
    epsilon: float
    score: int = 0  # Mario's points, fruits of Snake, lines of Tetris
    stage: str = ""  # Mario's, in which it ended
    cleared: list[str] = []  # stages whose flag was reached in it


class Point(Message, frozen=True):
    """One sample of the charts."""

    env_steps: int
    wall_s: float
    mean_return: float
    loss: float
    q_mean: float
    env_steps_per_s: float
    beta: float


class Ready(Message, frozen=True):
    """The runner has built everything and trains."""

    device: str
    precision: str
    lane_threads: int
    torch_threads: int


class Evaluation(Message, frozen=True):
    """Greedy episodes played in between; `best` says that the policy is the best of the run so far and was kept."""

    env_steps: int
    episodes: int
    clears: int
    mean_return: float
    mean_x_pos: float
    best: bool
    seconds: float
    mean_score: float = 0.0


class Changed(Message, frozen=True):
    """A number of the run was changed by hand."""

    name: Tunable
    value: float
    before: float
    env_steps: int


class Phase(Message, frozen=True):
    """A new phase of the run's curriculum."""

    env_steps: int
    phase: int  # from 1
    phases: int
    name: str  # Mario's: the stage that joins


class Saved(Message, frozen=True):
    """A checkpoint or a policy that is complete on disk."""

    kind: Literal["checkpoint", "policy"]
    path: str
    env_steps: int


class Log(Message, frozen=True):
    at: float  # unix time
    level: Literal["info", "warning", "error"]
    text: str


class Summary(msgspec.Struct, frozen=True):
    """The last line of a run."""

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


class Finished(Message, frozen=True):
    summary: Summary


class Failed(Message, frozen=True):
    """The run ended by itself and not in order. `checkpoint` is the newest complete one; with `usage`, what was asked
    for can't be done on this machine and nothing was trained."""

    reason: str
    traceback: str
    log_path: str
    checkpoint: str | None
    usage: bool = False
    final: bool = False  # starting the runner again would only end the same way


Noted = Ready | Episode | Evaluation | Changed | Phase | Saved | Log | Finished | Failed
"""Lasting events that are kept for who attaches later, and shown in the log."""

# ---------------------------------------------------------------------------------------------- on attach


class Hello(Message, frozen=True):
    """First event on every connection: what this run is, and what happened before the client came."""

    protocol: int
    run: str
    path: str
    game: str
    stage: str
    runner: str
    pid: int
    steps: int
    render: bool  # the run was started with --render
    points: list[Point]
    events: list[Noted]
    actions: list[str] = []  # their names, in the order of Q-values


# ---------------------------------------------------------------------------------------------- runner to host only


class Written(Message, frozen=True):
    """A checkpoint lies complete in `partial`; the host verifies it and renames it to `final`."""

    partial: str
    final: str
    env_steps: int


class Beat(Message, frozen=True):
    """The runner is alive; it will be heard of again within `within_s` seconds."""

    within_s: float


class Done(Message, frozen=True):
    """The runner has nothing left to do; its last checkpoint was announced before."""

    reason: str


# ---------------------------------------------------------------------------------------------- evaluation


class Evaluated(Message, frozen=True):
    """What an evaluation found."""

    policy: str
    game: str
    stage: str  # of Mario, and so is the emulator; empty in other games
    emulator: str
    episodes: int
    epsilon: float
    noop_max: int
    clears: int
    clear_rate: float
    clear_rate_low: float  # 95 % interval (Wilson)
    clear_rate_high: float
    mean_return: float  # gym-super-mario-bros 7.4 rewards
    mean_x_pos: float
    mean_length: float  # environment steps
    mean_time_left: float  # of the game's clock
    mean_score: float
    mean_score_low: float  # 95 % interval (normal)
    mean_score_high: float
    seconds: float


class Profiled(Message, frozen=True):
    """What a profile found: a report in Markdown, and the same in figures."""

    run: str
    report: str
    figures: dict[str, Any]


Lasting = Noted | Point
Current = Progress | Lanes | Members | Stages | Curriculum | System | Frame
Event = Lasting | Current | Hello
EvaluationReport = Frame | Episode | Evaluated | Failed
ProfileReport = Log | Profiled | Failed
Report = (
    Ready
    | Progress
    | Lanes
    | Members
    | Stages
    | Curriculum
    | Episode
    | Evaluation
    | Changed
    | Phase
    | Saved
    | Written
    | Log
    | Failed
    | Beat
    | Done
)
