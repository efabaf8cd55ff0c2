"""Tells about a game of an installed package: `python -m engine.games.describe NAME`.

Terminal and host start this instead of importing the package; see `engine.config.plugins`. The first line that it
writes is a `Told`; then it writes an `Answer` for each `Question` on its standard input, and ends when that closes or
nobody has asked for a while. It ends as well if the package hangs.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

import msgspec

from engine.config.common_options import COMMON
from engine.config.entry_points import installed
from engine.config.fields import GROUPS, ConfigError, FieldSpec, check, is_text, must_be_one_of
from engine.config.following import Following
from engine.config.game import Game, Spec
from engine.config.games import game_of, import_plugins, own_options
from engine.config.plugins import (
    COMPUTED,
    DATA,
    TIMEOUT_S,
    Answer,
    Description,
    OptionData,
    Question,
    Told,
)
from engine.config.reading import ALIASES, make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.protocol.outcome import Outcome
from engine.protocol.result_names import check_names, names_of

RESERVED = frozenset(
    {
        "config", "detach", "duration", "eval_only", "help", "json", "log_format", "name", "no_ui", "note", "preset",
        "read_only", "report_file", "resume", "tag", "trace", "trial_duration", "trials", "version",
    }
)  # fmt: skip
"""Flags of commands that take the options of a run."""
_OPTIONAL = ("person_keys",)
_KEY = re.compile("[a-z][a-z0-9_]*")
_MOST_PIXELS = 2**12
"""Most planes, rows, columns and actions that a policy file may have."""


class _Asked(Following):
    """A `Following` in another process: it notes what a game's rules set, which is done there."""

    def __init__(self, values: Mapping[str, Any], given: Collection[str]) -> None:
        self.values, self.given, self._causes = dict(values), given, {}
        self.calls: list[tuple[str, Any, tuple[str, ...]]] = []

    def set(self, name: str, value: Any, *because_of: str) -> None:
        self.calls.append((name, value, because_of))
        super().set(name, value, *because_of)


def main(name: str) -> None:
    """See the module's docstring."""
    questions, answers = _take_streams()
    signal.alarm(TIMEOUT_S)
    import_plugins()
    for other in set(installed()) - {name}:  # otherwise each would have the others described
        del installed()[other]
    try:
        told = Told(_description(game_of(name)))
    except Exception as error:
        told = Told(failure=_reason(error.__cause__ or error))
    _send(answers, told)
    if told.description is None:
        return
    for line in questions:
        signal.alarm(TIMEOUT_S)
        _send(answers, _answer(game_of(name), line))
        signal.alarm(TIMEOUT_S)


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output, which the package's code then finds replaced by nothing and standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return questions, answers


def _send(stream: BinaryIO, message: Any) -> None:
    stream.write(msgspec.json.encode(message, enc_hook=_plain) + b"\n")
    stream.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not data")


def _description(game: Game) -> Description:
    """Raises any exception if a run of the game would."""
    missing = [name for name in DATA if not hasattr(game, name) and name not in _OPTIONAL]
    if missing:
        raise ValueError(f"it has no {missing[0]}")
    options = own_options(game.name)
    for spec in options.values():
        _check_option(spec)
    for name in (game.tasks, *game.task_options, *game.network_options, *game.policy_options):
        if name not in options and name not in COMMON:
            raise ValueError(f"it has no option {name}")
    if not is_text(options.get(game.tasks) or COMMON[game.tasks]):
        raise ValueError(f"its option {game.tasks} must be text, because it names what is played")
    for values in ({}, *(preset.options for preset in game.presets.values())):
        config = make_config({"game": game.name, **values})
        if (network := game.network(config)) not in game.networks:
            raise ValueError(f"its network {network!r} is none of its networks")
        if len(_told(game, "action_names", config)) != _checked(_told(game, "spec", config)).actions:
            raise ValueError("it must have a name for each action")
        if not _told(game, "tasks_of", config.value(game.tasks)):
            raise ValueError("tasks_of must name a task")
    found = {name: getattr(game, name) for name in DATA if hasattr(game, name)}
    data = msgspec.to_builtins(found, enc_hook=_plain)
    for name, value in data.items():
        try:
            msgspec.convert(value, DATA[name])
        except msgspec.ValidationError as error:
            raise ValueError(f"{name}: {error}") from None
    _check_outcome(game.outcome)
    if not (game.steps_per_s > 0 and game.sample_bytes > 0):
        raise ValueError("its steps_per_s and sample_bytes must be positive")
    own = [name for name in COMPUTED if getattr(type(game), name) is not getattr(Game, name)]
    return Description([_option(spec) for spec in options.values()], data, dict(game.defaults()), own)


def _told(game: Game, method: str, argument: Any) -> Any:
    """What a method answers. Raises `ValueError` if that has another type than the contract says."""
    try:
        return msgspec.convert(getattr(game, method)(argument), COMPUTED[method])
    except msgspec.ValidationError as error:
        raise ValueError(f"{method}: {error}") from None


def _checked(spec: Spec) -> Spec:
    """Raises `ValueError` for one that no policy file can have."""
    sizes = (*spec.frame_shape, spec.stack, spec.actions, spec.hold)
    if len(spec.frame_shape) not in (2, 3) or not all(1 <= size <= _MOST_PIXELS for size in sizes):
        raise ValueError(f"its spec must have frames of 2 or 3 axes, and sizes from 1 to {_MOST_PIXELS:,}, got {spec}")
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
    if not (isinstance(spec.default, bool) or is_text(spec)) and meta["low"] is None:
        raise ValueError(f"its option {name} must have a lower bound")
    check(spec, spec.default)


def _option(spec: FieldSpec) -> OptionData:
    kind = spec.type if isinstance(spec.type, str) else getattr(spec.type, "__name__", str(spec.type))
    default: Any = spec.default
    return OptionData(spec.name, kind, default, **spec.metadata)


def _answer(game: Game, line: bytes) -> Answer:
    try:
        question = msgspec.json.decode(line, type=Question)
        if question.method == "follow":
            asked = _Asked(*question.arguments)
            game.follow(asked)
            return Answer(asked.calls)
        arguments = question.arguments
        if question.config is not None:
            arguments = [RunConfig.of(**question.config), *arguments]
        elif question.method == "spec_for_all":
            arguments = [msgspec.convert(arguments[0], list[Spec])]
        return Answer(getattr(game, question.method)(*arguments))
    except ConfigError as error:
        return Answer(error=error.reason, field=error.field)
    except UserError as error:
        return Answer(error=str(error))
    except Exception as error:
        return Answer(error=_reason(error), bug=True)


def _reason(error: BaseException) -> str:
    text = str(error).split("\n")[0]
    return text if type(error) in (ValueError, ConfigError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main(sys.argv[1])
