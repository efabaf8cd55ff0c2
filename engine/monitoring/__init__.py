"""Measurements of a run: the machine it runs on (`machine`), its memory (`memory_budget`), and how its processes spend
their time (`time_split`).
"""

from engine.monitoring.time_split import split
from engine.runtime.stopwatch import SECTIONS, Stopwatch

__all__ = ["SECTIONS", "Stopwatch", "split"]
