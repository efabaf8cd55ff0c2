"""A run's options: one frozen dataclass that is also the command line (`engine.config.command_line`) and the TOML file.

Every field carries its help, its accepted values and where its default comes from, so `--help`, validation and the
stored `config.toml` can't drift apart. Imports without torch. Of sources, "table" is the README's of recipes on World
1-1, and "trial" a measured run of Double DQN there that those recipes started from (32 lanes, 2 CPU cores).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from engine.config.fields import AUTO, GAMES, RUNNERS, ConfigError, check, coerce, flag, option
from engine.config.joypad import action_buttons
from engine.config.stages import stages_of
from engine.errors import UserError
from engine.runtime.files import read_bounded

__all__ = [
    "AUTO", "BOARD_GAMES", "GAMES", "REWARDS", "RUNNERS", "ConfigError", "RunConfig", "belongs", "defaults",
    "flag", "load_toml", "make_config",
]  # fmt: skip

BOARD_GAMES = ("snake", "tetris")
REWARDS = {"mario": ("progress", "classic"), "snake": ("fruits",), "tetris": ("lines", "jumanji")}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Options of a training run. Raises `ConfigError` on construction if a value is not accepted.

    Units: an *environment step* is one agent decision in one lane (4 emulated frames); an *update* is one optimiser
    step; a *lane* is one game.
    """

    game: str = option(
        "mario",
        "run",
        "what to play; the help is for that game and runner: --game snake --runner apex --help",
        choices=GAMES,
    )
    stage: str = option(
        "1-1",
        "run",
        "1-1 to 8-4; several (1-1,1-2): each episode any of them; random: of all; game: all of it with three lives",
        games=("mario",),
    )
    emulator: str = option(
        "native", "run", "the console behind the game", choices=("native", "nes-py"), games=("mario",)
    )
    rom: str | None = option(
        None, "run", "cartridge (default: the one in gym-super-mario-bros)", metavar="FILE", games=("mario",)
    )
    runner: str = option(
        "single",
        "run",
        "single: one process; parallel: workers on a shared model; ddp: a rank per device, gradients averaged; apex: "
        "actors and a learner",
        choices=RUNNERS,
    )
    num_processes: int = option(
        2,
        "run",
        "processes that play and learn: workers, or ranks",
        low=1,
        high=256,
        runners=("parallel", "ddp"),
    )
    num_actors: int = option(2, "run", "processes that play", low=1, high=1024, runners=("apex",))
    steps: int = option(
        2_000_000, "run", "environment steps; stops at the first whole batch of lanes at or after N", low=1
    )
    episodes: int | None = option(None, "run", "stop after this many episodes too", low=1)
    seed: int = option(0, "run", "seed of every random number", low=0, high=2**32 - 1)
    device: str = option("auto", "run", "auto, cpu, mps, cuda or cuda:N; auto takes CUDA, then MPS, then CPU")
    parallel_envs: int = option(
        32, "run", "lanes: games that each process plays side by side (trial)", low=1, high=1024
    )
    async_envs: bool = option(True, "run", "learn while the lanes emulate", runners=("single", "parallel", "ddp"))

    reward: str = option(
        "progress",
        "environment",
        "Mario: progress, or classic: gym-super-mario-bros 7.4's; Snake: fruits; Tetris: lines: 1 + width x lines^2 "
        "a piece, or jumanji: 0, 40, 100, 300, 1200",
        metavar="NAME",
    )
    board: str | None = option(
        None,
        "environment",
        "width x height in cells",
        metavar="WxH",
        games=BOARD_GAMES,
    )
    death_penalty: float = option(
        0.0, "environment", "what Snake's death takes from the reward", low=0.0, high=100.0, games=("snake",)
    )
    pieces: str = option(
        "uniform",
        "environment",
        "Tetris: every piece with the same probability, or bag: all seven before one comes again",
        choices=("uniform", "bag"),
        games=("tetris",),
    )
    curriculum: bool = option(
        False,
        "environment",
        "Mario: the stages of --stage join one after the other; Tetris: height, holes and bumpiness of the board count "
        "from phase to phase more; evaluations are the same with and without",
        games=("mario", "tetris"),
    )
    curriculum_rate: float = option(
        0.5,
        "environment",
        "the next stage joins when this share of episodes at the newest one reached the flag",
        low=0.01,
        high=1.0,
        games=("mario",),
    )
    curriculum_episodes: int = option(
        50,
        "environment",
        "of that many last episodes, in the quarter of the lanes that explores least",
        low=1,
        high=10_000,
        games=("mario",),
    )
    curriculum_steps: int = option(
        100_000,
        "environment",
        "environment steps of each phase; in its second half the next is blended in",
        low=1,
        games=("tetris",),
    )
    actions: str = option(
        "right-only",
        "environment",
        "right-only, simple, complex, or a list: noop,right,right+A",
        games=("mario",),
    )
    observation: str = option(
        "50x60",
        "environment",
        "50x60: without the status bar, and a mark that tells whether A is held; 84x84: the whole screen",
        choices=("50x60", "84x84"),
        games=("mario",),
    )
    frame_skip: int = option(
        4, "environment", "frames that an action is held (Mnih et al. 2015)", low=1, high=60, games=("mario",)
    )
    sticky_actions: float = option(
        0.0,
        "environment",
        "probability to repeat the last action (Machado et al. 2018: 0.25)",
        low=0.0,
        high=0.99,
        games=("mario",),
    )
    noop_max: int = option(
        30,
        "environment",
        "random no-op frames at an episode's start, 0 to N (Mnih et al. 2015)",
        low=0,
        high=255,
        games=("mario",),
    )

    network: str = option(
        "small",
        "learning",
        "nature: Mnih et al. 2015; small: half its filters, updates cost 0.6 of it",
        choices=("nature", "small"),
        games=("mario",),
    )
    batch_size: int = option(
        128,
        "learning",
        "transitions per update, per rank under ddp: a number (table), or auto for the largest that pays here",
        low=0,
        high=65_536,
    )
    accumulate: int = option(
        1, "learning", "parts of a batch computed one after the other: the same update in less memory", low=1, high=4096
    )
    replay_ratio: float = option(
        4.0, "learning", "learned samples for each environment step (table)", low=0.01, high=1024
    )
    burnin: int = option(10_000, "learning", "environment steps before the first update (table)", low=1)
    learning_rate: float = option(5e-4, "learning", "step size of Adam (table)", low=1e-8, high=1.0)
    gamma: float = option(0.95, "learning", "discount of one environment step (trial)", low=0.0, high=1.0)
    n_step: int = option(5, "learning", "steps in the n-step return (trial)", low=1, high=64)
    sync_every: int = option(
        1,
        "learning",
        "updates between two moves of the target network; also environment steps of a worker or actor between "
        "two looks for new weights",
        low=1,
    )
    tau: float = option(
        0.002,
        "learning",
        "how far it moves (table); 1 copies the online network, with --sync-every 1000 or so",
        low=1e-6,
        high=1.0,
    )
    actors_ahead: int = option(
        2_000,
        "learning",
        "environment steps that actors may be ahead of the replay ratio before they wait",
        low=1,
        runners=("apex",),
    )
    learner_ahead: int = option(
        0,
        "learning",
        "environment steps that the learner may be ahead of the replay ratio before it waits",
        low=0,
        runners=("apex",),
    )
    amp: bool = option(True, "learning", "mixed precision where the device is faster with it")

    epsilon: float = option(
        0.2,
        "exploration",
        "of the boldest lane; lane i of N keeps epsilon^(1 + 7 i / (N - 1)) (table; Horgan et al. 2018: 0.4)",
        low=0.0,
        high=1.0,
    )
    epsilon_steps: int = option(
        50_000,
        "exploration",
        "environment steps over which epsilon falls from 1 to each lane's own (table)",
        low=1,
    )

    buffer_size: int = option(400_000, "replay", "transitions kept; 3 KB each at 50x60 (trial)", low=100)
    use_mmap_buffer: bool = option(
        False,
        "replay",
        "keep the replay in a file of the run's folder: larger than memory, reopened on resume",
        runners=("single", "parallel", "ddp"),
    )
    replay_device: str = option(
        "auto",
        "replay",
        "where it is kept: host, or device: the GPU that learns; auto: there if half of the free memory is enough",
        choices=("auto", "host", "device"),
        runners=("single", "parallel", "ddp"),
    )
    prioritized_replay: bool = option(
        True, "replay", "sample by TD error (Schaul et al. 2016); pays on Mario, not on Tetris (README)"
    )
    alpha: float = option(
        0.6, "replay", "how much priorities count, 0 is uniform (Schaul et al. 2016)", low=0.0, high=1.0
    )
    beta: float = option(
        0.4, "replay", "importance-sampling exponent at the start (Schaul et al. 2016)", low=0.0, high=1.0
    )
    beta_annealing: float = option(1e-5, "replay", "added to beta at every update, up to 1", low=0.0, high=1.0)

    render: bool = option(False, "output", "show the rank-0 game from the start")
    eval_every: int = option(50_000, "output", "environment steps between evaluations, 0 for none", low=0)
    eval_episodes: int = option(
        31,  # as many starts as 0 to 30 frames of doing nothing give
        "output",
        "greedy episodes in each, rounded up to as many of every stage; the best policy is kept",
        low=1,
        high=1000,
    )
    save_every: int = option(50_000, "output", "environment steps between checkpoints", low=1)
    checkpoint_replay: bool = option(
        False,
        "output",
        "checkpoints hold the replay, too: a resumed run equals an uninterrupted one, bit for bit",
        runners=("single",),
    )
    restarts: int = option(
        3,
        "output",
        "times in a row that a run begins again from its newest checkpoint after the process that learns was lost",
        low=0,
        high=1000,
    )
    keep: int = option(3, "output", "checkpoints kept; older ones are removed", low=1, high=1000)
    run_dir: str = option("checkpoints", "output", "folder that holds the runs", metavar="DIR")

    def __post_init__(self) -> None:
        for spec in fields(self):
            check(spec, getattr(self, spec.name))
        _check_device(self.device)
        if self.reward not in REWARDS[self.game]:
            raise ConfigError("reward", f"{self.reward!r} is not accepted; accepted: {', '.join(REWARDS[self.game])}")
        if self.game in BOARD_GAMES:
            _check_board(self.game, self.board)
        for name, read in (("actions", action_buttons), ("stage", stages_of)):
            try:
                read(getattr(self, name))
            except UserError as error:
                raise ConfigError(name, str(error)) from None
        if self.curriculum and self.game == "mario" and len(stages_of(self.stage)) == 1:
            raise ConfigError(
                "curriculum", f"needs stages in order, and {self.stage} is one; accepted with: --stage 1-1,1-2"
            )
        lanes = self.processes * self.parallel_envs
        if self.buffer_size < lanes * (self.n_step + 8):
            raise ConfigError(
                "buffer_size",
                f"{self.buffer_size} is too small for {lanes} lanes of n-step {self.n_step}; "
                f"accepted: {lanes * (self.n_step + 8)} or more",
            )
        if self.use_mmap_buffer and self.replay_device == "device":
            raise ConfigError("replay_device", "'device' is not accepted with --use-mmap-buffer; accepted: auto, host")
        if self.burnin > self.buffer_size:
            raise ConfigError("burnin", f"{self.burnin} never fits; accepted: 1 to buffer-size ({self.buffer_size})")
        if self.batch_size > self.largest_batch:
            share = "" if self.largest_batch == self.buffer_size else f" / {self.processes} processes"
            raise ConfigError(
                "batch_size",
                f"{self.batch_size} never fits; accepted: auto, or 1 to {self.largest_batch} "
                f"(buffer-size {self.buffer_size}{share})",
            )
        if self.batch_size != AUTO and self.accumulate > self.batch_size:
            raise ConfigError(
                "accumulate", f"must not exceed the batch size ({self.batch_size:,}), got {self.accumulate:,}"
            )
        self._check_target()

    def _check_target(self) -> None:
        """Nobody wants a target network that stands still, or none: one of two options was forgotten."""
        if self.tau == 1 and self.sync_every == 1:
            raise ConfigError(
                "tau", "1 after every update leaves no target network; accepted with: --sync-every 2 or more"
            )
        if self.tau < 1 and self.sync_every > _SLOWEST_TARGET * self.tau:
            raise ConfigError(
                "tau",
                f"{self.tau:g} every {self.sync_every:,} updates would hardly move the target network; accepted: "
                f"{min(self.sync_every / _SLOWEST_TARGET, 1):g} or more",
            )

    @property
    def processes(self) -> int:
        """Processes that play."""
        return {"single": 1, "apex": self.num_actors}.get(self.runner, self.num_processes)

    @property
    def largest_batch(self) -> int:
        """Transitions in a replay: workers and ranks have one each, actors one together."""
        return self.buffer_size // (1 if self.runner == "apex" else self.processes)

    def to_toml(self) -> str:
        """The options as TOML, one key a field; what is unset (None) or another game's is left out."""
        return tomli_w.dumps(self.options())

    def options(self) -> dict[str, Any]:
        """The options that are set and belong to game and runner, by field name."""
        values = {
            spec.name: getattr(self, spec.name) for spec in fields(self) if belongs(spec.name, self.game, self.runner)
        }
        if self.batch_size == AUTO:
            values["batch_size"] = "auto"
        return {name: value for name, value in values.items() if value is not None}


_MOST_BYTES = 2**20
"""Of a file of options."""
_SLOWEST_TARGET = 10_000
"""Updates in which a moving average's time constant must lie: what Mnih et al. 2015 leave between two copies."""
BOARD_LIMITS = {"snake": ((3, 30), (3, 30)), "tetris": ((4, 12), (4, 26))}
"""Least and most of width and height."""
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
    """Where the defaults of a game under a runner differ from those of `RunConfig`.

    Two processes together play as many lanes and learn from as many transitions as one would.
    """
    values = dict(GAME_DEFAULTS.get(game, {}))
    if runner != "single":
        values["parallel_envs"] = values.get("parallel_envs", RunConfig.parallel_envs) // 2
    if runner == "ddp":
        values["batch_size"] = values.get("batch_size", RunConfig.batch_size) // 2
    return values


def carried_over(kept: Mapping[str, Any], game: str, runner: str) -> dict[str, Any]:
    """Of a run's options those that it keeps under `runner`: another one has its own for what its processes share."""
    if runner == kept["runner"]:
        return dict(kept)
    return {name: kept[name] for name in kept if name != "parallel_envs" and belongs(name, game, runner)}


def belongs(name: str, game: str, runner: str) -> bool:
    """Whether an option is one of a game and a runner."""
    meta = RunConfig.__dataclass_fields__[name].metadata
    return game in meta["games"] and runner in meta["runners"]


def load_toml(path: Path) -> dict[str, Any]:
    """Options from a TOML file, not yet validated as a whole.

    Raises `UserError` naming the file, and the key with the accepted ones if a key is unknown.
    """
    try:
        values = tomllib.loads(read_bounded(path, _MOST_BYTES, links=True).decode("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise UserError(f"{path}: not valid TOML: {str(error).splitlines()[0]}") from None
    return _known(values, str(path))


def make_config(values: Mapping[str, Any], source: str | None = None) -> RunConfig:
    """A validated `RunConfig` from field values; `source` (a file) is named in front of an error.

    What is not given is the default of the game and the runner.
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
                    flags = " and ".join(f"--{kind} {each}" for each in accepted)
                    raise ConfigError(spec.name, f"is not an option of {chosen}; accepted with: {flags}")
        return RunConfig(**{**defaults(game, runner), **known})
    except ConfigError as error:
        if source is None:
            raise
        raise UserError(f"{source}: {error.field}: {error.reason}") from None


def _known(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    names = [spec.name for spec in fields(RunConfig)]
    for key in values:
        if key not in names:
            raise UserError(f"{source}: unknown key {key!r}; accepted: {', '.join(names)}")
    return dict(values)


def _check_board(game: str, board: str | None) -> None:
    sides = (board or "").split("x")
    limits = BOARD_LIMITS[game]
    if len(sides) != 2 or not all(
        side.isdecimal() and low <= int(side) <= high for side, (low, high) in zip(sides, limits, strict=True)
    ):
        accepted = "x".join(f"{low}..{high}" for low, high in limits)
        raise ConfigError("board", f"{board!r} is not accepted; accepted: WIDTHxHEIGHT within {accepted}")


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if device in ("auto", "cpu", "mps", "cuda") or (name == "cuda" and index.isdecimal()):
        return
    raise ConfigError("device", f"{device!r} is not accepted; accepted: auto, cpu, mps, cuda, cuda:N")
