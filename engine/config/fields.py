"""One option of a run: what the command line, the file and the form need to know of it, and what it accepts.

An option is a field of a dataclass whose default says its type. Imports without torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from engine.errors import UserError

GAMES = ("mario", "snake", "tetris")
RUNNERS = ("single", "parallel", "ddp", "apex")
AUTO = 0
"""As a batch size: found by a short measurement when the run starts."""

FieldSpec = dataclasses.Field[Any]


def option(
    default: Any,
    group: str,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    low: float | None = None,
    high: float | None = None,
    metavar: str | None = None,
    games: tuple[str, ...] = GAMES,
    runners: tuple[str, ...] = RUNNERS,
) -> Any:
    """A dataclass field with what the command line and the validation need to know about it."""
    meta = {
        "group": group, "help": help, "choices": choices, "low": low, "high": high, "metavar": metavar,
        "games": games, "runners": runners,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=meta)


LARGEST = 2**53
"""Of a number without a bound of its own: larger ones don't fit everywhere they pass through."""


class ConfigError(UserError):
    """A value that a field does not accept; `field` is its name, `reason` says what would be accepted."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{flag(field)}: {reason}")
        self.field = field
        self.reason = reason


def flag(name: str) -> str:
    """Command-line spelling of a field: `batch_size` -> `--batch-size`."""
    return "--" + name.replace("_", "-")


def coerce(spec: FieldSpec, value: Any) -> Any:
    """TOML and `1e5`-style numbers: a whole float is accepted where an int is asked for, and an int as a float."""
    if spec.name == "batch_size" and value == "auto":
        return AUTO
    if spec.name == "batch_size" and value == AUTO:
        raise ConfigError(spec.name, "0 is not accepted; accepted: auto, or a whole number from 1 to 65,536")
    if is_int(spec) and isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST:
        return int(value)
    if isinstance(spec.default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def is_text(spec: FieldSpec) -> bool:
    return "str" in str(spec.type)


def is_int(spec: FieldSpec) -> bool:
    return "int" in str(spec.type) and not isinstance(spec.default, bool)


def check(spec: FieldSpec, value: Any) -> None:
    """Raises `ConfigError` if an option does not accept a value."""
    meta = spec.metadata
    if value is None and spec.default is None:
        return
    if isinstance(spec.default, bool):
        if not isinstance(value, bool):
            raise ConfigError(spec.name, f"{value!r} is not accepted; accepted: true, false")
        return
    if is_text(spec):
        if not isinstance(value, str) or not value:
            raise ConfigError(spec.name, f"{value!r} is not accepted; accepted: a text")
        if meta["choices"] and value not in meta["choices"]:
            raise ConfigError(spec.name, f"{value!r} is not accepted; accepted: {', '.join(meta['choices'])}")
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
        accepted = f"up to {LARGEST:,}" if high is None and _is_too_large(value) else _range(spec)
        raise ConfigError(spec.name, f"{value!r} is not accepted; accepted: {accepted}")


def read_number(text: str) -> int | float | str:
    """What `100_000`, `1e5` or `0.4` mean. What is no number stays a text, and so does one that is too large for every
    option: an error then shows it as it was typed."""
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


def _range(spec: FieldSpec) -> str:
    meta = spec.metadata
    noun = "a whole number" if is_int(spec) else "a number"
    low, high = (None if bound is None else f"{bound:,}" for bound in (meta["low"], meta["high"]))
    return f"{noun} from {low} to {high}" if high is not None else f"{noun} of {low} or more"
