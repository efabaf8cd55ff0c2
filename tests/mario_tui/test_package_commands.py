"""Commands of installed packages, through the real program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.config.entry_points import COMMANDS
from engine.config.run_config import RunConfig
from engine.runs.registry import create_run
from engine.runs.run import RunRecord
from tests.support.plugins import add_metadata, put_on_path
from tests.support.program import run_program

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
BAD = {
    "missing": ("", "ModuleNotFoundError: No module named 'plugin_best'"),
    "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
    "lacks": ("", "AttributeError: module 'plugin_best.command' has no attribute 'run'"),
    "no-function": ("run = 1", "plugin_best.command:run must be a function"),
    "no-status": (
        "def run(arguments): print(arguments)",
        "plugin_best.command:run must return an exit status, got None",
    ),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    put_on_path(folder, monkeypatch)
    return folder


def install(site: Path, source: str | None, name: str = "best", package: str = "plugin-best") -> None:
    add_metadata(site, package, {name: "plugin_best.command:run"}, group=COMMANDS)
    if source is not None:
        (site / "plugin_best").mkdir(exist_ok=True)
        (site / "plugin_best" / "command.py").write_text(source)


def record(folder: Path, name: str, mean_return: float) -> None:
    run = create_run(RunConfig(run_dir=str(folder / "checkpoints")), name)
    run.write_record(
        RunRecord(
            name=name, game="mario", task="1-1", runner="single", state="finished", steps=1, created_at=0, updated_at=0,
            mean_return=mean_return,
        )
    )  # fmt: skip


def test_the_command_of_the_page_works_and_is_listed(site: Path, tmp_path: Path) -> None:
    (source,) = re.findall(r"\*\*plugin_best/command\.py\*\*\n\n```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert 'best = "plugin_best.command:run"' in PAGE.read_text("utf-8")
    install(site, source)
    record(tmp_path, "worse", 1.0)
    record(tmp_path, "better", 2.0)
    assert run_program("best", "mario", cwd=tmp_path).stdout == "better\n"
    assert "error: no run of snake has episodes\n" in run_program("best", "snake", cwd=tmp_path, check=2).stderr
    assert "usage: mario-tui best [-h] game" in run_program("help", "best", cwd=tmp_path).stdout


def test_it_is_imported_only_when_it_is_called(site: Path, tmp_path: Path) -> None:
    install(site, "from pathlib import Path\nPath('imported').touch()\ndef run(arguments): return len(arguments)")
    assert "  mario-tui best                  of package plugin_best\n" in run_program("--help", cwd=tmp_path).stdout
    assert "best:'of package plugin_best'" in run_program("completion", "zsh", cwd=tmp_path).stdout
    assert "best" in run_program("bets", cwd=tmp_path, check=2).stderr
    run_program("runs", cwd=tmp_path)
    assert not (tmp_path / "imported").exists()
    run_program("best", "--a", "b", "c", cwd=tmp_path, check=3)
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("what", BAD)
def test_one_that_can_not_be_used_is_one_line(what: str, site: Path, tmp_path: Path) -> None:
    source, reason = BAD[what]
    install(site, None if what == "missing" else source)
    line = f"mario-tui: error: the command 'best' of package plugin_best can't be used: {reason}\n"
    assert run_program("best", cwd=tmp_path, check=2).stderr == line
    assert run_program("--help", cwd=tmp_path).stderr == ""


def test_a_built_in_command_and_the_first_package_keep_their_names(site: Path, tmp_path: Path) -> None:
    source = "def run(arguments): return 7"
    install(site, source, "runs", "a")
    install(site, source, "help", "b")
    install(site, source, "best", "c")
    install(site, source, "best", "d")
    install(site, source, "No Name", "e")
    assert "no runs yet" in run_program("runs", cwd=tmp_path).stdout
    assert run_program("help", cwd=tmp_path).stderr.splitlines() == [
        "mario-tui: the command 'runs' of package a can't be used: a built-in command has its name",
        "mario-tui: the command 'help' of package b can't be used: a built-in command has its name",
        "mario-tui: the command 'best' of package d can't be used: package c has a command of that name",
        "mario-tui: the command 'No Name' of package e can't be used: its name must be lower-case letters, digits and "
        "hyphens",
    ]
    run_program("best", cwd=tmp_path, check=7)
