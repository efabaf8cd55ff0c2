"""`mario-tui rename` and `delete`: the folders of runs and sweeps."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import UserError
from engine.runs.lookup import check_idle, delete, find_run_or_sweep, rename
from engine.runs.run import Run
from engine.runs.sweep import Sweep
from engine.runtime.text import printable
from mario_tui.commands.options import Parser, add_run_dir, existing

_FAILED, _REFUSED = 1, 2


@dataclass(frozen=True)
class _Result:
    """What became of one run or sweep, as `--json` prints it."""

    name: str
    path: str | None = None
    reason: str | None = None
    """Why it was not deleted."""
    status: int = 0


def folders_parser(name: str) -> argparse.ArgumentParser:
    """Parser of the command `name`."""
    return _rename_parser() if name == "rename" else _delete_parser()


def _rename_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui rename", description="Rename a run or a sweep. One that trains must be stopped before."
    )
    parser.add_argument("run", metavar="RUN", help="name or path of a run or a sweep, or latest")
    parser.add_argument("name", metavar="NEW", help="its new name")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_run_dir(parser)
    return parser


def _delete_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui delete",
        description="Delete runs and sweeps, with their checkpoints, policies and logs. Asks first, which needs a "
        "terminal. What trains must be stopped before.",
    )
    parser.add_argument("run", nargs="+", metavar="RUN", help="name or path of a run or a sweep, or latest")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print one JSON array, with an object for each")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    """Run the command that the first of `arguments` names."""
    name, *others = arguments
    return _rename(others) if name == "rename" else _delete(others)


def _rename(arguments: list[str]) -> int:
    options = _rename_parser().parse_args(arguments)
    before = _found(options.run, existing(options.run_dir))
    now = rename(before, options.name)
    if options.json:
        print(json.dumps({"name": now.name, "path": str(now.path), "before": str(before.path)}))
    else:
        print(printable(f"{before.name}: is now {now.name}, in {now.path}"))
    return 0


def _delete(arguments: list[str]) -> int:
    options = _delete_parser().parse_args(arguments)
    run_dir = existing(options.run_dir)
    if not options.yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError("delete asks before it deletes, which needs a terminal; without one, give --yes")
    results, chosen = dict[str, _Result](), dict[Path, Run | Sweep]()
    for name in options.run:
        try:
            found = _found(name, run_dir)
            check_idle(found)
            chosen[found.path] = found
        except UserError as error:
            results[name] = _told(_Result(name, reason=str(error), status=_REFUSED))
    if chosen and not options.yes and not _agreed([*chosen.values()]):
        print("nothing was deleted", file=sys.stderr)
        return _FAILED
    for path, found in sorted(chosen.items(), key=lambda each: isinstance(each[1], Sweep)):  # runs before their sweeps
        result = _Result(found.name, str(path))
        try:
            delete(found)
            if not options.json:
                print(printable(f"{found.name}: deleted"), flush=True)
        except UserError as error:
            result = _told(_Result(found.name, str(path), reason=str(error), status=_REFUSED))
        results[str(path)] = result
    if options.json:
        print(json.dumps([asdict(result) for result in results.values()], indent=2))
    return max(result.status for result in results.values())


def _told(result: _Result) -> _Result:
    print(printable(f"mario-tui: error: {result.reason}"), file=sys.stderr, flush=True)
    return result


def _agreed(chosen: list[Run | Sweep]) -> bool:
    """Return whether the user says yes."""
    for each in chosen:
        print(
            printable(f"{each.name}: {each.path}{' (a sweep with its runs)' * isinstance(each, Sweep)}"),
            file=sys.stderr,
        )
    it, lost = ("it", "its") if len(chosen) == 1 else ("all " + str(len(chosen)), "their")
    question = f"Delete {it}, with {lost} checkpoints, policies and logs? This can't be undone. [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _found(name: str, run_dir: str | None) -> Run | Sweep:
    """The run or sweep with that name or path. Raises `UserError`, also for a link to one."""
    if Path(name).is_symlink():
        raise UserError(f"{name}: is a link; give the folder that it leads to")
    return find_run_or_sweep(name, run_dir)
