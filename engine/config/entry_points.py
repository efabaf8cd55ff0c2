"""Finds the games and sinks of installed packages, and imports none of them.

A package offers a game with an entry point of the group `mario_tui.games`: `name = package.module:Descriptor`, and a
sink with one of `mario_tui.sinks`. Looking for the group's name in the files costs 1 ms; `importlib.metadata` would
need 40, and is imported only if there is one.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engine.runtime.text import printable

GAMES, SINKS = "mario_tui.games", "mario_tui.sinks"
"""Groups of entry points."""
_NAME = re.compile("[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Plugin:
    """A game or a sink of an installed package."""

    name: str
    place: str
    """Its descriptor or class, as `module:class`."""
    package: str
    version: str
    metadata: Path
    """The folder that describes the package, `*.dist-info`."""


@cache
def installed() -> dict[str, Plugin]:
    """The games of installed packages by name, whether they can be used or not."""
    found: dict[str, Plugin] = {}
    built_in = importlib.import_module("engine.games").BUILT_IN
    for plugin in offered(GAMES):
        if not _NAME.fullmatch(plugin.name):
            refuse(plugin, "its name must be lower-case letters, digits and hyphens")
        elif plugin.name in built_in:
            refuse(plugin, "a built-in game has its name")
        elif plugin.name in found:
            refuse(plugin, f"package {found[plugin.name].package} has a game of that name")
        else:
            found[plugin.name] = plugin
    return found


def refusal(plugin: Plugin, reason: str) -> str:
    """The line that tells why a game can't be used."""
    return printable(f"the game {plugin.name!r} of package {plugin.package} can't be used: {reason}")


def refuse(plugin: Plugin, reason: str) -> None:
    """Tell on standard error, or in the log of a run, why a game can't be used. Of a run's processes the host tells."""
    import logging
    import multiprocessing

    if multiprocessing.parent_process() is None:
        logging.getLogger(GAMES).warning("mario-tui: %s", refusal(plugin, reason))


def offered(group: str) -> Iterator[Plugin]:
    """All entry points of a group. Of a package that is installed twice, those that Python would import."""
    seen = set()
    for folder in map(Path, sys.path):
        for metadata in _metadata_folders(folder, group):
            package, _, version = metadata.stem.partition("-")
            if package in seen:
                continue
            seen.add(package)
            from importlib.metadata import PathDistribution

            for entry in PathDistribution(metadata).entry_points.select(group=group):
                yield Plugin(entry.name, f"{entry.module}:{entry.attr}", package, version, metadata)


def _metadata_folders(folder: Path, group: str) -> Iterator[Path]:
    """Those of the packages in a folder that have an entry point of a group."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith((".dist-info", ".egg-info")))
    except OSError:  # such as a zip file, or a folder that is gone
        return
    for name in names:
        try:
            text = (folder / name / "entry_points.txt").read_bytes()
        except OSError:
            continue
        if group.encode() in text:
            yield folder / name
