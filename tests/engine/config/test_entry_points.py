"""Entry points that packages write badly cost a line each, whatever they contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.config.entry_points import GAMES, offered
from tests.support.plugins import put_on_path
from tests.support.program import run_program

HEAD = b"[mario_tui.games]\n"
GOOD = b"good = package.module:Game\n"
BAD = {
    b"bad =": "entry point 'bad' of package broken must be package.module:name, got ''",
    b"bad = plugin-catch.game:Catch": "got 'plugin-catch.game:Catch'",
    b"bad = module": "got 'module'",
    b"bad = module:": "got 'module:'",
    b"bad = :Game": "got ':Game'",
    b"bad = module:Game:Game": "got 'module:Game:Game'",
    b"bad = \x1b[31mmodule:Game": r"got '\x1b[31mmodule:Game'",
    b"bad": "entry_points.txt of package broken can't be read: TypeError",
    b"\xff = module:Game": "entry_points.txt of package broken can't be read: UnicodeDecodeError",
}


def package(site: Path, name: str, entry_points: bytes) -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_bytes(HEAD + entry_points)


@pytest.mark.parametrize("line", BAD)
def test_a_badly_written_one_is_named_and_others_are_found(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package(tmp_path, "broken", line)
    package(tmp_path, "whole", GOOD)
    monkeypatch.syspath_prepend(tmp_path)
    assert [plugin.place for plugin in offered(GAMES) if plugin.package != "broken"] == ["package.module:Game"]
    (record,) = caplog.records
    assert BAD[line] in record.getMessage()


def test_extras_of_the_package_may_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "whole", b"good = package.module:Game [extra]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [plugin.place for plugin in offered(GAMES)] == ["package.module:Game"]


@pytest.mark.process
def test_commands_work_beside_a_bad_one_and_beside_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "broken", b"bad =\n")
    (tmp_path / "pipe-1.0.dist-info").mkdir()
    os.mkfifo(tmp_path / "pipe-1.0.dist-info" / "entry_points.txt")
    put_on_path(tmp_path, monkeypatch)
    done = run_program("--help", cwd=tmp_path)
    assert done.stderr.splitlines() == ["mario-tui: " + BAD[b"bad ="]]
