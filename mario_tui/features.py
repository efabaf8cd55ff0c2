"""What the program offers besides home and training, by name.

Each row names a module, which is imported only when it is needed. Where a folder of `mario_tui.extras` is missing, so
are the rows that need it: the help doesn't name them, and whoever asks for one gets a line.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine.config.features import is_there

if TYPE_CHECKING:
    from engine.config.entry_points import Plugin


@dataclass(frozen=True)
class Command:
    """A command. Its module has `run(arguments)`, which returns the exit status."""

    module: str
    parser: str
    """A function of the module that makes the parser, for completion."""
    usage: str
    about: str
    """This and `usage` are its line in the help."""
    is_daily: bool = False
    is_shared: bool = False
    """The module has several commands: `run` and the parser take the name first."""
    of_runs: bool = False
    """It takes the options of runs: the parser takes the game and the runner whose options it shows."""
    needs: str = ""
    """A package of `engine.extras` without which the command is not there either."""


def _row(place: str, usage: str, about: str, parser: str = "", **more: Any) -> Command:
    """A row of `COMMANDS`: of the module at a place in `mario_tui`, whose parser is named like it unless told."""
    return Command(f"mario_tui.{place}", parser or f"{place.rpartition('.')[2]}_parser", usage, about, **more)


COMMANDS = {
    "attach": _row(
        "commands.attach", "[RUN|PATH]", "dashboard of a running or finished run; charts of event files", is_daily=True
    ),
    "runs": _row("commands.runs", "[--json]", "list runs", is_daily=True),
    "stop": _row("commands.control", "RUN...", "write a checkpoint and end the run", is_daily=True, is_shared=True),
    "eval": _row(
        "commands.evaluate", "CHECKPOINT", "clear rate and return over many episodes", "eval_parser", is_daily=True
    ),
    "play": _row(
        "extras.play", "[CHECKPOINT]", "watch a policy; --human: play yourself; --record FILE", is_daily=True,
        needs="engine.extras.playing",
    ),
    "sweep": _row(
        "extras.sweeps.command", "[...]", "many runs: options that vary, seeds, a table with intervals", "sweep_parser",
        is_daily=True, of_runs=True,
    ),
    "policies": _row("commands.policies", "[--json]", "list trained policies: of the package, and of your runs"),
    "pause": _row("commands.control", "RUN...", "pause training", is_shared=True),
    "resume-training": _row("commands.control", "RUN", "continue training after a pause", is_shared=True),
    "checkpoint": _row("commands.control", "RUN...", "write a checkpoint", is_shared=True),
    "wait": _row("commands.control", "RUN...", "wait until runs have ended; exit with their status", is_shared=True),
    "follow": _row("commands.follow", "RUN", "print what --no-ui prints, of a run that is there", is_shared=True),
    "logs": _row("commands.follow", "RUN", "print run.log; --follow", is_shared=True),
    "alerts": _row("extras.alerts", "RUN|SWEEP", "what is wrong; --since T, --follow, --alert-command CMD"),
    "rename": _row("commands.folders", "RUN NEW", "give a run or a sweep another name", is_shared=True),
    "delete": _row("commands.folders", "RUN...", "delete runs and sweeps; asks first", is_shared=True),
    "distill": _row(
        "extras.distill", "POLICY ...", "teach one network what several policies play",
        needs="engine.extras.distillation",
    ),
    "profile": _row(
        "extras.profile", "[...]", "time per section, bottlenecks, and faster options", of_runs=True,
        needs="engine.extras.profiling",
    ),
    "export": _row("extras.export", "[RUN|PATH]", "scalars of a run or of event files: CSV, JSON lines or Parquet"),
    "schema": _row("commands.schema", "WHAT", "JSON Schema of options, events, runs, policies or plans"),
    "assistants": _row("extras.assistants", "", "what a program needs that runs experiments, as Markdown"),
    "serve": _row("extras.serve", "", "the terminal UI in a browser; --host ADDRESS, --port N"),
    "mcp": _row("extras.mcp", "", "a server of the Model Context Protocol, for assistants"),
    "completion": _row("extras.completion", "SHELL", "script for the completion of bash, zsh or fish"),
}  # fmt: skip
"""By name, in the order of the help."""

SCHEMAS = {"plan": ("mario_tui.extras.sweeps.options", "a file of sweep --plan")}
"""Those that `mario-tui schema` prints besides its own: the module whose function `schema` makes it, and of what."""

VIEWERS = ("mario_tui.extras.event_files",)
"""Modules that show files of other programs (`attach PATH`), with the functions `shows(path) -> bool`,
`problem_of(path) -> str` and `screen(path)`. The first one waits for a path that is not there yet."""

GROUPS = {"sweep.json": "mario_tui.extras.sweeps"}
"""Modules that make one row of the home screen for the runs in a folder with this file: `listed(folder, runs)`."""


def commands() -> dict[str, Command]:
    """The commands whose modules are there."""
    return {
        name: command
        for name, command in COMMANDS.items()
        if is_there(command.module) and is_there(command.needs or command.module)
    }


def schemas() -> dict[str, tuple[str, str]]:
    """Those of `SCHEMAS` whose modules are there."""
    return {name: each for name, each in SCHEMAS.items() if is_there(each[0])}


@cache
def package_commands() -> dict[str, Plugin]:
    """The commands of installed packages by name. What can't be one is left out, with a line on standard error."""
    from engine.config.entry_points import COMMANDS as GROUP
    from engine.config.entry_points import usable

    return usable(GROUP, "command", {*COMMANDS, "help"})


def viewers() -> list[ModuleType]:
    return [importlib.import_module(place) for place in VIEWERS]


def group_of(folder: Path) -> ModuleType | None:
    """The module that lists the runs in a folder as one; None if they are listed one by one."""
    places = (place for file, place in GROUPS.items() if (folder / file).exists() and is_there(place))
    return next(map(importlib.import_module, places), None)


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """The folder of extras that an import has failed for; None if it was for something else."""
    found = re.match(r"(engine|mario_tui)\.extras(\.\w+)?", error.name or "")
    return found and found[0]
