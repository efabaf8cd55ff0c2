"""Numbers, durations and dates as short text; every value that a file may contain is handled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from engine.protocol.messages import Hello, Progress


def number(value: float | None) -> str:
    """About three significant digits, in scientific notation far from 1; a dash for None, NaN and infinity."""
    if value is None or not _is_finite(value):
        return "–"
    if 0 < abs(value) < 0.001:
        return _power(value, 1)
    if abs(value) >= 1e9:
        return _power(value, 2)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def short(value: float, decimals: int = 1) -> str:
    """A count in about four characters: 950, 12.3k, 1.2M, 3e15; a dash for NaN and infinity."""
    if not _is_finite(value):
        return "–"
    if value < 0:
        return f"-{short(-value, decimals)}"
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if value < limit:
            scaled = value / divisor
            whole = unit == "" or (scaled >= 100 and decimals == 1)
            return f"{scaled:.0f}{unit}" if whole else f"{scaled:.{decimals}f}{unit}"
    return _power(value, 0)


def distinct(values: Sequence[float]) -> list[str]:
    """`short` texts of a list, with up to three decimals where different values would look the same."""
    texts: list[str] = []
    for decimals in (1, 2, 3):
        texts = [short(value, decimals) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def steps(value: float) -> str:
    """A position on an axis of environment steps."""
    return f"{short(value)} steps"


def fitting(value: float, cells: int, form: Callable[[float], str] = number) -> str:
    """The number in that form, or in a coarser one that fits in `cells` cells; seven are enough for every number."""
    text = form(value)
    if len(text) <= cells:
        return text
    coarser = [short(value), short(value, 0)] if abs(value) >= 1 else [f"{value:.2f}"] if abs(value) >= 0.01 else []
    return next((text for text in coarser if len(text) <= cells), _power(value, 0)[:cells])


def _power(value: float, decimals: int) -> str:
    """1.2e-5, 1.2e40: without Python's plus sign and leading zero."""
    digits, _, exponent = f"{value:.{decimals}e}".partition("e")
    return f"{digits}e{int(exponent)}"


def shortened(text: str, cells: int) -> str:
    """The text, cut at its start if it is too long: paths and tags differ at their ends."""
    return text if len(text) <= cells else f"…{text[len(text) - max(0, cells - 1) :]}"


def number_or_whole(value: float) -> str:
    """The return or a result of an episode: a whole number without decimals, unless it is very large; another one as
    `number`."""
    return f"{value:.0f}" if _is_finite(value) and abs(value) < 1e9 and value % 1 == 0 else number(value)


def out_of(done: int, total: int, of: str = " of ") -> str:
    """`950 of 2,000`; `950` if the total is unknown (0)."""
    return f"{done:,}{of}{total:,}" if total else f"{done:,}"


def thousandths(value: float) -> str:
    """Three decimals; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def _is_finite(value: float) -> bool:
    """Whether the value is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def duration(seconds: float | None) -> str:
    """1:02:03, or 2d 03:04 from two days on."""
    if seconds is None or not _is_finite(seconds):
        return "–"
    if abs(seconds) >= 1e9:
        return f"{short(seconds / 86_400)}d"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}"


def fraction(part: float, whole: float) -> float:
    """`part / whole` within 0 to 1; 0 if it is undefined, because recordings may contain any value."""
    found = part / whole if whole else 0.0
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else 0.0


def percent(share: float) -> str:
    """A share of a whole; 0% and 100% only if it is exactly that, but for rounding errors."""
    is_nearly = 1e-9 < share < 0.01 or 0.99 < share < 1 - 1e-9
    return f"{min(max(share, 0.001), 0.999):.1%}" if is_nearly else f"{share:.0%}"


def done_share(hello: Hello, progress: Progress) -> float:
    """How much of a run is done: of its environment steps or of its episodes, whichever will end it first."""
    return max(fraction(progress.env_steps, hello.steps), fraction(progress.episodes, hello.episodes or 0))


def moment(at: float) -> str:
    """Day and time of a unix time: 03-31 12:59; a dash for times out of range."""
    try:
        return time.strftime("%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "–"


def gibibytes(count: float) -> str:
    """A size in GiB with one decimal."""
    return f"{count / 2**30:.1f}"
