"""The options that all games have.

Every field carries its help and its accepted values, so `--help`, validation and the stored `config.toml` can't drift
apart. Comments name the source of a default: "table" is one of bench/experiments on World 1-1, "trial" a measured
Double DQN run on it that those experiments started from (32 lanes, 2 CPU cores).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from engine.config.fields import NONE, FieldSpec, option
from engine.config.games import GAMES
from engine.config.runners import RUNNERS


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Units: an *environment step* is one agent decision in one lane (4 emulated frames); an *update* is one optimiser
    step; a *lane* is one game.
    """

    game: str = option(
        "mario",
        "run",
        "game to train on; it decides which other options there are, and their defaults",
        choices=GAMES,
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
    device: str = option(
        "auto",
        "run",
        "auto, cpu, mps, cuda or cuda:N; auto prefers CUDA, then MPS, then CPU",
        usual=("auto", "cpu", "cuda", "mps"),
    )
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

    initial_policy: str | None = option(
        None,
        "learning",
        "begin with the weights of this policy: a run, a checkpoint, a policy file or a policy of the package, of "
        "the same network, with the same actions or some of them; --epsilon-steps 1 lets it play from the start. Its "
        "network, and on Mario its observation, frame skip and strokes, hold unless others are given",
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
        "(Bellemare et al. 2016); must be 0 if actions may be illegal",
        low=0.0,
        high=0.95,
    )
    final_advantage_learning: float | None = option(
        None,  # table
        "learning",
        "what --advantage-learning changes to, within some thousand updates, while the learning rate is at most 0.3 of "
        "--learning-rate; none: it stays; no effect if it is 0",
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
        "exploration rate of the most exploratory lane, or of the only one; lane i of N uses epsilon^(1 + 7 i / "
        "(N - 1)) (Horgan et al. 2018: 0.4). On Mario random actions are held for 1 to 8 steps: 0.4 makes a third of "
        "the steps random",
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
    )

    buffer_size: int = option(100_000, "replay", "replay capacity in transitions", low=100)  # table
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
    save_every: int | None = option(
        None, "output", "environment steps between checkpoints; none: 50,000, but at least 30 seconds", low=1
    )
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
    sinks: str = option(
        NONE,
        "output",
        "where metrics go besides TensorBoard, separated by commas: json-lines (metrics.jsonl in the run's folder), "
        "mlflow, trackio, wandb (extras of those names), mlflow:policy and wandb:policy (with the best policy) and the "
        "sinks of installed packages; none: nowhere else",
        metavar="NAMES",
    )
    run_dir: str = option("checkpoints", "output", "folder that holds the runs", metavar="DIR")


COMMON: Mapping[str, FieldSpec] = {spec.name: spec for spec in fields(CommonOptions)}
"""The options by name."""
TUNABLE_BOUNDS: dict[str, tuple[float, float]] = {
    **{
        name: (COMMON[name].metadata["low"], COMMON[name].metadata["high"])
        for name in ("learning_rate", "beta", "replay_ratio", "gamma")
    },
    "epsilon_scale": (0.0, 10.0),
}
"""Accepted range of each setting that can be changed during a run. `epsilon_scale` multiplies every lane's epsilon."""
