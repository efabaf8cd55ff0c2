"""The command that a hint names can be typed as it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mario_tui.engine_command import program
from tests.support.program import PROGRAM

pytestmark = pytest.mark.process


@pytest.mark.parametrize("where", ["inside", "outside", "on the path", "module"])
def test_a_hint_names_a_command_that_the_shell_finds(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my project"
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "mario-tui"
    shutil.copy(PROGRAM[0], script)
    monkeypatch.chdir(tmp_path if where == "outside" else folder)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin" if where == "on the path" else "/usr/bin:/bin")
    if where != "module":
        monkeypatch.setattr(sys, "argv", ["bin/mario-tui" if where == "inside" else str(script)])
    expected = {"inside": "bin/mario-tui", "on the path": "mario-tui"}
    assert program() == expected.get(where, program())
    done = subprocess.run(["sh", "-c", f"{program()} --version"], capture_output=True, text=True)
    assert done.stdout.startswith("mario-tui "), done.stderr
