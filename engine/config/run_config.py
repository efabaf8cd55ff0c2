"""A run's options: one frozen dataclass that defines both the command line (`engine.config.command_line`) and the file.

Every field carries its help and its accepted values, so `--help`, validation and the stored `config.toml` can't drift
apart. Importing this does not import torch. Comments name the source of a default: "table" is docs/recipe.md on
World 1-1, "trial" a measured Double DQN run on it that those recipes started from (32 lanes, 2 CPU cores).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from engine.config.fields import AUTO, GAMES, RUNNERS, ConfigError, check, coerce, flag, must_be_one_of, option
from engine.config.joypad import why_invalid
from engine.config.stages import stages_of
from engine.errors import UserError
from engine.runtime.files import read_bounded

__all__ = [
    "ALIASES",
    "AUTO",
    "BOARD_GAMES",
    "GAMES",
    "REWARDS",
    "RUNNERS",
    "TUNABLE_BOUNDS",
    "ConfigError",
    "RunConfig",
    "belongs",
    "defaults",
    "flag",
    "load_toml",
    "make_config",
]  # fmt: skip

BOARD_GAMES = ("snake", "tetris")
REWARDS = {"mario": ("progress", "classic"), "snake": ("fruits",), "tetris": ("lines", "jumanji")}


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
        "single",
        "run",
        "single: one process; parallel: workers that share a model; ddp: one rank per device, gradients averaged; "
        "apex: actors and a learner",
        choices=RUNNERS,
    )
    num_processes: int = option(
        2,
        "run",
        "processes that play and learn (workers or ranks)",
        low=1,
        high=256,
        runners=("parallel", "ddp"),
    )
    num_actors: int = option(2, "run", "actor processes", low=1, high=1024, runners=("apex",))
    ray: str = option(
        "none",
        "run",
        "Ray cluster on which actors run: none, local (started for this run), auto (the one of this machine, or "
        "$RAY_ADDRESS) or HOST:PORT of its head",
        metavar="ADDRESS",
        runners=("apex",),
    )
    steps: int = option(2_000_000, "run", "total environment steps (rounded up to a multiple of the lane count)", low=1)
    episodes: int | None = option(None, "run", "also stop after this many episodes", low=1)
    seed: int = option(0, "run", "random seed", low=0, high=2**32 - 1)
    device: str = option("auto", "run", "auto, cpu, mps, cuda or cuda:N; auto prefers CUDA, then MPS, then CPU")
    parallel_envs: int = option(32, "run", "lanes (parallel games) per process", low=1, high=1024)  # trial
    async_envs: bool = option(True, "run", "learn while the lanes emulate", runners=("single", "parallel", "ddp"))

    reward: str = option(
        "progress",
        "environment",
        {
            "mario": "progress, or classic (as in gym-super-mario-bros 7.4)",
            "snake": "fruits",
            "tetris": "lines (1 + width x lines^2 per piece) or jumanji (0, 40, 100, 300 or 1200 for 0 to 4 lines)",
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
    pieces: str = option(
        "uniform",
        "environment",
        "uniform: every piece equally likely; bag: all seven pieces before any of them repeats",
        choices=("uniform", "bag"),
        games=("tetris",),
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
        "50x60: no status bar, plus a mark that shows whether A is held; 84x84: the whole screen",
        choices=("50x60", "84x84"),
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

    network: str = option(
        "small",
        "learning",
        "nature: Mnih et al. 2015; small: half the filters, 0.6 times the cost per update",
        choices=("nature", "small"),
        games=("mario",),
    )
    batch_size: int = option(
        128,  # table
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
    learning_rate: float = option(5e-4, "learning", "Adam step size", low=1e-8, high=1.0)  # table
    gamma: float = option(0.95, "learning", "discount factor per environment step", low=0.0, high=1.0)  # trial
    n_step: int = option(5, "learning", "steps in the n-step return", low=1, high=64)  # trial
    sync_every: int = option(
        1,
        "learning",
        "learner updates between target-network updates",
        low=1,
    )
    pull_every: int | None = option(
        None,
        "learning",
        "environment steps between a worker's or actor's checks for newer weights; none: as --sync-every",
        low=1,
        runners=("parallel", "apex"),
    )
    tau: float = option(
        0.002,  # table
        "learning",
        "target-network update rate; 1 is a hard copy, with --sync-every around 1000",
        low=1e-6,
        high=1.0,
    )
    actors_ahead: int = option(
        2_000,
        "learning",
        "environment steps that actors may run ahead of the replay ratio before they wait",
        low=1,
        runners=("apex",),
    )
    learner_ahead: int = option(
        0,
        "learning",
        "environment steps that the learner may run ahead of the replay ratio before it waits",
        low=0,
        runners=("apex",),
    )
    amp: bool = option(True, "learning", "mixed precision if it is faster on this device")

    epsilon: float = option(
        0.2,  # table
        "exploration",
        "exploration rate of the most exploratory lane; lane i of N uses epsilon^(1 + 7 i / (N - 1)) (Horgan et al. "
        "2018: 0.4)",
        low=0.0,
        high=1.0,
    )
    epsilon_steps: int = option(
        50_000,  # table
        "exploration",
        "environment steps over which epsilon decays from 1 to each lane's own value",
        low=1,
    )

    buffer_size: int = option(
        400_000,  # trial
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
        runners=("single", "parallel", "ddp"),
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
        "greedy episodes per evaluation, rounded up to the same number for every stage; the best policy is kept",
        low=1,
        high=1000,
    )
    save_every: int = option(50_000, "output", "environment steps between checkpoints", low=1)
    checkpoint_replay: bool = option(
        False,
        "output",
        "include the replay in checkpoints, so that a resumed run matches an uninterrupted one bit for bit",
        runners=("single",),
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
        _check_device(self.device)
        _check_ray(self.ray)
        if self.reward not in REWARDS[self.game]:
            raise ConfigError("reward", must_be_one_of(REWARDS[self.game], self.reward))
        if self.game in BOARD_GAMES:
            _check_board(self.game, self.board)
        if reason := why_invalid(self.actions):
            raise ConfigError("actions", reason)
        try:
            stages = stages_of(self.stage)
        except UserError as error:
            raise ConfigError("stage", str(error)) from None
        if self.curriculum and self.game == "mario" and len(stages) == 1:
            raise ConfigError("curriculum", f"needs several stages, such as --stage 1-1,1-2, got {self.stage}")
        lanes = self.processes * self.parallel_envs
        if self.buffer_size < lanes * (self.n_step + 8):
            raise ConfigError(
                "buffer_size",
                f"must be at least {lanes * (self.n_step + 8):,} for {lanes:,} lanes and n-step {self.n_step}, "
                f"got {self.buffer_size:,}",
            )
        if self.burnin > self.buffer_size:
            raise ConfigError("burnin", f"must be at most --buffer-size ({self.buffer_size:,}), got {self.burnin:,}")
        if self.batch_size > self.largest_batch:
            share = "" if self.largest_batch == self.buffer_size else f" / {self.processes} processes"
            raise ConfigError(
                "batch_size",
                f"must be auto, or at most {self.largest_batch:,} (--buffer-size {self.buffer_size:,}{share}), "
                f"got {self.batch_size:,}",
            )
        if self.batch_size != AUTO and self.accumulate > self.batch_size:
            raise ConfigError(
                "accumulate", f"must be at most --batch-size ({self.batch_size:,}), got {self.accumulate:,}"
            )
        self._check_target()

    def _check_target(self) -> None:
        """Refuse a target network that hardly moves, or that always equals the online one: an option was forgotten."""
        if self.tau == 1 and self.sync_every == 1:
            raise ConfigError(
                "tau", "must be below 1 with --sync-every 1: a copy after every update leaves no target network"
            )
        if self.tau < 1 and self.sync_every > _SLOWEST_TARGET * self.tau:
            raise ConfigError(
                "tau",
                f"must be at least {min(self.sync_every / _SLOWEST_TARGET, 1):g} with --sync-every "
                f"{self.sync_every:,}, got {self.tau:g}: the target network would hardly move",
            )

    @property
    def processes(self) -> int:
        """Processes that play."""
        return {"single": 1, "apex": self.num_actors}.get(self.runner, self.num_processes)

    @property
    def largest_batch(self) -> int:
        """Largest batch in transitions, which is one replay: workers and ranks have one each, actors share one."""
        return self.buffer_size // (1 if self.runner == "apex" else self.processes)

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

    def to_toml(self) -> str:
        """The options as TOML, one key per field, without those that are unset (None) or of another game."""
        return tomli_w.dumps(self.options())

    def options(self) -> dict[str, Any]:
        """The options that are set and apply to the game and runner, by field name."""
        values = {
            spec.name: getattr(self, spec.name) for spec in fields(self) if belongs(spec.name, self.game, self.runner)
        }
        if self.batch_size == AUTO:
            values["batch_size"] = "auto"
        return {name: value for name, value in values.items() if value is not None}


ALIASES: dict[str, tuple[str, Any]] = {"use_mmap_buffer": ("replay_device", "files")}
"""Earlier names of switches, which files and command lines may still use, and the option that each one sets."""
TUNABLE_BOUNDS: dict[str, tuple[float, float]] = {
    **{
        spec.name: (spec.metadata["low"], spec.metadata["high"])
        for spec in fields(RunConfig)
        if spec.name in ("learning_rate", "beta", "replay_ratio")
    },
    "epsilon_scale": (0.0, 10.0),
}
"""Accepted range of each setting that can be changed during a run. `epsilon_scale` multiplies every lane's epsilon."""
_MAX_FILE_BYTES = 2**20
"""Largest options file that is read."""
_SLOWEST_TARGET = 10_000
"""Longest time constant of the target network, in updates: the copy interval of Mnih et al. 2015."""
BOARD_LIMITS = {"snake": ((3, 30), (3, 30)), "tetris": ((4, 12), (4, 26))}
"""Smallest and largest width, then height, in cells."""
_BOARD_DEFAULTS: dict[str, Any] = {
    "parallel_envs": 64,
    "gamma": 0.97,
    "n_step": 3,
    "replay_ratio": 4.0,  # with `sync_every`: twice the fruits of 8 and 1,000 after 200,000 steps
    "batch_size": 256,
    "sync_every": 250,
    "tau": 1.0,
    "epsilon": 0.4,
    "epsilon_steps": 100_000,
    "burnin": 5_000,
    "eval_every": 100_000,
    "eval_episodes": 100,
}
GAME_DEFAULTS: dict[str, dict[str, Any]] = {
    "snake": {"board": "12x12", "reward": "fruits", **_BOARD_DEFAULTS},
    "tetris": {"board": "7x14", "reward": "lines", **_BOARD_DEFAULTS},
}
"""Where a game's defaults differ from Mario's."""


def defaults(game: str, runner: str) -> dict[str, Any]:
    """Defaults of a game and runner that differ from those of `RunConfig`.

    Two processes together play as many lanes, and learn from as many transitions, as one process does.
    """
    values = dict(GAME_DEFAULTS.get(game, {}))
    if runner != "single":
        values["parallel_envs"] = values.get("parallel_envs", RunConfig.parallel_envs) // 2
    if runner == "ddp":
        values["batch_size"] = values.get("batch_size", RunConfig.batch_size) // 2
    return values


def carried_over(kept: Mapping[str, Any], game: str, runner: str) -> dict[str, Any]:
    """Options of an earlier run that still hold under `game` and `runner`.

    With another runner the number of lanes per process is not kept: it depends on how many processes share them.
    """
    if runner == kept["runner"]:
        return dict(kept)
    return {name: kept[name] for name in kept if name != "parallel_envs" and belongs(name, game, runner)}


def belongs(name: str, game: str, runner: str) -> bool:
    """Whether an option applies to a game and runner."""
    meta = RunConfig.__dataclass_fields__[name].metadata
    return game in meta["games"] and runner in meta["runners"]


def load_toml(path: Path) -> dict[str, Any]:
    """Options from a TOML file, not yet validated.

    Raises `UserError` naming the file, and the accepted keys if one is unknown.
    """
    try:
        values = tomllib.loads(read_bounded(path, _MAX_FILE_BYTES, links=True).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise UserError(f"{path}: not valid TOML: {str(error).splitlines()[0]}") from None
    return _known(values, str(path))


def make_config(values: Mapping[str, Any], source: str | None = None) -> RunConfig:
    """A validated `RunConfig` from field values; missing ones take the defaults of the game and runner.

    Raises `ConfigError`, or `UserError` that starts with `source` (a file) if it is given.
    """
    game, runner = values.get("game", RunConfig.game), values.get("runner", RunConfig.runner)
    specs = RunConfig.__dataclass_fields__
    known = {k: coerce(specs[k], v) for k, v in _known(values, source or "options").items()}
    try:
        check(specs["game"], game)
        check(specs["runner"], runner)
        for spec in specs.values():
            for kind, chosen, all_of_them in (("game", game, GAMES), ("runner", runner, RUNNERS)):
                accepted = spec.metadata[f"{kind}s"]
                if spec.name in known and chosen in all_of_them and chosen not in accepted:
                    flags = " or ".join(f"--{kind} {each}" for each in accepted)
                    raise ConfigError(spec.name, f"is not an option of {chosen}; it needs {flags}")
        return RunConfig(**{**defaults(game, runner), **known})
    except ConfigError as error:
        if source is None:
            raise
        raise UserError(f"{source}: {error.field} {error.reason}") from None


def _known(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    values = _without_aliases(values)
    names = [spec.name for spec in fields(RunConfig)]
    for key in values:
        if key not in names:
            raise UserError(f"{source}: unknown key {key!r}; must be one of {', '.join(names)}")
    return dict(values)


def _without_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with earlier names of options replaced; what is given by its own name wins."""
    found = dict(values)
    for name, (option_name, value) in ALIASES.items():
        if found.pop(name, False):
            found.setdefault(option_name, value)
    return found


def _check_board(game: str, board: str | None) -> None:
    sides = (board or "").split("x")
    limits = BOARD_LIMITS[game]
    if len(sides) != 2 or not all(
        side.isdecimal() and low <= int(side) <= high for side, (low, high) in zip(sides, limits, strict=True)
    ):
        width, height = (f"{low} to {high}" for low, high in limits)
        raise ConfigError("board", f"must be WIDTHxHEIGHT, width {width} and height {height}, got {board!r}")


def _check_ray(address: str) -> None:
    if address in ("none", "local", "auto"):
        return
    if address.startswith("ray://"):
        raise ConfigError("ray", "can't use Ray's client (ray://), which has no place for a learner; give HOST:PORT")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16 and not set(host) & set("/@ ")):
        raise ConfigError("ray", must_be_one_of(("none", "local", "auto", "HOST:PORT"), address))


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if device in ("auto", "cpu", "mps", "cuda") or (name == "cuda" and index.isdecimal()):
        return
    raise ConfigError("device", must_be_one_of(("auto", "cpu", "mps", "cuda", "cuda:N"), device))
