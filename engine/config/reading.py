"""Make a run's options from a file, from values by name or from a policy: unknown names are refused, earlier names
replaced, and missing ones take defaults that fit.

An option that was given never fails because of another one's default: each rule of `Following` moves a default, and by
no more than it must. What given options contradict among themselves stays as it is, and `check_together` refuses it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from engine.config.fields import AUTO, LARGEST, NONE, ConfigError, check, coerce, flag, must_be_one_of, shown
from engine.config.game import GAMES, game_of, games, options_with, own_options
from engine.config.run_config import (
    COMMON,
    SLOWEST_TARGET,
    SPARE_STEPS,
    RunConfig,
    belongs,
    options_of_all,
    specs_of,
    stored_options,
)
from engine.config.runners import RUNNERS, runners_with
from engine.errors import UserError
from engine.protocol.outcome import Outcome
from engine.runtime.formats import read_toml
from engine.runtime.text import printable


def defaults(game: str, runner: str) -> dict[str, Any]:
    """Defaults of new runs that differ from those of the fields under a game and runner.

    Two processes together play as many lanes, and learn from as many transitions, as one process does.
    """
    values = dict(game_of(game).defaults())
    info = RUNNERS[runner]
    if info.count is not None:
        values["parallel_envs"] = values.get("parallel_envs", RunConfig.parallel_envs) // 2
    if info.averages_gradients:
        values["batch_size"] = values.get("batch_size", RunConfig.batch_size) // 2
    return values


def usual(game: str, runner: str) -> dict[str, Any]:
    """Every option of a game with its default under a runner."""
    return {name: spec.default for name, spec in specs_of(game).items()} | defaults(game, runner)


def carried_over(kept: Mapping[str, Any], game: str, runner: str) -> dict[str, Any]:
    """Options of an earlier run that still hold under `game` and `runner`.

    With another runner the number of lanes per process is not kept: it depends on how many processes share them. Nor is
    another option whose default differs between the two runners, if it has the earlier one's.
    """
    before = kept["runner"]
    if runner == before:
        return dict(kept)
    earlier, now = (usual(game, each) for each in (before, runner))
    follows = {"parallel_envs"} | {name for name in kept if name in now and kept[name] == earlier[name] != now[name]}
    return {name: kept[name] for name in kept if name not in follows and belongs(name, game, runner)}


_HARD_COPY_EVERY = 1_000
"""Updates between copies with a given `--tau 1`: DQN trainers of one machine use 500 to 2,500."""


class Following:
    """The `values` of all options, of which those that were not `given` follow the others.

    `usual`: the defaults of the game and runner. `because_of`: the given options that game and runner have followed.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        given: Collection[str],
        usual: Mapping[str, Any],
        because_of: Mapping[str, list[str]],
    ) -> None:
        self._before, self.values = {**values, **{kind: usual[kind] for kind in because_of}}, dict(values)
        self.given, self._usual = given, usual
        self._causes = dict(because_of)
        self.notes = list[str]()
        """What else the user should know."""
        game_of(self.values["game"]).follow(self)
        self._make_room()
        self._follow_target()
        self._follow_parts()
        if not self.values["eval_every"]:
            self.set("final_episodes", 0, "eval_every")

    def lines(self) -> list[str]:
        """Return what has followed, a line for each option: `--tau follows --sync-every 1,000: 1 instead of 0.004`; and
        the notes."""
        specs = specs_of(self.values["game"])
        return [
            f"{flag(name)} follows {' and '.join(map(self._as_given, causes))}: {shown(self.values[name])} instead of "
            f"{shown(self._before[name])}"
            for name, causes in self._causes.items()
            if self.values[name] != self._before[name] and not specs[name].metadata["hidden"]
        ] + self.notes

    # ------------------------------------------------------------------------------------------ the rules

    def _make_room(self) -> None:
        """The replay holds the windows of all lanes, the burn-in and a batch; a batch is split into parts."""
        of = self.values
        runner = RUNNERS[of["runner"]]
        members = runner.count or ""
        per_lane = of["n_step"] + SPARE_STEPS
        sharing = ("parallel_envs", members, "n_step", "buffer_size")
        self.at_least("buffer_size", self._members(members) * of["parallel_envs"] * per_lane, *sharing)
        self.at_most("parallel_envs", of["buffer_size"] // per_lane // self._members(members), *sharing)
        if members:
            self.at_most(members, of["buffer_size"] // per_lane // of["parallel_envs"], *sharing)
        lanes = self._members(members) * of["parallel_envs"]
        self.at_most("n_step", of["buffer_size"] // lanes - SPARE_STEPS, *sharing)

        self.at_least("buffer_size", of["burnin"], "burnin")
        self.at_most("burnin", of["buffer_size"], "buffer_size")

        if of["batch_size"] == AUTO:
            return
        self.at_least("batch_size", of["accumulate"], "accumulate")
        replays = "" if runner.learner else members  # actors share one
        self.at_least("buffer_size", of["batch_size"] * self._members(replays), "batch_size", replays)
        self.at_most("batch_size", max(1, of["buffer_size"] // self._members(replays)), "buffer_size", replays)
        if replays:
            self.at_most(replays, of["buffer_size"] // of["batch_size"], "buffer_size", "batch_size")
        self.at_most("accumulate", of["batch_size"], "batch_size")

    def _follow_target(self) -> None:
        """An interval between updates of the target network means hard copies, and hard copies need one. The discount
        factor of the targets is not lowered later."""
        tau, sync_every = self.values["tau"], self.values["sync_every"]
        if "sync_every" in self.given and sync_every > 1:
            self.set("tau", 1.0, "sync_every")
        elif tau == 1 and sync_every == 1:
            if "tau" in self.given:
                self.set("sync_every", _HARD_COPY_EVERY, "tau")
            else:  # of a run that is resumed
                self.set("tau", self._usual["tau"], "sync_every")
        elif tau < 1 and sync_every > SLOWEST_TARGET * tau:
            self.set("sync_every", self._usual["sync_every"], "tau")
        final_gamma = self.values["final_gamma"]
        if final_gamma is not None and self.values["gamma"] > final_gamma:  # a game's own raises it
            self.set("final_gamma", None, "gamma")

    def _follow_parts(self) -> None:
        """Munchausen returns do without two options, and networks of one's own without parts of the program's."""
        for name in ("double_q", "advantage_learning"):
            if name in self.given and self.values[name]:
                self.set("munchausen", 0.0, name)
        if self.values["munchausen"]:
            self.set("double_q", False, "munchausen")
            self.set("advantage_learning", 0.0, "munchausen")
            self.set("final_advantage_learning", None, "munchausen")
        if ":" in str(self.values.get("network")):
            self.set("quantiles", None, "network")
            self.set("noisy", False, "network")

    # ------------------------------------------------------------------------------------------ how an option moves

    def _members(self, name: str) -> int:
        """The value of `num_actors` or `num_processes`; 1 without a name."""
        return int(self.values[name]) if name else 1

    def at_least(self, name: str, least: int, *because_of: str) -> None:
        if self.values[name] < least:
            high = specs_of(self.values["game"])[name].metadata["high"]
            self.set(name, least if high is None else min(least, high), *because_of)

    def at_most(self, name: str, most: int, *because_of: str) -> None:
        if self.values[name] > most:
            self.set(name, max(most, specs_of(self.values["game"])[name].metadata["low"]), *because_of)

    def set(self, name: str, value: Any, *because_of: str) -> None:
        if name in self.given or self.values[name] == value:
            return
        self.values[name] = value
        causes = self._causes.setdefault(name, [])
        causes += [
            each
            for each in because_of
            if each != name and each not in causes and (each in self.given or each in self._causes)
        ]

    def _as_given(self, name: str) -> str:
        value = self.values[name]
        return flag(name) if value is True else f"{flag(name)} {shown(value)}"


ALIASES: dict[str, tuple[str, Any]] = {"use_mmap_buffer": ("replay_device", "files")}
"""Earlier names of switches, which files and command lines may still use, and the option that each one sets."""
_KINDS: dict[str, Callable[[], tuple[str, ...]]] = {"game": games, "runner": lambda: tuple(RUNNERS)}
"""The options that decide which other options there are, and their values."""


def with_task(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with `GAME:TASK`, such as `gym:CartPole-v1` or `snake:8x8`, as the game and its option that tells what
    is played."""
    name, colon, task = str(values.get("game", "")).partition(":")
    if not colon or name not in GAMES:
        return dict(values)
    option = game_of(name).tasks
    if not task:
        example = defaults(name, RunConfig.runner).get(option, own_options(name)[option].default)
        raise ConfigError("game", f"must have what is played behind the colon, as in {name}:{example}, got {name}:")
    if values.get(option, task) != task:
        raise ConfigError(option, f"must be given once, got {values[option]!r} besides --game {name}:{task}")
    return {**values, "game": name, option: task}


@contextlib.contextmanager
def about(source: str | None) -> Iterator[None]:
    """In the block, errors about options become `UserError` that names where they were read; None: they were typed."""
    try:
        yield
    except ConfigError as error:
        if source is None:
            raise
        raise UserError(f"{source}: {error.field} {error.reason}") from None


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file, in which a table is the JSON text of one option, such as `env_args`."""
    tables = {name: msgspec.json.encode(value).decode() for name, value in values.items() if isinstance(value, dict)}
    return {**values, **tables}


def load_toml(path: Path) -> dict[str, Any]:
    """Options from a TOML file, not yet validated.

    Raises `UserError` naming the file, and the accepted keys if one is unknown, or the games if its own is.
    """
    try:
        values = read_toml(path)
    except OSError as error:
        raise UserError(f"{path}: can't be read ({error.strerror or error})") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    with about(str(path)):
        values = with_task(flat(values))
    game = values.get("game", RunConfig.game)
    if isinstance(game, str) and game not in GAMES:  # before its options, which are unknown then
        raise UserError(f"{path}: game {must_be_one_of(GAMES, game)}, which is not installed")
    return _known(values, str(path))


def make_config(values: Mapping[str, Any], *, defaults: Mapping[str, Any] = {}) -> RunConfig:
    """A validated `RunConfig` from the options that were given; the others take the defaults of the game and runner,
    and follow the given ones (see `engine.config.reading`).

    `defaults`: values in the place of the usual ones; they follow as those do. Raises `ConfigError`.
    """
    return RunConfig.of(**completed(values, defaults).values)


def as_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a run's options that nobody but the user can have chosen: the others have the value that they
    would have if they were not given."""
    specs = specs_of(options["game"])
    given = {}
    for name, stored in options.items():
        value = coerce(specs[name], stored)
        rest = {each: options[each] for each in options if each != name}
        if not specs[name].metadata["hidden"] and (name in _KINDS or completed(rest).values[name] != value):
            given[name] = stored
    return given


def completed(values: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> Following:
    """All options of a run that is given some, not checked together. What a game has found out is best among them: the
    run may be a stranger's, and to find it out again may run the code that its other options name. Raises `ConfigError`
    if one is invalid by itself."""
    given, below = (_known(each, None) for each in (values, defaults))
    chosen, because_of = {}, {}
    for kind, names in _KINDS.items():
        kinds = names()
        chosen[kind] = given.get(kind, below.get(kind, kinds[0]))
        if kind in given or kind in below:
            continue
        needs = [name for name, value in given.items() if not _fits(name, value, kind, kinds[0])]
        fit = [one for one in kinds if all(_fits(name, value, kind, one) for name, value in given.items())]
        if kind == "game":
            fit = [one for one in fit if game_of(one).options.choose_game]
        if needs and len(fit) == 1:
            chosen[kind], because_of[kind] = fit[0], needs
    for kind, value in chosen.items():
        check(COMMON[kind], value)
    for name in given:
        for kind, value in chosen.items():
            accepted = _having(name, kind)
            if value not in accepted:
                flags = " or ".join(f"--{kind} {each}" for each in accepted)
                raise ConfigError(name, f"is not an option of {value}; it needs {flags}")
    specs = specs_of(chosen["game"])
    given, below = (
        {name: coerce(specs[name], value) for name, value in each.items() if name in specs} for each in (given, below)
    )
    defaults = usual(chosen["game"], chosen["runner"])
    complete = {**defaults, **below, **given, **chosen}
    for name, spec in specs.items():
        check(spec, complete[name])
    return Following(complete, given.keys(), defaults, because_of)


def _fits(name: str, value: Any, kind: str, one: str) -> bool:
    """Return whether `one` game or runner has the option, and the value among its choices."""
    if one not in _having(name, kind):
        return False
    choices = own_options(one)[name].metadata["choices"] if kind == "game" and name in own_options(one) else None
    return choices is None or value in choices


def _having(name: str, kind: str) -> tuple[str, ...]:
    """The games, or runners, that have the option."""
    if kind == "runner":
        return runners_with(name)
    return tuple(game for game in games() if name in specs_of(game))


def _known(values: Mapping[str, Any], source: str | None) -> dict[str, Any]:
    with about(source):
        values = _without_aliases(with_task(values))
    for key in values:
        if key not in stored_options():
            raise UserError(f"{source or 'options'}: unknown key {key!r}; must be one of {', '.join(options_of_all())}")
    return dict(values)


def _without_aliases(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with earlier names of options replaced; what is given by its own name wins."""
    found = dict(values)
    for name, (option_name, value) in ALIASES.items():
        given = found.pop(name, False)
        if not isinstance(given, bool):
            raise ConfigError(name, f"must be true or false, got {given!r}")
        if given:
            found.setdefault(option_name, value)
    return found


def tasks_of(metadata: Mapping[str, Any], task: str | None = None) -> tuple[str, ...]:
    """The tasks of the policy with this metadata: several if it learned several stages, or was distilled from policies
    for several boards. `task` replaces its own."""
    game = game_of(metadata["game"])
    return game.tasks_of(task or metadata[game.tasks])


def config_of_policy(metadata: Mapping[str, Any]) -> RunConfig:
    """Options of a run that plays the task of the policy with this metadata, which has one. Raises `ConfigError` if a
    run can't have it."""
    game = game_of(metadata["game"])
    known = {
        name: metadata[name] for name in options_with("policy", game.name) if name in metadata
    }  # unset numbers may be left out
    if "actions" in known:
        known["actions"] = ",".join(known["actions"])
    return make_config({"game": game.name, **known})


def rounded_up(episodes: int, tasks: Sequence[str]) -> int:
    """At least so many episodes, and equally many of each task."""
    return math.ceil(episodes / len(tasks)) * len(tasks)


NOT_TRAINED = "is reported by a training loop outside mario-tui, which can't resume, evaluate or play it"


_COMMANDS = {"Resume": "resume-training"}
"""What commands are called that have another name for users."""


def what_it_obeys(commands: list[str]) -> str:
    """Says which commands of the program such a loop obeys; see `Hello.obeys`."""
    obeyed = ", ".join(_COMMANDS.get(command, command.lower()) for command in commands if command != "Render")
    return f"is trained by a loop of its own, which obeys {f'only {obeyed}' if obeyed else 'no command'}"


class ReportedLoop(msgspec.Struct, frozen=True, kw_only=True):
    """Has what host and clients ask of a `RunConfig`, for a loop that has options of its own."""

    game: str
    steps: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    """Environment steps of the whole run; 0 if that is unknown."""
    outcome: Outcome = Outcome()
    action_names: list[str] = []
    loop_options: dict[str, bool | int | float | str] = {}
    sinks: str = NONE
    alerts: ClassVar[str] = RunConfig.alerts
    run_dir: str = RunConfig.run_dir
    runner: ClassVar[str] = "external"
    task_label: ClassVar[str] = ""
    render: ClassVar[bool] = False
    restarts: ClassVar[int] = 0
    keep: ClassVar[int] = 0
    """It has no checkpoints."""

    def options(self) -> dict[str, Any]:
        """The game, and the options of the loop, as they can be shown."""
        options = {"game": self.game, **self.loop_options}
        return {printable(name): printable(it) if isinstance(it, str) else it for name, it in options.items()}


Description: TypeAlias = RunConfig | ReportedLoop
