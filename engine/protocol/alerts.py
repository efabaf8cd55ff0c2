"""The limits of alerts, as `--alerts` sets them: `stalled=1e6,slow=none`."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class AlertLimits:
    """From where on each rule alerts; None: never."""

    above: float | None = None
    """`fell` needs a best evaluation above this: a clear rate (None: 0.5), or a mean return where the game is not
    judged by clears (None: any, after five evaluations)."""
    fell: float | None = 0.5
    """An evaluation has lost this share of what the best one had gained since the first."""
    stalled: float | None = 0.25
    """Environment steps without a better evaluation, or below 1 the share of the run's steps."""
    slow: float | None = 3.0
    """Steps/s are lower than usual by this factor, for a minute."""
    lost: float | None = 3.0
    """Times that an actor was lost."""
    memory: float | None = 4.0
    """Percent of memory that are left."""
    disk: float | None = 1.0
    """GiB of disk space that are left."""
    failing: float | None = 10.0
    """Percent of the last 100 episodes in which the environment failed."""
    loss: float | None = 1.0
    """1: the loss is not finite."""


def alert_limits(text: str) -> AlertLimits:
    """The usual limits with those that the text sets; `none`: no alerts. Raises `ValueError` that says what it must
    be."""
    names = [each.name for each in fields(AlertLimits)]
    if text in ("usual", "none"):
        return AlertLimits(**dict.fromkeys(names if text == "none" else ()))
    given: dict[str, float | None] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        value = math.nan
        with contextlib.suppress(ValueError):
            value = math.inf if number == "none" else float(number)
        if name not in names or not (value >= 0 or (name == "above" and math.isfinite(value))):
            raise ValueError(f"must be usual, none, or RULE=NUMBER|none,... with {', '.join(names)}, got {part!r}")
        given[name] = None if value == math.inf else value
    return AlertLimits(**given)
