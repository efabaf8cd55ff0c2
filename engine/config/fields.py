"""One option of a run: its metadata for the command line, the file and the form, and its validation.

An option is a dataclass field; its default tells its type. Importing this does not import torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from engine.errors import UserError

GROUPS = ("run", "environment", "learning", "exploration", "replay", "output")
"""The groups of options, in the order in which people see them."""
AUTO = 0
"""Stands for the batch size `auto`: chosen by a short benchmark when the run starts."""

NONE = "none"
"""Stands for a number that is unset."""

FieldSpec = dataclasses.Field[Any]
Role: TypeAlias = Literal["task", "network", "policy", "games", "evaluation", "initial", "import"]
"""What depends on an option of a game.

task: what is learned, that is observations, actions, rewards and ends. network: which network fits a run; a resumed one
has the value of its checkpoint. policy: whether a policy can be played, so its file stores it. games: the state of the
games in a checkpoint. evaluation: what an evaluation's score means. initial: whether the weights of the
`--initial-policy` fit, so it has that policy's value unless it is given. import: which code is imported, as
`MODULE:NAME`; see `engine.config.user_code`.
"""
ROLES: tuple[Role, ...] = get_args(Role)


def option(
    default: Any,
    group: str,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    low: float | None = None,
    high: float | None = None,
    metavar: str | None = None,
    usual: tuple[str, ...] | None = None,
    hidden: bool = False,
    roles: tuple[Role, ...] = (),
) -> Any:
    """A dataclass field with the metadata that the command line, the form and the validation read. Where not only
    `choices` are accepted, `usual` values can be completed. What is `hidden` nobody types: the game decides it, and
    the run stores it. `roles`: what depends on an option of a game."""
    meta = {"group": group, "help": help, "choices": choices, "low": low, "high": high, "metavar": metavar}
    meta |= {"usual": usual, "hidden": hidden, "roles": roles}
    return dataclasses.field(default=default, metadata=meta)


LARGEST = 2**53
"""Upper bound of a number without one of its own: a larger one is not exact in every type that it passes through."""


_BATCH_SIZES = "must be auto, or a whole number between 1 and 65,536"


class ConfigError(UserError):
    """An invalid value. `field` is the option's name; `reason` continues it: `must be between 0 and 1, got 2.0`."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{flag(field)} {reason}")
        self.field = field
        self.reason = reason


def flag(name: str) -> str:
    """Command-line spelling of a field: `batch_size` -> `--batch-size`."""
    return "--" + name.replace("_", "-")


def coerce(spec: FieldSpec, value: Any) -> Any:
    """The value in its field's type: a whole float (`1e5`) becomes an int, an int a float, and `none` None where a
    number may be unset. Raises `ConfigError`."""
    if value == NONE and may_be_unset(spec):
        return None
    if spec.name == "batch_size" and value == "auto":
        return AUTO
    if spec.name == "batch_size" and value == AUTO:
        raise ConfigError(spec.name, f"{_BATCH_SIZES}, got 0")
    if is_int(spec) and isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        return int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    if isinstance(spec.default, float) and is_whole:
        return float(value)
    return value


def may_be_unset(spec: FieldSpec) -> bool:
    """Return whether an option is a number that may be `none`."""
    return spec.default is None and not is_text(spec)


def is_text(spec: FieldSpec) -> bool:
    return "str" in str(spec.type)


def is_int(spec: FieldSpec) -> bool:
    return "int" in str(spec.type) and not isinstance(spec.default, bool)


def check(spec: FieldSpec, value: Any) -> None:
    """Raise `ConfigError` if `value` is invalid for the option."""
    meta = spec.metadata
    if value is None and spec.default is None:
        return
    if isinstance(spec.default, bool):
        if not isinstance(value, bool):
            raise ConfigError(spec.name, f"must be true or false, got {value!r}")
        return
    if is_text(spec):
        if not isinstance(value, str) or not value:
            raise ConfigError(spec.name, f"must be text, got {value!r}")
        if meta["choices"] and value not in meta["choices"]:
            raise ConfigError(spec.name, must_be_one_of(meta["choices"], value))
        return
    kind: tuple[type, ...] = (int,) if is_int(spec) else (int, float)
    low, high = meta["low"], meta["high"]
    in_range = (
        isinstance(value, int | float)
        and isinstance(value, kind)
        and not isinstance(value, bool)
        and (low is None or value >= low)
        and value <= (LARGEST if high is None else high)
    )
    if not in_range:
        if spec.name == "batch_size":  # whose lower bound is the number that stands for auto
            raise ConfigError(spec.name, f"{_BATCH_SIZES}, got {value!r}")
        if high is None and _is_too_large(value):
            raise ConfigError(spec.name, f"must be at most {LARGEST:,}, got {value!r}")
        raise ConfigError(
            spec.name, must_be_within(low, high, value, whole=is_int(spec), may_be_unset=may_be_unset(spec))
        )


def must_be_one_of(choices: Iterable[str], value: Any) -> str:
    """`must be one of a, b, got 'x'`."""
    choices = list(choices)
    return f"must be {'one of ' * (len(choices) > 1)}{', '.join(choices)}, got {value!r}"


def must_be_within(low: float, high: float | None, value: Any, *, whole: bool, may_be_unset: bool = False) -> str:
    """`must be between 0 and 1, got 2`; without an upper bound `must be a whole number of at least 1, got 0`."""
    between = f"at least {shown(low)}" if high is None else f"between {shown(low)} and {shown(high)}"
    noun = "" if not whole else "a whole number of " if high is None else "a whole number "
    unset = f"{NONE}, or " if may_be_unset else ""
    return f"must be {unset}{noun}{between}, got {value!r}"


def shown(value: Any) -> str:
    """A value as people write it: `1e-08`, `0.5`, `65,536`, `none`, `on`."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def read_number(text: str) -> int | float | str:
    """The number that `100_000`, `1e5` or `0.4` stands for.

    Text that is not a number, or too large for every option, is returned as it is: the error then shows what was typed.
    """
    for convert in (int, float):
        with contextlib.suppress(ValueError):
            value = convert(text)
            return text if abs(value) > LARGEST else value
    return text


def _is_too_large(value: Any) -> bool:
    try:
        return float(value) > LARGEST
    except OverflowError:
        return True
    except (TypeError, ValueError):
        return False
