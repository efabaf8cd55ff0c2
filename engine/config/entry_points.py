"""Finds the games, sinks and commands of installed packages, and imports none of them.

A package offers a game with an entry point of the group `mario_tui.games`: `name = package.module:Descriptor`, a sink
with one of `mario_tui.sinks`, and a command with one of `mario_tui.commands`. Looking for the group's name in the files
costs 1 ms; `importlib.metadata` would need 40, and is imported only if there is one.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.runtime.files import read_bounded
from engine.runtime.text import printable

GAMES, SINKS, COMMANDS = "mario_tui.games", "mario_tui.sinks", "mario_tui.commands"
"""Groups of entry points."""
_NAME = re.compile("[a-z0-9][a-z0-9-]*")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_VALUE = re.compile(rf"({_DOTTED}:{_DOTTED})\s*(?:\[.*\])?")  # extras of the package may follow
_MAX_BYTES = 2**20


@dataclass(frozen=True)
class Plugin:
    """A game, a sink or a command of an installed package."""

    name: str
    place: str
    """Its descriptor, class or function, as `module:name`."""
    package: str
    version: str
    metadata: Path
    """The folder that describes the package, `*.dist-info`."""


@cache
def installed() -> dict[str, Plugin]:
    """The games of installed packages by name, whether they can be used or not."""
    return usable(GAMES, "game", importlib.import_module("engine.games").BUILT_IN)


def usable(group: str, kind: str, built_in: Collection[str]) -> dict[str, Plugin]:
    """The entry points of a group by name, without those that can't have theirs."""
    found: dict[str, Plugin] = {}
    for plugin in offered(group):
        if not _NAME.fullmatch(plugin.name):
            refuse(plugin, "its name must be lower-case letters, digits and hyphens", kind)
        elif plugin.name in built_in:
            refuse(plugin, f"a built-in {kind} has its name", kind)
        elif plugin.name in found:
            refuse(plugin, f"package {found[plugin.name].package} has a {kind} of that name", kind)
        else:
            found[plugin.name] = plugin
    return found


def refusal(plugin: Plugin, reason: str, kind: str = "game") -> str:
    """Return the line that tells why a game or a command can't be used."""
    return printable(f"the {kind} {plugin.name!r} of package {plugin.package} can't be used: {reason}")


def refuse(plugin: Plugin, reason: str, kind: str = "game") -> None:
    """Tell on standard error, or in the log of a run, why a game or a command can't be used."""
    _warn(refusal(plugin, reason, kind))


def _warn(line: str) -> None:
    """Of a run's processes the host tells."""
    import logging
    import multiprocessing

    if multiprocessing.parent_process() is None:
        logging.getLogger(GAMES).warning("mario-tui: %s", line)


def offered(group: str) -> Iterator[Plugin]:
    """All entry points of a group. Of a package that is installed twice, those that Python would import. What is badly
    written is left out, with a line on standard error or in the log of a run."""
    seen = set()
    for folder in map(Path, sys.path):
        for metadata in _metadata_folders(folder, group):
            package, _, version = metadata.stem.partition("-")
            if package in seen:
                continue
            seen.add(package)
            from importlib.metadata import PathDistribution

            try:
                entries = PathDistribution(metadata).entry_points.select(group=group)
            except Exception as error:  # the parser raises whatever its code meets
                reason = f"{type(error).__name__}: {error}"
                _warn(printable(f"entry_points.txt of package {package} can't be read: {reason}"))
                continue
            for entry in entries:
                if found := _VALUE.fullmatch(entry.value):
                    yield Plugin(entry.name, found[1], package, version, metadata)
                else:
                    place = f"entry point {entry.name!r} of package {package}"
                    _warn(printable(f"{place} must be package.module:name, got {entry.value!r}"))


def _metadata_folders(folder: Path, group: str) -> Iterator[Path]:
    """Return those of the packages in a folder that have an entry point of a group."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:  # such as a zip file, or a folder that is gone
        return
    for name in names:
        try:
            text = read_bounded(folder / name / "entry_points.txt", _MAX_BYTES, links=True)
        except OSError:
            continue
        if group.encode() in text:
            yield folder / name
