"""Finds a run or a sweep that a user names. Where one is named in place of the other, the error says so."""

from __future__ import annotations

from pathlib import Path

from engine.errors import UserError
from engine.runs.registry import LATEST, list_runs
from engine.runs.run import Run, is_run
from engine.runs.sweep import SWEEP_FILE, Sweep, list_sweeps


class NamesSweepError(UserError):
    """A sweep was named where a run is expected."""


def find_run(name: str, run_dir: str | Path | None = None) -> Run:
    """Find a run by its path, or among those of `list_runs` by its name or `latest`.

    Raises `NamesSweepError` if it is a sweep; `UserError`, with the names of the newest runs, if there is no such run.
    """
    runs = list_runs(run_dir)
    if found := _run(name, runs):
        return found
    where = "" if run_dir is None else f" in {run_dir}"
    if name == LATEST:
        raise UserError(f"latest: there is no run{where} yet")
    if _sweep(name, list_sweeps()):
        raise NamesSweepError(
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
    return next((run for run in runs if name in (LATEST, run.name)), None)


def _sweep(name: str, sweeps: list[Sweep]) -> Sweep | None:
    if (Path(name) / SWEEP_FILE).is_file():
        return Sweep(Path(name))
    return next((sweep for sweep in sweeps if name in (LATEST, sweep.name)), None)
