"""Finds a run or a sweep that a user names. Where one is named in place of the other, the error says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.runs.registry import LATEST, SWEEP_FILE, list_runs
from engine.runs.run import Run, is_run
from engine.runs.sweep import Sweep, list_sweeps

_RunOrSweep = TypeVar("_RunOrSweep", Run, Sweep)


class WrongNameError(UserError):
    """A name is that of a sweep where a run is expected, or of several."""


def find_run(name: str, run_dir: str | Path | None = None) -> Run:
    """Find a run by its path, or among those of `list_runs` by its name or `latest`.

    Raises `WrongNameError` if it is a sweep, or if several have the name; `UserError`, with the names of the newest
    runs, if there is no such run.
    """
    runs = list_runs(run_dir)
    if found := _run(name, runs):
        return found
    where = "" if run_dir is None else f" in {run_dir}"
    if name == LATEST:
        raise UserError(f"latest: there is no run{where} yet")
    if _sweep(name, list_sweeps()):
        raise WrongNameError(
            f"{name}: is a sweep, not a run; use: mario-tui sweep watch {name} (or sweep stop, resume, wait)"
        )
    known = ", ".join(run.name for run in runs[:5]) or "none"
    raise UserError(f"{name}: no such run{where}; accepted: a run's name or path, or latest (newest: {known})")


NO_SWEEPS = "no sweeps yet; start one with: mario-tui sweep --vary OPTION=VALUE,VALUE --seeds N"


def find_sweep(name: str) -> Sweep:
    """A sweep by its path, by its name, or `latest`. Raises `UserError` if there is none, or if it is a run."""
    sweeps = list_sweeps()
    if found := _sweep(name, sweeps):
        return found
    if name != LATEST and _run(name, list_runs()):
        raise UserError(f"{name}: is a run, not a sweep; use: mario-tui attach {name} (or stop, pause, wait)")
    if not sweeps:
        raise UserError(NO_SWEEPS if name == LATEST else f"no sweep {name!r}; {NO_SWEEPS}")
    raise UserError(f"no sweep {name!r}; there are: {', '.join(sweep.name for sweep in sweeps[:5])}")


def _run(name: str, runs: list[Run]) -> Run | None:
    if name != LATEST and is_run(Path(name)):
        return Run(Path(name))
    return _named(name, runs)


def _sweep(name: str, sweeps: list[Sweep]) -> Sweep | None:
    if (Path(name) / SWEEP_FILE).is_file():
        return Sweep(Path(name))
    return _named(name, sweeps)


def _named(name: str, known: Sequence[_RunOrSweep]) -> _RunOrSweep | None:
    """The newest for `latest`; else the one with the name, in the run folder of the working directory if there are
    several. Raises `UserError` if there are several and none, or more than one, lies there."""
    if name == LATEST:
        return known[0] if known else None
    found = [each for each in known if each.name == name]
    if len(found) > 1:
        here = Path(RunConfig.run_dir).resolve()
        near = [each for each in found if here in each.path.parents]
        if len(near) != 1:
            paths = ", ".join(str(each.path) for each in found)
            raise WrongNameError(f"{name}: {len(found)} have this name; give one of the paths: {paths}")
        found = near
    return found[0] if found else None
