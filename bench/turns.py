"""Contestants that take turns, so that slow phases of the machine affect all, measured in wall time and CPU time; and
what tables say of the machine."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from engine.runtime.threads import machine_cpu_seconds, processor_name


@dataclass
class Contestant:
    """A row of a table. `step` does the work once; it is None if a package is missing, which `missing` names."""

    name: str
    step: Callable[[], Any] | None = None
    missing: str = ""
    count: int = 1  # steps that one call of `step` counts for: its environments
    cpu_clock: Callable[[], float] = time.process_time
    rates: list[float] = field(default_factory=list)  # steps per second of each turn
    cpu_rates: list[float] = field(default_factory=list)  # the same per second of CPU time
    others: list[float] = field(default_factory=list)  # share of the machine taken by other programs in each turn

    @property
    def median(self) -> float:
        return statistics.median(self.rates) if self.rates else 0.0

    @property
    def cpu_median(self) -> float:
        return statistics.median(self.cpu_rates) if self.cpu_rates else 0.0

    def turn(self, seconds: float) -> None:
        """Step for `seconds`, at least once, and record the rates."""
        assert self.step is not None
        steps, cpu, busy, begin = 0, self.cpu_clock(), machine_cpu_seconds(), time.perf_counter()
        while (spent := time.perf_counter() - begin) < seconds or steps == 0:
            self.step()
            steps += self.count
        cpu, busy = self.cpu_clock() - cpu, machine_cpu_seconds() - busy
        self.rates.append(steps / spent)
        self.cpu_rates.append(steps / cpu)
        self.others.append(max(0.0, (busy - cpu) / (spent * (os.cpu_count() or 1))))

    def report(self) -> dict[str, Any]:
        return {
            "what": self.name,
            "missing": self.missing or None,
            "per_s": self.rates,
            "per_cpu_s": self.cpu_rates,
            "median": self.median or None,
            "median_per_cpu_s": self.cpu_median or None,
        }


def take_turns(contestants: Sequence[Contestant], rounds: int, seconds: float) -> None:
    """Warm up all contestants, then let them take turns."""
    present = [contestant for contestant in contestants if contestant.step]
    for contestant in present:
        contestant.turn(0.2)
        for kept in (contestant.rates, contestant.cpu_rates, contestant.others):
            kept.clear()
    for _ in range(rounds):
        for contestant in present:
            contestant.turn(seconds)


def add_cores(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cores", type=int, metavar="N", help="use only the first N cores (Linux; default: all)")


def use_cores(first: int | None) -> int:
    """Let this process and those that it starts use only the first cores, if a number is given; returns how many they
    may use."""
    if first:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:first])
    return cores()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def not_installed(needed: dict[str, str]) -> str:
    """The packages to install, given {module: requirement}; empty if all are installed."""
    missing = [requirement for module, requirement in needed.items() if find_spec(module) is None]
    return f"not installed (pip install {' '.join(missing)})" if missing else ""


def machine(contestants: Sequence[Contestant]) -> dict[str, Any]:
    """The machine, and the share of it that other programs took."""
    others = [share for contestant in contestants for share in contestant.others]
    return {
        "cores": cores(),
        "processor": processor_name(),
        "python": platform.python_version(),
        "others_median": statistics.median(others),
        "others_max": max(others),
    }


def machine_line(found: dict[str, Any]) -> str:
    return (
        f"{found['cores']} cores ({found['processor']}), Python {found['python']}; meanwhile other programs took "
        f"{found['others_median']:.0%} of the machine (median of the turns; {found['others_max']:.0%} at most)"
    )


def times(value: float | None) -> str:
    """A ratio, formatted for a table."""
    return "–" if not value else f"{value:.2f}x"
