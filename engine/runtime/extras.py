"""How to add an extra, a set of optional packages of mario-tui, to this installation."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit


def install_command(extra: str) -> str:
    """The command that installs an extra: into the clone that this program runs from, else from the index."""
    try:
        origin = distribution("mario-tui").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    folder = None
    with contextlib.suppress(FileNotFoundError):  # it has been deleted
        folder = Path.cwd()
    return _command(extra, origin, Path(sys.prefix) / "bin/pip", folder)


def _command(extra: str, origin: str | None, pip: Path, folder: Path | None) -> str:
    """`origin`: where the package was installed from, as the Python Packaging User Guide specifies `direct_url.json`.
    Paths in `folder` are relative."""
    said = json.loads(origin or "{}")
    if not said.get("dir_info", {}).get("editable"):
        return f"pip install 'mario-tui[{extra}]'"
    clone, program = Path(unquote(urlsplit(said["url"]).path)), str(pip) if pip.is_file() else "pip"
    if clone == folder:
        return f"{shlex.quote(program.removeprefix(f'{folder}/'))} install -e '.[{extra}]'"
    return f"{shlex.quote(program)} install -e {shlex.quote(f'{clone}[{extra}]')}"
