"""Installs packages with games into a folder, as pip would, without a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config.command_line import presets
from engine.config.entry_points import GAMES, installed
from engine.config.game import DESCRIPTORS, options_with, own_options
from engine.config.run_config import options_of_all, specs_of, stored_options

SOURCE = Path(__file__).parent / "plugin_game"
IMPORTED_BY = "imported-by.txt"
_TRACE = """
import sys
from pathlib import Path
with Path(__file__).parent.with_name("imported-by.txt").open("a") as file:
    file.write(" ".join(sys.orig_argv) + "\\n")
"""


def install_catch(folder: Path) -> None:
    """Install `plugin_game`. Each process that imports it adds its command line to `IMPORTED_BY` in the folder."""
    shutil.copytree(SOURCE / "plugin_catch", folder / "plugin_catch")
    with (folder / "plugin_catch" / "__init__.py").open("a") as file:
        file.write(_TRACE)
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    add_metadata(folder, project["name"], project["entry-points"]["mario_tui.games"], project["version"])


def add_metadata(
    folder: Path, package: str, entry_points: dict[str, str], version: str = "1.0", group: str = GAMES
) -> None:
    """What pip writes for a package with these games, or entry points of another group."""
    metadata = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [f"{name} = {place}\n" for name, place in entry_points.items()]
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the processes that a test starts."""
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(folder) if not before else f"{folder}{os.pathsep}{before}")


def importers(folder: Path) -> list[str]:
    """The command lines of the processes that have imported the package."""
    file = folder / IMPORTED_BY
    return file.read_text().splitlines() if file.exists() else []


@contextlib.contextmanager
def catch_here(folder: Path) -> Iterator[None]:
    """Catch is installed in a folder for this process, which has forgotten it afterwards, and for those that it
    starts."""
    install_catch(folder)
    caches = (installed, own_options, options_with, specs_of, options_of_all, stored_options, presets)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        put_on_path(folder, patch)
        for cached in caches:
            cached.cache_clear()
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "plugin_catch"]:
                del sys.modules[name]
            DESCRIPTORS.pop("catch", None)
            for cached in caches:
                cached.cache_clear()
