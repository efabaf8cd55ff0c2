"""Makes a run's options from a file or from values by name: unknown names are refused, earlier names replaced, and
missing ones take defaults that fit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.config.common_options import COMMON
from engine.config.defaults import usual
from engine.config.fields import ConfigError, check, coerce, must_be_one_of
from engine.config.following import Following
from engine.config.games import GAMES, described, games, own_options
from engine.config.run_config import RunConfig, options_of_all, specs_of, stored_options
from engine.config.runners import RUNNERS, runners_with
from engine.errors import UserError
from engine.runtime.toml_file import read_toml

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
    option = described(name).tasks
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


def make_config(values: Mapping[str, Any], *, beneath: Mapping[str, Any] = {}) -> RunConfig:
    """A validated `RunConfig` from the options that were given; the others take the defaults of the game and runner,
    and follow the given ones (see `engine.config.following`).

    `beneath`: values that replace defaults, and follow as they do. Raises `ConfigError`.
    """
    return RunConfig.of(**_completed(values, beneath).values)


def followed(values: Mapping[str, Any], *, beneath: Mapping[str, Any] = {}) -> list[str]:
    """What differs in `make_config` from the defaults because of the options that were given, a line for each option.

    Raises `ConfigError`.
    """
    return _completed(values, beneath).lines()


def as_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a run's options that nobody but the user can have chosen: the others have the value that they would have
    if they were not given."""
    specs = specs_of(options["game"])
    given = {}
    for name, stored in options.items():
        value = coerce(specs[name], stored)
        rest = {each: options[each] for each in options if each != name}
        if not specs[name].metadata["hidden"] and (name in _KINDS or completed(rest)[name] != value):
            given[name] = stored
    return given


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a run that is given some, not checked together. What a game has found out is best among them: the
    run may be a stranger's, and to find it out again may run the code that its other options name."""
    return _completed(values, {}).values


def _completed(values: Mapping[str, Any], beneath: Mapping[str, Any]) -> Following:
    """All options of a run. Raises `ConfigError` if one is invalid by itself."""
    given, below = (_known(each, None) for each in (values, beneath))
    chosen, because_of = {}, {}
    for kind, names in _KINDS.items():
        kinds = names()
        chosen[kind] = given.get(kind, below.get(kind, kinds[0]))
        if kind in given or kind in below:
            continue
        needs = [name for name, value in given.items() if not _fits(name, value, kind, kinds[0])]
        fit = [one for one in kinds if all(_fits(name, value, kind, one) for name, value in given.items())]
        if kind == "game":
            fit = [one for one in fit if described(one).chosen_by_options]
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
    """Whether `one` game or runner has the option, and the value among its choices."""
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
