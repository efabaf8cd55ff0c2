"""Measurements of a run: the machine it runs on (`machine`), its memory (`memory_budget`), and how its processes spend
their time (`split`).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol.messages import Split
from engine.runtime.stopwatch import SECTIONS, SHARED, Stopwatch

__all__ = ["SECTIONS", "Stopwatch", "split"]
_MIN_FRACTION = 0.0005


def split(before: Sequence[float], after: Sequence[float], process: str = "", names: Sequence[str] = SECTIONS) -> Split:
    """Split the time between two results of `Stopwatch.row` among the sections `names`.

    The result has 0 seconds if `after` is from another process than `before` (a restarted one).
    """
    n = len(names)
    change = [late - early for early, late in zip(before, after, strict=True)]
    seconds = change[0]
    if before[0] == 0 or seconds <= 0 or min(change[1:]) < 0:
        return Split(process=process, seconds=0.0, loop={}, busy={}, cpu={})
    does, waits, shares = change[1 : n + 1], change[n + 1 : 2 * n + 1], change[2 * n + 1]
    all_do, cpu = change[2 * n + 2 : 3 * n + 2], change[3 * n + 2 :]
    loop = [one + other for one, other in zip(does, waits, strict=True)]
    slots = [names.index(section) for section in SHARED if section in names]
    others = [all_do[slot] - does[slot] for slot in slots]
    for slot, part in zip(slots, others, strict=True):
        loop[slot] += shares * part / sum(others) if sum(others) > 0 else shares / len(slots)

    def by_name(values: Sequence[float]) -> dict[str, float]:
        found = zip(names, values, strict=True)
        return {name: value / seconds for name, value in found if value / seconds >= _MIN_FRACTION}

    return Split(process=process, seconds=seconds, loop=by_name(loop), busy=by_name(all_do), cpu=by_name(cpu))
