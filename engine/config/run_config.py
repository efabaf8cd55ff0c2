"""A run's options: one frozen dataclass that defines both the command line (`engine.config.command_line`) and the file.

Every field carries its help and its accepted values, so `--help`, validation and the stored `config.toml` can't drift
apart. Importing this does not import torch. Comments name the source of a default: "table" is docs/recipe.md on
World 1-1, "trial" a measured Double DQN run on it that those recipes started from (32 lanes, 2 CPU cores).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import tomli_w

from engine.config.conditions import Conditions
from engine.config.constraints import check_together
from engine.config.fields import AUTO, BOARD_GAMES, GAMES, NONE, REWARDS, ConfigError, check, flag, option
from engine.config.runners import RUNNERS, RunnerInfo, runners_with

__all__ = [
    "AUTO",
    "BOARD_GAMES",
    "GAMES",
    "REWARDS",
    "TUNABLE_BOUNDS",
    "ConfigError",
    "RunConfig",
    "belongs",
    "flag",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options of a training run. Raises `ConfigError` on construction if a value is invalid.

    Units: an *environment step* is one agent decision in one lane (4 emulated frames); an *update* is one optimiser
    step; a *lane* is one game.
    """

    game: str = option(
        "mario",
        "run",
        "game to train on; it decides which other options there are, and their defaults",
        choices=GAMES,
    )
    stage: str = option(
        "1-1",
        "run",
        "1-1 to 8-4; several (1-1,1-2): each episode plays one of them; random: any stage; game: the whole game with "
        "three lives",
        games=("mario",),
    )
    emulator: str = option("native", "run", "NES emulator", choices=("native", "nes-py"), games=("mario",))
    rom: str | None = option(
        None,
        "run",
        "cartridge file (iNES); if unset, the one in gym-super-mario-bros",
        metavar="FILE",
        games=("mario",),
    )
    runner: str = option(
        next(iter(RUNNERS)),
        "run",
        "; ".join(f"{info.name}: {info.help}" for info in RUNNERS.values()),
        choices=tuple(RUNNERS),
    )
    num_processes: int = option(
        2,
        "run",
        "processes that play and learn (workers or ranks)",
        low=1,
        high=256,
    )
    num_actors: int = option(2, "run", "actor processes", low=1, high=1024)
    ray: str = option(
        "none",
        "run",
        "Ray cluster on which actors run: none, local (started for this run), auto (the one of this machine, or "
        "$RAY_ADDRESS) or HOST:PORT of its head",
        metavar="ADDRESS",
    )
    steps: int = option(2_000_000, "run", "total environment steps (rounded up to a multiple of the lane count)", low=1)
    episodes: int | None = option(None, "run", "also stop after this many episodes", low=1)
    seed: int = option(0, "run", "random seed", low=0, high=2**32 - 1)
    device: str = option("auto", "run", "auto, cpu, mps, cuda or cuda:N; auto prefers CUDA, then MPS, then CPU")
    threads: int | None = option(
        None,
        "run",
        "cores that all processes of the run may use together, and so the threads that compute; none: all that there "
        "are (Linux; not under torchrun)",
        low=1,
        high=4096,
    )
    parallel_envs: int = option(32, "run", "lanes (parallel games) per process", low=1, high=1024)  # trial
    async_envs: bool = option(True, "run", "learn while the lanes emulate")

    reward: str = option(
        "progress",
        "environment",
        {
            "mario": "progress, or classic (as in gym-super-mario-bros 7.4)",
            "snake": "fruits",
            "tetris": "per piece: cells (1 + cells cleared), lines (1 + width x lines^2), or jumanji (0, 40, 100, 300 "
            "or 1200 for 0 to 4 lines)",
        },
        metavar="NAME",
    )
    board: str | None = option(
        None,
        "environment",
        "board size in cells, width x height",
        metavar="WxH",
        games=BOARD_GAMES,
    )
    death_penalty: float = option(
        0.0, "environment", "reward subtracted when the snake dies", low=0.0, high=100.0, games=("snake",)
    )
    step_penalty: float = option(
        0.0,
        "environment",
        "reward that the agent loses in each step, so that going in circles does not pay; not in returns",
        low=0.0,
        high=1.0,
        games=("snake",),
    )
    pieces: str = option(
        "uniform",
        "environment",
        "uniform: every piece equally likely; bag: all seven pieces before any of them repeats",
        choices=("uniform", "bag"),
        games=("tetris",),
    )
    next_piece: bool = option(
        False, "environment", "draw each piece one placement earlier and show it to the agent", games=("tetris",)
    )
    max_pieces: int = option(
        400, "environment", "pieces after which a game is cut off", low=1, high=10_000_000, games=("tetris",)
    )
    curriculum: bool = option(
        False,
        "environment",
        {
            "mario": "stages of --stage unlocked one at a time; not in evaluations",
            "tetris": "penalties for height, holes and bumpiness that grow with each phase; not in evaluations",
        },
        games=("mario", "tetris"),
    )
    curriculum_rate: float = option(
        0.5,
        "environment",
        "clear rate on the newest stage that unlocks the next one",
        low=0.01,
        high=1.0,
        games=("mario",),
    )
    curriculum_episodes: int = option(
        50,
        "environment",
        "window, in episodes, for that clear rate (least-exploring quarter of the lanes)",
        low=1,
        high=10_000,
        games=("mario",),
    )
    curriculum_steps: int = option(
        100_000,
        "environment",
        "environment steps per phase; the second half blends in the next phase",
        low=1,
        games=("tetris",),
    )
    actions: str = option(
        "right-only",
        "environment",
        "right-only, simple, complex, or a list such as noop,right,right+A",
        games=("mario",),
    )
    observation: str = option(
        "50x60",
        "environment",
        "50x60-red: no status bar, a mark while A is held, mostly the red part of colors; 50x60: the same in gray; "
        "84x84: the whole screen in gray",
        choices=("50x60-red", "50x60", "84x84"),
        games=("mario",),
    )
    swim_strokes: bool = option(
        False,
        "environment",
        "under water every step with A is a stroke: A is released in its first frame; held, A does nothing there",
        games=("mario",),
    )
    frame_skip: int = option(4, "environment", "frames per action (Mnih et al. 2015)", low=1, high=60, games=("mario",))
    sticky_actions: float = option(
        0.0,
        "environment",
        "probability of repeating the previous action (Machado et al. 2018: 0.25)",
        low=0.0,
        high=0.99,
        games=("mario",),
    )
    noop_max: int = option(
        30,
        "environment",
        "maximum number of random no-op frames at the start of an episode (Mnih et al. 2015)",
        low=0,
        high=255,
        games=("mario",),
    )
    start_states: float = option(
        0.0,
        "environment",
        "share of episodes that begin at states which earlier ones reached, mostly before places where many ended; "
        "neither counted nor evaluated",
        low=0.0,
        high=0.5,
        games=("mario",),
    )
    guide: float = option(
        0.0,
        "environment",
        "share of episodes that begin with actions of a way to the flag, found by a search in the emulator before the "
        "run begins, until the agent takes over somewhere on it; neither counted nor evaluated",
        low=0.0,
        high=0.9,
        games=("mario",),
    )

    late_starts: float = option(
        0.0,
        "environment",
        "share of episodes that begin late in a game, with a long snake; neither counted nor evaluated",
        low=0.0,
        high=0.9,
        games=("snake",),
    )

    network: str = option(
        "small",
        "learning",
        "nature: Mnih et al. 2015; small: half the filters, 0.6 times the cost per update",
        choices=("nature", "small"),
        games=("mario",),
    )
    afterstates: bool = option(
        False,
        "learning",
        "value a placement by its reward and the board that it leaves, rather than from board and piece",
        games=("tetris",),
    )
    paths: bool = option(
        False,
        "learning",
        "show the network the board from the head, and how soon each move lets the snake reach each cell",
        games=("snake",),
    )
    initial_policy: str | None = option(
        None,
        "learning",
        "begin with the weights of this policy: a run, a checkpoint, a policy file or a policy of the package, of "
        "the same network, with the same actions or some of them; --epsilon-steps 1 lets it play from the start. On "
        "Mario its observation, frame skip, strokes and network hold unless others are given",
        metavar="POLICY",
    )
    batch_size: int = option(
        256,  # table
        "learning",
        "transitions per update (per rank under ddp), or auto for the largest that pays off on this machine",
        low=0,
        high=65_536,
    )
    accumulate: int = option(
        1, "learning", "split each batch into this many parts: the same update in less memory", low=1, high=4096
    )
    replay_ratio: float = option(4.0, "learning", "samples learned per environment step", low=0.01, high=1024)  # table
    burnin: int = option(10_000, "learning", "environment steps before the first update", low=1)  # table
    learning_rate: float = option(7e-4, "learning", "Adam step size", low=1e-8, high=1.0)  # table
    learning_rate_schedule: str = option(
        "plateau",  # table
        "learning",
        "constant; changed after evaluations: plateau, cut once, to 0.3 of its value, after one that clears 0.8 of its "
        "episodes or eight without a better score; decay, divided by 1 + steps / 1,000,000",
        choices=("constant", "plateau", "decay"),
    )
    gamma: float = option(0.95, "learning", "discount factor per environment step", low=0.0, high=1.0)  # trial
    final_gamma: float | None = option(
        None,  # table
        "learning",
        "discount factor once --learning-rate-schedule has lowered the learning rate to 0.3 of its value; none: always "
        "as --gamma",
        low=0.0,
        high=1.0,
    )
    n_step: int = option(5, "learning", "steps in the n-step return", low=1, high=64)  # trial
    sync_every: int = option(
        1,
        "learning",
        "learner updates between target-network updates; above 1 --tau is 1 unless it is given",
        low=1,
    )
    pull_every: int | None = option(
        None,
        "learning",
        "environment steps between a worker's or actor's checks for newer weights; none: as --sync-every",
        low=1,
    )
    tau: float = option(
        0.004,  # table
        "learning",
        "target-network update rate; 1 is a hard copy, with --sync-every 1000 unless that is given",
        low=1e-4,  # slower than any that pays: see `SLOWEST_TARGET`
        high=1.0,
    )
    policy_tau: float = option(
        0.0014,  # table
        "learning",
        "rate per update at which the average network that is evaluated and saved follows the online one; 0: evaluate "
        "and save the target network instead (the online network with --tau 1)",
        low=0.0,
        high=0.5,
    )
    double_q: bool = option(
        False,  # table
        "learning",
        "the online network chooses the action that the target network values (van Hasselt et al. 2016); off: the "
        "target network does, which saves a fifth of an update; better if it is a moving average (--tau below 1)",
    )
    advantage_learning: float = option(
        0.0,
        "learning",
        "share of the gap to the best action's value that the target of an action loses, so that values differ more "
        "(Bellemare et al. 2016); must be 0 with --game tetris",
        low=0.0,
        high=0.95,
    )
    final_advantage_learning: float | None = option(
        None,  # table
        "learning",
        "as --advantage-learning, while the learning rate is at most 0.3 of --learning-rate; none: always as "
        "--advantage-learning; no effect if that is 0",
        low=0.0,
        high=0.95,
    )
    actors_ahead: int = option(
        2_000,
        "learning",
        "environment steps that actors may run ahead of the replay ratio before they wait",
        low=1,
    )
    learner_ahead: int = option(
        0,
        "learning",
        "environment steps that the learner may run ahead of the replay ratio before it waits",
        low=0,
    )
    amp: bool = option(True, "learning", "mixed precision if it is faster on this device")

    epsilon: float = option(
        0.2,  # table
        "exploration",
        "exploration rate of the most exploratory lane; lane i of N uses epsilon^(1 + 7 i / (N - 1)) (Horgan et al. "
        "2018: 0.4). On Mario random actions are held for 1 to 8 steps: 0.4 makes a third of the steps random",
        low=0.0,
        high=1.0,
    )
    epsilon_steps: int = option(
        50_000,  # table
        "exploration",
        "environment steps over which epsilon decays from 1 to each lane's own value",
        low=1,
    )
    action_noise: float = option(
        0.0,
        "exploration",
        "probability that a random action is carried out in training, though the agent learns as if its own had been: "
        "for policies that survive random actions",
        low=0.0,
        high=0.99,
        games=("mario",),
    )

    buffer_size: int = option(
        100_000,  # table
        "replay",
        {
            "mario": "replay capacity in transitions; 3 KB each at 50x60",
            **dict.fromkeys(BOARD_GAMES, "replay capacity in transitions"),
        },
        low=100,
    )
    replay_device: str = option(
        "auto",
        "replay",
        "where the replay is kept: host (memory), device (the GPU that learns) or files (in the run's folder: it may "
        "exceed memory and is reopened on resume); auto: device if half of its free memory is enough, else host",
        choices=("auto", "host", "device", "files"),
    )
    prioritized_replay: bool = option(
        True, "replay", "sample by TD error (Schaul et al. 2016); helps on Mario, not on Tetris (see docs/recipe.md)"
    )
    alpha: float = option(
        0.6, "replay", "priority exponent; 0 samples uniformly (Schaul et al. 2016)", low=0.0, high=1.0
    )
    beta: float = option(0.4, "replay", "initial importance-sampling exponent (Schaul et al. 2016)", low=0.0, high=1.0)
    beta_annealing: float = option(1e-5, "replay", "added to beta at each update, up to 1", low=0.0, high=1.0)

    render: bool = option(False, "output", "show the rank-0 game from the start")
    eval_every: int = option(50_000, "output", "environment steps between evaluations; 0: never", low=0)
    eval_episodes: int = option(
        31,  # 0 to 30 no-ops give 31 distinct starts
        "output",
        "episodes per evaluation, rounded up to the same number for every stage; the best policy is kept",
        low=1,
        high=1000,
    )
    eval_noop_min: int = option(
        0,
        "output",
        "minimum number of no-op frames at the start of an evaluation's episodes",
        low=0,
        high=255,
        games=("mario",),
    )
    eval_noop_max: int | None = option(
        None,
        "output",
        "maximum number of no-op frames at the start of an evaluation's episodes; none: as --noop-max",
        low=0,
        high=255,
        games=("mario",),
    )
    eval_epsilon: float = option(
        0.0,
        "output",
        "fraction of random actions in evaluations; 0: greedy",
        low=0.0,
        high=1.0,
        games=("mario",),
    )
    eval_sticky_actions: float = option(
        0.0,
        "output",
        "probability of repeating the previous action in evaluations, whatever --sticky-actions is",
        low=0.0,
        high=0.99,
        games=("mario",),
    )
    save_every: int = option(50_000, "output", "environment steps between checkpoints", low=1)
    checkpoint_replay: bool = option(
        False,
        "output",
        "include the replay in checkpoints, so that a resumed run matches an uninterrupted one bit for bit",
    )
    restarts: int = option(
        3,
        "output",
        "times in a row that a run restarts from its newest checkpoint after the process that learns was lost",
        low=0,
        high=1000,
    )
    keep: int = option(3, "output", "checkpoints kept; older ones are removed", low=1, high=1000)
    run_dir: str = option("checkpoints", "output", "folder that holds the runs", metavar="DIR")

    def __post_init__(self) -> None:
        for spec in fields(self):
            check(spec, getattr(self, spec.name))
        check_together(self)

    @property
    def runner_info(self) -> RunnerInfo:
        return RUNNERS[self.runner]

    @property
    def processes(self) -> int:
        """Processes that play."""
        count = self.runner_info.count
        return 1 if count is None else int(getattr(self, count))

    @property
    def largest_batch(self) -> int:
        """Largest batch in transitions, which is one replay: members that learn have one each, actors share one."""
        return self.buffer_size // (1 if self.runner_info.learner else self.processes)

    @property
    def network_name(self) -> str:
        """The network, one of `engine.agents.networks.NETWORKS`; board games have one each."""
        if self.game == "tetris":
            return "afterstates" if self.afterstates else "columns"
        if self.game == "snake":
            return "paths" if self.paths else "grid"
        return self.network

    @property
    def replay_in_files(self) -> bool:
        return self.replay_device == "files"

    @property
    def on_ray(self) -> bool:
        """Whether actors run on a Ray cluster."""
        return self.ray != "none"

    @property
    def weight_pull_steps(self) -> int:
        """Environment steps between a member's checks for newer weights."""
        return self.sync_every if self.pull_every is None else self.pull_every

    @property
    def eval_conditions(self) -> Conditions:
        """The conditions of Mario's evaluations."""
        return Conditions(
            noop_min=self.eval_noop_min,
            noop_max=self.noop_max if self.eval_noop_max is None else self.eval_noop_max,
            epsilon=self.eval_epsilon,
            sticky_actions=self.eval_sticky_actions,
        )

    def to_toml(self) -> str:
        """`options` as TOML, one key per field."""
        return tomli_w.dumps(self.options())

    def options(self) -> dict[str, Any]:
        """The options that are set and apply to the game and runner, by field name. The unset final values are among
        them, because a game may set them by default."""
        values = {
            spec.name: getattr(self, spec.name) for spec in fields(self) if belongs(spec.name, self.game, self.runner)
        }
        if self.batch_size == AUTO:
            values["batch_size"] = "auto"
        for name in ("final_gamma", "final_advantage_learning"):
            if values[name] is None:
                values[name] = NONE
        return {name: value for name, value in values.items() if value is not None}


TUNABLE_BOUNDS: dict[str, tuple[float, float]] = {
    **{
        spec.name: (spec.metadata["low"], spec.metadata["high"])
        for spec in fields(RunConfig)
        if spec.name in ("learning_rate", "beta", "replay_ratio", "gamma")
    },
    "epsilon_scale": (0.0, 10.0),
}
"""Accepted range of each setting that can be changed during a run. `epsilon_scale` multiplies every lane's epsilon."""


OF_INITIAL_POLICY = ("observation", "frame_skip", "swim_strokes", "network")
"""Options of Mario that have the values of the `initial_policy`, if there is one, unless they are given."""


TASK = (
    "game",
    "stage",
    "rom",
    "reward",
    "board",
    "death_penalty",
    "step_penalty",
    "pieces",
    "next_piece",
    "max_pieces",
    "curriculum",
    "actions",
    "observation",
    "swim_strokes",
    "frame_skip",
)
"""Options that decide what is learned: observations, actions, rewards and ends. Transitions, scores and a learning rate
that was cut belong to one task."""


def belongs(name: str, game: str, runner: str) -> bool:
    """Whether an option applies to a game and runner."""
    return game in RunConfig.__dataclass_fields__[name].metadata["games"] and runner in runners_with(name)
