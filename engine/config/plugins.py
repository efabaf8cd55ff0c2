"""Games of installed packages, as processes know them that do not import the package: terminal and host.

`engine.games.describe` imports the package, in a process of its own, and tells everything about the game that is data.
That is kept below `$XDG_CACHE_HOME/mario-tui/games` until the package changes, and makes a descriptor, `DescribedGame`.
Where this has to compute, such as to check options that belong together, the process answers: it is started then, and
ends when it has not been asked for a while.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.util
import os
import pkgutil
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import msgspec

from engine import __version__
from engine.config.conditions import Conditions
from engine.config.entry_points import Plugin, installed, refusal, refuse
from engine.config.fields import ConfigError, option
from engine.config.following import Following
from engine.config.game import Game, GameOptions, PersonKeys, Spec
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runtime.exit_status import how_it_ended
from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json
from engine.runtime.text import printable

TIMEOUT_S = 60
"""Seconds within which the process has to answer. It may import torch from a slow disk."""
_FORGET_S = 3600.0
"""Seconds after which a package that could not be used is looked at again, if nobody asks for its game before."""
_MAX_BYTES = 2**22
DATA: Mapping[str, Any] = {
    name: hint.__args__[0]
    for name, hint in get_type_hints(Game).items()
    if getattr(hint, "__origin__", None) is ClassVar and name not in ("name", "options")
}
"""What the contract has as data, and its types."""
COMPUTED: Mapping[str, Any] = {
    "spec": Spec, "action_names": list[str], "network": str, "tasks_of": tuple[str, ...],
    "task_label": str, "learned_apart": tuple[str, ...], "spec_for_all": Spec, "check": None, "check_files": None,
    "faster": dict[str, Any], "options_of_policy": dict[str, Any], "policy_must_have": dict[str, Any],
    "eval_conditions": Conditions, "keys_of_person": PersonKeys | None, "follow": list[tuple[str, Any, list[str]]],
    "keeps_gamma": bool,
}  # fmt: skip
"""Methods of the contract that terminal and host call, for which the process answers, and the types of its answers."""
_ONCE = ("check_files",)
"""Those of which the answer may change."""


class OptionData(msgspec.Struct, frozen=True):
    """An option as `engine.config.fields.option` makes it."""

    name: str
    type: str
    default: bool | int | float | str | None
    group: str
    help: str
    choices: tuple[str, ...] | None = None
    low: int | float | None = None
    high: int | float | None = None
    metavar: str | None = None
    usual: tuple[str, ...] | None = None
    hidden: bool = False


class Description(msgspec.Struct, frozen=True):
    """What there is to know about a game without importing it."""

    options: list[OptionData]
    data: dict[str, Any]
    """What the descriptor has of `DATA`."""
    defaults: dict[str, Any]
    computes: list[str]
    """Those of `COMPUTED` that are the game's own."""


class Told(msgspec.Struct, frozen=True):
    """What the process says first: a description, or why there is none."""

    description: Description | None = None
    failure: str = ""


class Question(msgspec.Struct, frozen=True):
    """A call of one of `COMPUTED`: its arguments, the first of which are a run's options if it has `config`."""

    method: str
    arguments: list[Any]
    config: dict[str, Any] | None = None


class Answer(msgspec.Struct, frozen=True):
    """The result of a call, or an error: of the option `field`, of the user, or else a bug of the game."""

    value: Any = None
    error: str = ""
    field: str = ""
    bug: bool = False


class _Kept(msgspec.Struct):
    """A file of the cache."""

    made_for: list[str]
    at: float
    told: Told


class PluginError(Exception):
    """A game can't be used; the text tells why."""


# ---------------------------------------------------------------------------------------------------- descriptors


_descriptors: dict[str, Game | None] = {}
_failed_before: set[str] = set()
"""Games that could not be used when a process was last asked, which was not now."""


def described(name: str, *, again: bool = False) -> Game | None:
    """The descriptor of an installed package's game, made from its description; None, and a line on standard error, if
    it can't be used. With `again`, one that has failed before is given another try."""
    if name not in _descriptors or (again and name in _failed_before):
        plugin = installed()[name]
        _failed_before.discard(name)
        process = _Process(plugin)
        try:
            _descriptors[name] = _make(plugin, process, _description(plugin, process, again))
        except PluginError as error:
            process.close()
            refuse(plugin, str(error))
            _descriptors[name] = None
    return _descriptors[name]


def imported(name: str) -> Game:
    """The descriptor of an installed package's game, imported into this process. Raises `UserError` if that fails."""
    plugin = installed()[name]
    try:
        kind = pkgutil.resolve_name(plugin.place)
        if not (isinstance(kind, type) and issubclass(kind, Game)):
            raise TypeError(f"{plugin.place} must be a subclass of engine.config.game.Game")
        game: Game = kind()
        if game.name != name:
            raise ValueError(f"{plugin.place} is called {game.name!r}")
    except (Exception, SystemExit) as error:
        raise UserError(refusal(plugin, f"{type(error).__name__}: {error}".split("\n")[0])) from error
    return game


def _make(plugin: Plugin, process: _Process, said: Description) -> Game:
    """A descriptor with the game's data, and with those of `COMPUTED` that are its own."""
    try:
        members = {name: msgspec.convert(value, DATA[name]) for name, value in said.data.items()}
    except msgspec.ValidationError as error:
        raise PluginError(str(error)) from None
    members |= {name: _only_imported for name, of in vars(Game).items() if callable(of) and name not in COMPUTED}
    members |= {name: _method(process, name) for name in said.computes}
    members |= {"name": plugin.name, "options": _options(plugin.name, said.options)}
    members["defaults"] = lambda self: said.defaults
    game: Game = type("DescribedGame", (Game,), members)()
    return game


def _only_imported(self: Game, *_: Any, **__: Any) -> Any:
    raise RuntimeError(f"{self.name} is only described in this process; see engine.config.games.import_plugins")


def _options(name: str, options: Sequence[OptionData]) -> type[GameOptions]:
    fields = [(each.name, each.type, option(**_arguments(each))) for each in options]
    return dataclasses.make_dataclass(f"Options_{name}", fields, bases=(GameOptions,), frozen=True, kw_only=True)


def _arguments(each: OptionData) -> dict[str, Any]:
    return {key: value for key, value in msgspec.structs.asdict(each).items() if key not in ("name", "type")}


def _method(process: _Process, name: str) -> Callable[..., Any]:
    def method(self: Game, *arguments: Any) -> Any:
        first, *others = arguments
        if isinstance(first, RunConfig):
            return process.answer(Question(name, others, first.values()))
        if not isinstance(first, Following):
            return process.answer(Question(name, list(arguments)))
        for option_name, value, because_of in process.answer(Question(name, [first.values, sorted(first.given)])):
            first.set(option_name, value, *because_of)
        return None

    return method


# ---------------------------------------------------------------------------------------------------- the cache


def _description(plugin: Plugin, process: _Process, again: bool) -> Description:
    """From the cache, else from the process. With `again`, a failure in the cache is ignored. Raises `PluginError`."""
    digest = hashlib.sha256(str(plugin.metadata).encode()).hexdigest()[:16]
    file = program_folder("CACHE") / "games" / f"{plugin.name}-{digest}.json"
    made_for, told = _made_for(plugin), None
    with contextlib.suppress(OSError, ValueError):
        kept = read_json(file, _Kept, _MAX_BYTES)
        if kept.made_for == made_for and (
            kept.told.description or (not again and 0 <= time.time() - kept.at < _FORGET_S)
        ):
            told = kept.told
    if told is None:
        try:
            told = process.start()
        except PluginError as error:
            told = Told(failure=str(error))
        write_if_possible(file, msgspec.json.format(msgspec.json.encode(_Kept(made_for, time.time(), told))))
    elif told.description is None:
        _failed_before.add(plugin.name)
    if told.description is None:
        raise PluginError(told.failure)
    return told.description


def _made_for(plugin: Plugin) -> list[str]:
    """What a description depends on: the contract, the package and, where somebody works on it, its files."""
    module, *_ = plugin.place.partition(":")
    changed = [plugin.metadata / "entry_points.txt", *_sources(module)]
    newest = max((path.stat().st_mtime_ns for path in changed if path.exists()), default=0)
    contract = ",".join(sorted((*DATA, *COMPUTED)))
    return [__version__, contract, sys.version, plugin.package, plugin.version, plugin.place, str(newest)]


def _sources(module: str) -> list[Path]:
    """The file of a module with those beside it, found without importing the package."""
    package, *inner = module.split(".")
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(package)
        if found is not None and not inner and found.origin is not None and not found.submodule_search_locations:
            return [Path(found.origin)]
        if found is not None:
            folders = [Path(where, *inner[:-1]) for where in found.submodule_search_locations or ()]
            return [path for folder in folders for path in folder.glob("*.py")]
    return []


# ---------------------------------------------------------------------------------------------------- the process


class _Process:
    """`python -m engine.games.describe NAME`, which answers a line of JSON for each line that it is sent."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._process: subprocess.Popen[bytes] | None = None
        self._used_at = 0.0
        self._lock = threading.Lock()
        self._remembered = lru_cache(maxsize=4096)(self._ask)

    def start(self) -> Told:
        """Start it, and return what it says first. Raises `PluginError` if it says nothing that can be read."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "engine.games.describe", self._plugin.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process
        )
        return self._read(Told)

    def answer(self, question: Question) -> Any:
        """The result of a call. Raises `ConfigError` or `UserError` as the game does, and `UserError` if it fails."""
        ask = self._ask if question.method in _ONCE else self._remembered
        try:
            answer = ask(msgspec.json.encode(question))
            if answer.field:
                raise ConfigError(answer.field, answer.error)
            if answer.error and not answer.bug:
                raise UserError(answer.error)
            if answer.bug:
                raise PluginError(f"{question.method}: {answer.error}")
            kind = COMPUTED[question.method]
            return None if kind is None else msgspec.convert(answer.value, kind)
        except (PluginError, msgspec.ValidationError) as error:
            raise UserError(refusal(self._plugin, str(error))) from None

    def _ask(self, question: bytes) -> Answer:
        with self._lock:
            if self._process is None or time.monotonic() > self._used_at + TIMEOUT_S / 2:  # it ends after `TIMEOUT_S`
                self.close()
                told = self.start()
                if told.description is None:
                    raise PluginError(told.failure)
            assert self._process is not None and self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # `_read` tells why
                self._process.stdin.write(question + b"\n")
                self._process.stdin.flush()
            return self._read(Answer)

    def _read(self, kind: type[Any]) -> Any:
        """Its next line. Raises `PluginError`."""
        assert self._process is not None and self._process.stdout is not None
        line, deadline = b"", time.monotonic() + TIMEOUT_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise PluginError(f"it does not answer within {TIMEOUT_S} s")
                part = os.read(self._process.stdout.fileno(), 2**16)
                line += part
                if not part or len(line) > _MAX_BYTES:
                    how = how_it_ended(self.close())
                    raise PluginError(f"its process ended ({how})" if not part else "it answers without end")
        self._used_at = time.monotonic()
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            self.close()
            raise PluginError(f"it gives an answer that can't be read: {printable(str(error))}") from None

    def close(self) -> int | None:
        """Kill it, unless it has ended. Returns its exit status."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)  # one that crashes closes its output before it ends
        process.kill()
        return process.wait()
