"""A run's options: those that all games have, with those of its game in `game_options`, and what must hold among them.

Together they define the command line (`engine.config.command_line`) and the file, where all options are on one level.
Every field carries its help and its accepted values, so `--help`, validation and the stored `config.toml` can't drift
apart. Comments name the source of a default: "table" is one of bench/experiments on World 1-1, "trial" a measured
Double DQN run on it that those experiments started from (32 lanes, 2 CPU cores). Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import Any, Self

import tomli_w

from engine.config.capabilities import (
    HasCurriculum,
    HasEvaluationConditions,
    HasPlainNetworks,
    KeepsGamma,
    VariesOutcome,
    task_label,
)
from engine.config.fields import AUTO, GROUPS, NONE, ConfigError, FieldSpec, check, must_be_one_of, option
from engine.config.game import GAMES, Game, GameOptions, Spec, game_of, games, options_with, own_options
from engine.config.runners import RUNNERS, RunnerInfo, runners_with
from engine.protocol.alerts import alert_limits
from engine.protocol.outcome import Conditions, Outcome


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Units: an *environment step* is one agent decision in one lane (4 emulated frames); an *update* is one optimiser
    step; a *lane* is one game.
    """

    game: str = option(
        "mario", "run", "game to train on; it decides which other options there are, and their defaults", choices=GAMES
    )
    runner: str = option(
        next(iter(RUNNERS)),
        "run",
        "; ".join(f"{info.name}: {info.help}" for info in RUNNERS.values()),
        choices=tuple(RUNNERS),
    )
    num_processes: int = option(2, "run", "processes that play and learn (workers or ranks)", low=1, high=256)
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
    optimizer: str = option(
        "adam", "learning", "adam; rmsprop: centred, as in Young and Tian 2019", choices=("adam", "rmsprop")
    )
    learning_rate: float = option(7e-4, "learning", "step size of the optimiser", low=1e-8, high=1.0)  # table
    learning_rate_schedule: str = option(
        "plateau",  # table
        "learning",
        "constant; changed after evaluations: plateau, cut once, to 0.3 of its value, after one that clears 0.8 of its "
        "episodes, or solves its environment, or eight without a better score; decay, divided by 1 + steps / 1,000,000",
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
        1, "learning", "learner updates between target-network updates; above 1 --tau is 1 unless it is given", low=1
    )
    pull_every: int | None = option(
        None,
        "learning",
        "environment steps, of all lanes together, between a worker's or actor's checks for newer weights; none: as "
        "--sync-every",
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
    munchausen: float = option(
        0.0,
        "learning",
        "share alpha of Munchausen returns: the log of the policy's probability of an action that is added to its "
        "reward (Vieillard et al. 2020: 0.9); 0: none; must be 0 if actions may be illegal",
        low=0.0,
        high=0.99,
    )
    munchausen_temperature: float = option(
        0.03,  # Vieillard et al. 2020, table 1
        "learning",
        "temperature tau of the policy of --munchausen, softmax(Q / tau): in the unit of the rewards that are learned",
        low=1e-4,
        high=100.0,
    )
    munchausen_clip: float = option(
        1.0,  # Vieillard et al. 2020, table 1: l0 = -1
        "learning",
        "largest amount that --munchausen takes off a reward, before it is multiplied by alpha",
        low=0.0,
        high=1000.0,
    )
    quantiles: int | None = option(
        None,
        "learning",
        "quantiles of the return that the network learns of each action (QR-DQN, Dabney et al. 2018: 200; 8 to 32 cost "
        "less); none: only the mean, the Q-value",
        low=2,
        high=512,
    )
    noisy: bool = option(
        False,
        "learning",
        "noise in the weights of the network's last layers, whose size is learned, so that less of exploration is "
        "random (NoisyNet, Fortunato et al. 2018): then --epsilon may be low; off in evaluations",
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
        2_000, "learning", "environment steps that actors may run ahead of the replay ratio before they wait", low=1
    )
    learner_ahead: int = option(
        0, "learning", "environment steps that the learner may run ahead of the replay ratio before it waits", low=0
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
    beta_annealing: float = option(
        1e-5, "replay", "added to beta at each update, up to 1 (1e-5: after 60,000 updates)", low=0.0, high=1.0
    )

    render: bool = option(False, "output", "show the rank-0 game from the start")
    eval_every: int = option(50_000, "output", "environment steps between evaluations; 0: never", low=0)
    eval_episodes: int = option(
        31,  # 0 to 30 no-ops give 31 distinct starts
        "output",
        "episodes per evaluation, rounded up to the same number for every stage; the best policy is kept",
        low=1,
        high=1000,
    )
    final_episodes: int = option(
        100,
        "output",
        "episodes over which a finished run judges its best policy once more, from starts and seeds that neither "
        "training nor its evaluations used; at most a tenth of the run's time, so perhaps fewer; 0, and with "
        "--eval-every 0 unless it is given: none",
        low=0,
        high=10_000,
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
    alerts: str = option(
        "usual",
        "output",
        "limits of alerts, such as stalled=1e6,slow=none: loss, fell, above, stalled, slow, lost, memory, disk, "
        "failing; usual; none: no alerts",
        metavar="LIMITS",
    )
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


SLOWEST_TARGET = 10_000
"""Longest time constant of the target network, in updates: the copy interval of Mnih et al. 2015."""
SPARE_STEPS = 8
"""Steps that the replay holds of each lane besides an n-step window."""


def check_together(config: RunConfig) -> None:
    """Raise `ConfigError` for the first option that can't hold together with the others."""
    _check_device(config.device)
    check_ray(config.ray)
    try:
        alert_limits(config.alerts)
    except ValueError as error:
        raise ConfigError("alerts", str(error)) from None
    config.game_info.check(config)
    if config.advantage_learning and config.game_info.spec(config).masked:
        raise ConfigError(
            "advantage_learning",
            f"must be 0 if actions can be illegal, because their Q-values are not learned, got "
            f"{config.advantage_learning:g}",
        )
    _check_munchausen(config)
    check_head(config.game_info, config.network_name, {name: config.value(name) for name in HEAD_OPTIONS})
    if config.final_gamma is not None and config.keeps_gamma:
        raise ConfigError(
            "final_gamma", f"must be none with --curriculum, whose rewards contain --gamma, got {config.final_gamma:g}"
        )
    lanes = config.processes * config.parallel_envs
    least = lanes * (config.n_step + SPARE_STEPS)
    if config.buffer_size < least:
        raise ConfigError(
            "buffer_size",
            f"must be at least {least:,} for {lanes:,} lanes and n-step {config.n_step}, got {config.buffer_size:,}",
        )
    if config.burnin > config.buffer_size:
        raise ConfigError("burnin", f"must be at most --buffer-size ({config.buffer_size:,}), got {config.burnin:,}")
    if config.batch_size > config.largest_batch:
        divided = "" if config.largest_batch == config.buffer_size else f" / {config.processes} processes"
        raise ConfigError(
            "batch_size",
            f"must be auto, or at most {config.largest_batch:,} (--buffer-size {config.buffer_size:,}{divided}), "
            f"got {config.batch_size:,}",
        )
    if config.batch_size != AUTO and config.accumulate > config.batch_size:
        raise ConfigError(
            "accumulate", f"must be at most --batch-size ({config.batch_size:,}), got {config.accumulate:,}"
        )
    _check_target(config)


def _check_munchausen(config: RunConfig) -> None:
    if not config.munchausen:
        return
    got = f"got {config.munchausen:g}"
    if config.game_info.spec(config).masked:
        reason = "if actions can be illegal, because their Q-values are not learned"
        raise ConfigError("munchausen", f"must be 0 {reason}, {got}")
    if config.double_q:
        raise ConfigError("munchausen", f"must be 0 with --double-q: it values states without a best action, {got}")
    if config.advantage_learning:
        raise ConfigError("munchausen", f"must be 0 with --advantage-learning, which widens the same gaps, {got}")


HEAD_OPTIONS = ("quantiles", "noisy")
"""Options that decide, with the network's name, which weights fit a run."""


def check_head(game: Game, network: str, values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if a game's network can't have the `HEAD_OPTIONS` that are set: only networks of the program
    with value and advantage streams can."""
    given = next((name for name in HEAD_OPTIONS if values[name]), None)
    own = game.own_networks.get(network, "engine.")
    plain = game.plain_networks if isinstance(game, HasPlainNetworks) else ()
    if given is not None and (":" in network or not own.startswith("engine.") or network in plain):
        off = NONE if COMMON[given].default is None else "off"
        raise ConfigError(given, f"must be {off} with the network {network}, which has no such streams")


def _check_target(config: RunConfig) -> None:
    """Refuse a target network that hardly moves, or that always equals the online one: an option was forgotten."""
    if config.tau == 1 and config.sync_every == 1:
        raise ConfigError(
            "tau", "must be below 1 with --sync-every 1: a copy after every update leaves no target network"
        )
    if config.tau < 1 and config.sync_every > SLOWEST_TARGET * config.tau:
        raise ConfigError(
            "tau",
            f"must be at least {min(config.sync_every / SLOWEST_TARGET, 1):g} with --sync-every "
            f"{config.sync_every:,}, got {config.tau:g}: the target network would hardly move",
        )


def check_ray(address: str, words: tuple[str, ...] = ("none", "local", "auto")) -> None:
    """Raise `ConfigError` for what is neither one of the words nor the address of a cluster."""
    if address in words:
        return
    if address.startswith("ray://"):
        raise ConfigError("ray", "can't use Ray's client (ray://), which has no place for a learner; give HOST:PORT")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16 and not set(host) & set("/@ ")):
        raise ConfigError("ray", must_be_one_of((*words, "HOST:PORT"), address))


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if device in ("auto", "cpu", "mps", "cuda") or (name == "cuda" and index.isdecimal()):
        return
    raise ConfigError("device", must_be_one_of(("auto", "cpu", "mps", "cuda", "cuda:N"), device))


@dataclass(frozen=True, kw_only=True)
class RunConfig(CommonOptions):
    """Options of a training run. Raises `ConfigError` on construction if a value is invalid."""

    game_options: GameOptions = field(default_factory=GameOptions)
    """Of the class that the game's descriptor names. Without them, the game's defaults."""

    def __post_init__(self) -> None:
        check(COMMON["game"], self.game)
        kind = self.game_info.options
        if not isinstance(self.game_options, kind):
            object.__setattr__(self, "game_options", kind())
        for name, spec in specs_of(self.game).items():
            check(spec, self.value(name))
        check_together(self)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options by name, those of the game among them. Raises `ConfigError`, and `TypeError` for an unknown name."""
        game = values.get("game", cls.game)
        check(COMMON["game"], game)
        common, own = _divided(values)
        return cls(**common, game_options=game_of(game).options(**own))

    def value(self, name: str) -> Any:
        """An option of all games or of the run's own, by its name."""
        return getattr(self if name in COMMON else self.game_options, name)

    def changed(self, **values: Any) -> Self:
        """These options with some of them replaced, by name. Raises `ConfigError`."""
        common, own = _divided(values)
        return replace(self, **common, game_options=replace(self.game_options, **own))

    def __reduce__(self) -> Any:
        """Options travel by name: a class of options can't, where its game is that of an installed package."""
        return partial(RunConfig.of, **self.values()), ()

    def values(self) -> dict[str, Any]:
        """All options by name, whether they are set and apply or not."""
        return {name: self.value(name) for name in specs_of(self.game)}

    @property
    def game_info(self) -> Game:
        return game_of(self.game)

    @property
    def outcome(self) -> Outcome:
        """Return what the episodes of its game yield."""
        game = self.game_info
        return game.outcome_of(self) if isinstance(game, VariesOutcome) else game.outcome

    @property
    def action_names(self) -> list[str]:
        """In the order of the Q-values."""
        return self.game_info.action_names(self)

    @property
    def task_options(self) -> tuple[str, ...]:
        """Options that decide what is learned. Transitions, scores and a learning rate that was cut belong to one
        task."""
        return ("game", *options_with("task", self.game))

    @property
    def replay_options(self) -> tuple[str, ...]:
        """Options that decide what a replay holds: those of the task, and gamma if rewards contain it."""
        return (*self.task_options, "gamma") if self.keeps_gamma else self.task_options

    @property
    def task(self) -> str:
        """Return what is played: the stages, or the size of the board."""
        return str(self.value(self.game_info.tasks))

    @property
    def task_label(self) -> str:
        """The task in short, for people and for names of runs."""
        return task_label(self.game_info, self.task)

    @property
    def has_curriculum(self) -> bool:
        game = self.game_info
        return isinstance(game, HasCurriculum) and game.make_curriculum(self, 0) is not None

    @property
    def keeps_gamma(self) -> bool:
        """Return whether rewards contain the discount factor, which then never changes."""
        game = self.game_info
        return isinstance(game, KeepsGamma) and game.keeps_gamma(self)

    @property
    def spec(self) -> Spec:
        """Return what the game's lanes have for a `Spec`, found without making them."""
        return self.game_info.spec(self)

    @property
    def runner_info(self) -> RunnerInfo:
        return RUNNERS[self.runner]

    @property
    def processes(self) -> int:
        """Processes that play."""
        count = self.runner_info.count
        return 1 if count is None else int(getattr(self, count))

    @property
    def learners(self) -> int:
        """Processes that learn."""
        return 1 if self.runner_info.learner else self.processes

    @property
    def largest_batch(self) -> int:
        """Largest batch in transitions, which is one replay: members that learn have one each, actors share one."""
        return self.buffer_size // self.learners

    @property
    def network_name(self) -> str:
        """The network, one of those that fit the game."""
        return self.game_info.network(self)

    @property
    def replay_in_files(self) -> bool:
        return self.replay_device == "files"

    @property
    def weight_pull_steps(self) -> int:
        """Environment steps between a member's checks for newer weights."""
        return self.sync_every if self.pull_every is None else self.pull_every

    @property
    def eval_conditions(self) -> Conditions:
        """The conditions of the run's evaluations."""
        game = self.game_info
        return game.eval_conditions(self) if isinstance(game, HasEvaluationConditions) else Conditions(noop_max=0)

    def to_toml(self) -> str:
        """`options` as TOML, one key per field."""
        return tomli_w.dumps(self.options())

    def options(self) -> dict[str, Any]:
        """The options that are set and apply to the game and runner, by field name. The unset final values are among
        them, because a game may set them by default."""
        values = {name: self.value(name) for name in specs_of(self.game) if belongs(name, self.game, self.runner)}
        if self.batch_size == AUTO:
            values["batch_size"] = "auto"
        for name in ("final_gamma", "final_advantage_learning"):
            if values[name] is None:
                values[name] = NONE
        return {name: value for name, value in values.items() if value is not None}


def _divided(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of options that all games have, and those of the game's own."""
    common = {name: value for name, value in values.items() if name in COMMON}
    return common, {name: value for name, value in values.items() if name not in COMMON}


@cache
def specs_of(game: str) -> Mapping[str, FieldSpec]:
    """The options of a game by name, in the order in which people see them: in each group the game's own follow the
    first of those that all games have, such as `game`."""
    return dict(_ordered(own_options(game)))


@cache
def options_of_all() -> Mapping[str, FieldSpec]:
    """The options of all games by name, without those that games find out. One that several games have is described as
    in the first of them."""
    return {name: spec for name, spec in stored_options().items() if not spec.metadata["hidden"]}


@cache
def stored_options() -> Mapping[str, FieldSpec]:
    """As `options_of_all`, with those that games find out."""
    in_order: dict[str, FieldSpec] = {}
    for game in sorted(games(), key=lambda name: game_of(name).options.choose_game):
        in_order = {**own_options(game), **in_order}
    first = {name: spec for game in reversed(games()) for name, spec in own_options(game).items()}
    return dict(_ordered({name: first[name] for name in in_order}))


def _ordered(own: Mapping[str, FieldSpec]) -> Iterator[tuple[str, FieldSpec]]:
    for group in dict.fromkeys((*GROUPS, *(str(spec.metadata["group"]) for spec in own.values()))):
        common = [(name, spec) for name, spec in COMMON.items() if spec.metadata["group"] == group]
        yield from common[:1]
        yield from ((name, spec) for name, spec in own.items() if spec.metadata["group"] == group)
        yield from common[1:]


def belongs(name: str, game: str, runner: str) -> bool:
    """Return whether an option applies to a game and runner."""
    return (name in COMMON or name in own_options(game)) and runner in runners_with(name)
