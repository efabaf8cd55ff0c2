"""Finds a run or a sweep that a user names. Where one is named in place of the other, the error says so."""

from __future__ import annotations

import contextlib
import shlex
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
    """The name belongs to a sweep where a run is expected, or to more than one run or sweep."""


def find_run(name: str, run_dir: str | Path | None = None) -> Run:
    """Find a run by its path, or among those of `list_runs` by its name or `latest`.

    Raises `WrongNameError` if it is a sweep, or if several have the name; `UserError`, with the names of the newest
    runs, if there is no such run.
    """
    if name != LATEST and is_run(Path(name)):
        return Run(Path(name))
    runs = list_runs(run_dir)
    if found := _named(name, runs, run_dir):
        return found
    where = "" if run_dir is None else f" in {run_dir}"
    if name == LATEST:
        raise UserError(f"latest: there is no run{where} yet")
    if _is_sweep(Path(name)) or any(sweep.name == name for sweep in list_sweeps()):
        raise WrongNameError(
            f"{name}: is a sweep, not a run; use: mario-tui sweep watch {name} (or sweep stop, resume, wait)"
        )
    known = ", ".join(run.name for run in runs[:5]) or "none"
    raise UserError(f"{name}: no such run{where}; accepted: a run's name or path, or latest (newest: {known})")


NO_SWEEPS = "no sweeps yet; start one with: mario-tui sweep --vary OPTION=VALUE,VALUE --seeds N"


def find_sweep(name: str) -> Sweep:
    """A sweep by its path, by its name, or `latest`. Raises `UserError` if there is none, if it is a run, or if several
    have the name."""
    if name != LATEST and _is_sweep(Path(name)):
        return Sweep(Path(name))
    sweeps = list_sweeps()
    if found := _named(name, sweeps, None):
        return found
    if name != LATEST and (is_run(Path(name)) or any(run.name == name for run in list_runs())):
        raise UserError(f"{name}: is a run, not a sweep; use: mario-tui attach {name} (or stop, pause, wait)")
    if not sweeps:
        raise UserError(NO_SWEEPS if name == LATEST else f"no sweep {name!r}; {NO_SWEEPS}")
    raise UserError(f"no sweep {name!r}; there are: {', '.join(sweep.name for sweep in sweeps[:5])}")


def how_to_name(found: Run | Sweep) -> str:
    """What a command finds it by: its name, or if that is another's here, its path."""
    with contextlib.suppress(UserError):
        same = find_run(found.name) if isinstance(found, Run) else find_sweep(found.name)
        if same.path == found.path:
            return found.name
    return shlex.quote(str(found.path))


def _is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def _named(name: str, known: Sequence[_RunOrSweep], run_dir: str | Path | None) -> _RunOrSweep | None:
    """The newest for `latest`; else the one with the name. Of several it is the one in the run folder, or in a sweep
    there. Raises `WrongNameError` if that leaves more than one."""
    if name == LATEST:
        return known[0] if known else None
    found = [each for each in known if each.name == name]
    if len(found) < 2:
        return found[0] if found else None
    here = Path(run_dir or RunConfig.run_dir).resolve()
    in_it = [each for each in found if each.path.parent == here]
    below = [each for each in found if here in each.path.parents]
    nearest = in_it or below
    if len(nearest) == 1:
        return nearest[0]
    paths = ", ".join(str(each.path) for each in found)
    raise WrongNameError(f"{name}: {len(found)} have this name; give one of the paths: {paths}")
