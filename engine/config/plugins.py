"""Games of installed packages: imports their descriptors, and checks them against the contract.

Every process that asks for games imports the descriptors. A descriptor imports no torch, so that terminal and host
start at once; what it prints goes to standard error. One that can't be used costs a line, and everything else works
without it. A package that crashes or hangs while it is imported takes the command with it.
"""

from __future__ import annotations

import contextlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Protocol, get_type_hints

import msgspec

from engine.config import capabilities
from engine.config.entry_points import Plugin, refuse
from engine.config.fields import GROUPS, ROLES, FieldSpec, check, is_text, must_be_one_of
from engine.config.game import DESCRIPTORS, Game, Spec, own_options
from engine.config.reading import ALIASES, make_config
from engine.config.run_config import COMMON
from engine.errors import UserError
from engine.protocol.json_lines import check_names, names_of
from engine.protocol.outcome import Outcome

RESERVED = frozenset(
    {
        "config", "detach", "duration", "eval_only", "help", "help_all", "json", "log_events", "log_format", "name",
        "no_ui", "note", "preset", "read_only", "report_file", "resume", "tag", "trace", "trial_duration", "trials",
        "trust", "version",
    }
)  # fmt: skip
"""Flags of commands that take the options of a run."""
_DATA = {name: hint.__args__[0] for name, hint in get_type_hints(Game).items() if name not in ("name", "options")}
"""What the contract has as data, and its types."""
_CONTRACT = "engine/config/capabilities.py"
_CAPABILITIES = [
    each for each in vars(capabilities).values() if getattr(each, "_is_protocol", False) and each is not Protocol
]
_KEY = re.compile("[a-z][a-z0-9_]*")
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_MOST_PIXELS = 2**12
"""Most planes, rows, columns and actions that a policy file may have."""
_EARLIER = ("make_lanes", "task_options", "policy_options")
"""Members of the contract of version 0.2."""
_PAGE = "see docs/plugins.md"


def described(plugin: Plugin) -> Game | None:
    """Import the descriptor of a package's game, and add it to `engine.config.game.DESCRIPTORS`; None, and a line on
    standard error or in the log of a run, if it can't be used."""
    try:
        with _without_torch(), contextlib.redirect_stdout(sys.stderr):
            game = _made(plugin, pkgutil.resolve_name(plugin.place))
            DESCRIPTORS[plugin.name] = game
            _check(game)
    except (Exception, SystemExit) as error:
        told = str(error).split("\n")[0]
        is_plain = type(error) is ValueError or isinstance(error, UserError)
        if isinstance(error, ImportError) and (error.name or "").startswith("engine"):
            told += f"; {_PAGE}"  # it may be written for an earlier contract
        refuse(plugin, told if is_plain else f"{type(error).__name__}: {told}")
        DESCRIPTORS[plugin.name] = None
    return DESCRIPTORS[plugin.name]


class _NoTorch(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "torch":
            raise ValueError(f"its descriptor must not import torch; {_PAGE}")


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """In the block torch can't be imported. A process that has imported it before may use it."""
    finder = _NoTorch()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _made(plugin: Plugin, kind: Any) -> Game:
    if not (isinstance(kind, type) and issubclass(kind, Game)):
        raise ValueError(f"{plugin.place} must be a subclass of engine.config.game.Game")
    if any(hasattr(kind, name) for name in _EARLIER):
        raise ValueError(f"it was written for mario-tui 0.2, where games had another contract; {_PAGE}")
    game: Game = kind()
    if missing := [name for name in (*_DATA, "options") if not hasattr(game, name)]:
        raise ValueError(f"it has no {missing[0]}")
    if game.name != plugin.name:
        raise ValueError(f"{plugin.place} is called {game.name!r}")
    return game


def _check(game: Game) -> None:
    """Raise any exception if a run of the game would."""
    for name, kind in _DATA.items():
        _converted(name, getattr(game, name), kind)
    for capability in _CAPABILITIES:
        members = {name for name in (*vars(capability), *capability.__annotations__) if not name.startswith("_")}
        has, lacks = (sorted(name for name in members if hasattr(game, name) == there) for there in (True, False))
        if has and lacks:
            raise ValueError(f"it has {has[0]}, and must have {lacks[0]}; see {capability.__name__} in {_CONTRACT}")
    options = own_options(game.name)
    for spec in options.values():
        _check_option(spec)
    if game.tasks not in options and game.tasks not in COMMON:
        raise ValueError(f"it has no option {game.tasks}")
    if not is_text(options.get(game.tasks) or COMMON[game.tasks]):
        raise ValueError(f"its option {game.tasks} must be text, because it names what is played")
    for name, place in {
        "lanes": game.lanes,
        **{f"network {name}": of for name, of in game.own_networks.items()},
    }.items():
        if not _PLACE.fullmatch(place):
            raise ValueError(f"its {name} must be module:name, got {place!r}")
    for values in ({}, *(preset.options for preset in game.presets.values())):
        config = make_config({"game": game.name, **values})
        if (network := game.network(config)) not in game.networks:
            raise ValueError(f"its network {network!r} is none of its networks")
        shapes = _checked(_converted("spec", game.spec(config), Spec))
        if len(_converted("action_names", game.action_names(config), list[str])) != shapes.actions:
            raise ValueError("it must have a name for each action")
        if not _converted("tasks_of", game.tasks_of(config.value(game.tasks)), tuple[str, ...]):
            raise ValueError("tasks_of must name a task")
    _check_outcome(game.outcome)


def _converted(name: str, value: Any, kind: Any) -> Any:
    """Return what a member of the game is. Raises `ValueError` if that has another type than the contract says."""
    try:
        return msgspec.convert(msgspec.to_builtins(value, enc_hook=_plain), kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"{type(value).__name__} is not data")


def _checked(spec: Spec) -> Spec:
    """Raises `ValueError` for one that no policy file can have."""
    sizes = (*spec.frame_shape, spec.stack, spec.actions, spec.hold)
    if len(spec.frame_shape) not in (1, 2, 3) or not all(1 <= size <= _MOST_PIXELS for size in sizes):
        raise ValueError(f"its spec must have frames of 1 to 3 axes, and sizes from 1 to {_MOST_PIXELS:,}, got {spec}")
    return spec


def _check_outcome(outcome: Outcome) -> None:
    """Raises `ValueError` if a name stands for something else as well, or can't be a key."""
    results, goal = [result.name for result in outcome.results], outcome.goal
    for name in names_of(outcome):
        if not _KEY.fullmatch(name):
            raise ValueError(f"outcome: a name must be lower-case letters, digits and underscores, got {name!r}")
    try:
        check_names(outcome)
    except ValueError as error:
        raise ValueError(f"outcome: {error}") from None
    if not all((*(result.label for result in outcome.results), *([] if goal is None else [goal.label]))):
        raise ValueError("outcome: results and goal must have labels")
    accepted = ["return", *results, *([] if goal is None else ["goal"])]
    if outcome.judged_by not in accepted:
        raise ValueError(f"outcome: judged_by {must_be_one_of(accepted, outcome.judged_by)}")


def _check_option(spec: FieldSpec) -> None:
    """Raises `ValueError` if the command line, the form or a file can't have the option."""
    name, meta = spec.name, spec.metadata
    flags = {*COMMON, *ALIASES, *RESERVED}
    if name in flags or name.removeprefix("no_") in flags:
        raise ValueError(f"its option {name} has the name of one that all games have")
    if not meta.get("help"):
        raise ValueError(f"its option {name} has no help")
    if meta["group"] not in GROUPS:
        raise ValueError(f"its option {name} must be in one of the groups {', '.join(GROUPS)}")
    if unknown := sorted({*meta["roles"]} - {*ROLES}):
        raise ValueError(f"its option {name} has the role {unknown[0]!r}; accepted: {', '.join(ROLES)}")
    if not (isinstance(spec.default, bool) or is_text(spec)) and meta["low"] is None:
        raise ValueError(f"its option {name} must have a lower bound")
    check(spec, spec.default)
