"""What varies between the runs of a sweep: `--vary OPTION=VALUES` as settings, all combinations or a random sample."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.config.fields import FieldSpec, coerce, flag, is_int, is_text, read_number
from engine.config.run_config import options_of_all
from engine.errors import UserError
from engine.runs.sweep import MOST_RUNS
from engine.runtime.text import did_you_mean

_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_NOT_VARIED = {
    "seed": "--seeds", "run_dir": "--run-dir", "threads": "--threads", "game": "a sweep for each",
    "ray": "--ray",
}  # fmt: skip
"""Options that can't vary, and what to use instead."""


def option_named(text: str) -> FieldSpec:
    """An option as flags, files or keys spell it: `--learning-rate`, `learning_rate`. Raises `UserError`."""
    name = text.strip().removeprefix("--").replace("-", "_")
    specs = options_of_all()
    if name not in specs:
        meant = did_you_mean(flag(name), map(flag, specs))
        raise UserError(f"--vary: unknown option {text.strip()!r}{meant}")
    if name in _NOT_VARIED:
        raise UserError(f"--vary: {flag(name)} can't vary; use {_NOT_VARIED[name]}")
    return specs[name]


def value_of(spec: FieldSpec, text: str) -> Any:
    """A value as it is typed. Raises `UserError` for a switch that is neither on nor off; other values are checked with
    the whole run."""
    text = text.strip()
    if isinstance(spec.default, bool):
        if text.lower() not in _WORDS:
            raise UserError(f"--vary: {flag(spec.name)} must be true or false, got {text!r}")
        return _WORDS[text.lower()]
    if text.lower() == "none":
        return None
    if not is_text(spec):
        return coerce(spec, read_number(text))
    if text[:1] == '"':
        with contextlib.suppress(ValueError):
            return str(json.loads(text))
    return text


def split(text: str) -> tuple[FieldSpec, str]:
    """An option and its values from `OPTION=VALUES`. Raises `UserError`."""
    name, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise UserError(f"--vary: must be OPTION=VALUE,VALUE or, with --sample, OPTION=LOW..HIGH, got {text!r}")
    return option_named(name), values


def texts(varied: Sequence[str]) -> list[dict[str, Any]]:
    """Each value of the options that are text, by itself. Raises `UserError`."""
    found = [split(text) for text in varied]
    return [{spec.name: value_of(spec, each)} for spec, listed in found if is_text(spec) for each in _parts(listed)]


def _parts(listed: str) -> list[str]:
    """Values between commas, but for commas within quotes and JSON."""
    parts, depth, is_quoted, before = [""], 0, False, ""
    for character in listed:
        is_quoted ^= character == '"' and before != "\\"
        before = "" if before == "\\" else character
        depth += 0 if is_quoted else (character in "{[") - (character in "}]")
        if character == "," and depth <= 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def grid(varied: Sequence[str]) -> list[dict[str, Any]]:
    """All combinations of `OPTION=VALUE,VALUE`, the last option fastest. An option that is given twice has the values
    of both. Raises `UserError`."""
    values: dict[str, list[Any]] = {}
    for text in varied:
        spec, listed = split(text)
        if ".." in listed and not is_text(spec):
            raise UserError(f"--vary: {flag(spec.name)} has a range, which needs --sample N, got {listed!r}")
        found = values.setdefault(spec.name, [])
        for each in _parts(listed):
            value = value_of(spec, each)
            if value in found:
                raise UserError(f"--vary: {flag(spec.name)} has {each.strip()!r} twice")
            found.append(value)
    if (count := math.prod(map(len, values.values()))) > MOST_RUNS:
        raise UserError(
            f"--vary: must give at most {MOST_RUNS:,} settings, got {count:,}; --sample N tries some of them"
        )
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


@dataclass(frozen=True)
class Space:
    """The values that an option may have: those listed, or a range."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    is_log: bool = False
    is_int: bool = False

    def draw(self, source: random.Random) -> Any:
        """A random value."""
        if self.values:
            return source.choice(self.values)
        ends = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        value = source.uniform(*ends)
        return self.rounded(math.exp(value) if self.is_log else value)

    def rounded(self, value: float) -> int | float:
        """A number of the range that is short to type: whole, or with as many digits as tell a thousand places in it
        apart."""
        if self.is_int:
            return min(int(self.high), max(int(self.low), round(value)))
        span = abs(value) / 10 if self.is_log else self.high - self.low
        decimals = 3 - math.floor(math.log10(span))
        return min(self.high, max(self.low, round(value, decimals)))


def spaces(varied: Sequence[str]) -> list[Space]:
    """Return those of `OPTION=LOW..HIGH`, `OPTION=log:LOW..HIGH` and `OPTION=VALUE,VALUE`. Raises `UserError`."""
    found: dict[str, Space] = {}
    for text in varied:
        spec, listed = split(text)
        if spec.name in found:
            raise UserError(f"--vary: {flag(spec.name)} must be given once, with all its values")
        found[spec.name] = _space(spec, listed.strip())
    return list(found.values())


def _space(spec: FieldSpec, text: str) -> Space:
    low_text, dots, high_text = text.removeprefix("log:").partition("..")
    if not dots or is_text(spec) or isinstance(spec.default, bool):
        return Space(spec.name, values=tuple(value_of(spec, each) for each in _parts(text)))
    low, high, is_log = read_number(low_text), read_number(high_text), text.startswith("log:")
    if isinstance(low, str) or isinstance(high, str) or not low < high or (is_log and low <= 0):
        raise UserError(f"--vary: {flag(spec.name)} must be LOW..HIGH, or log:LOW..HIGH above 0, got {text!r}")
    if is_int(spec) and not (float(low).is_integer() and float(high).is_integer()):
        raise UserError(f"--vary: {flag(spec.name)} must be between whole numbers, got {text!r}")
    return Space(spec.name, low=low, high=high, is_log=is_log, is_int=is_int(spec))


def sample(varied: Sequence[str], count: int, seed: int) -> list[dict[str, Any]]:
    """`count` random settings of `spaces`; the same for a seed. Raises `UserError`."""
    drawn, source, found = spaces(varied), random.Random(seed), list[dict[str, Any]]()
    for _ in range(100 * count):
        setting = {space.name: space.draw(source) for space in drawn}
        if setting not in found:
            found.append(setting)
        if len(found) == count:
            return found
    raise UserError(f"--sample: must be at most {len(found)}, the different settings that there are, got {count}")
