"""No tracker opens a database in a run's folder that somebody else has made: SQLite deletes what its journal names."""

from __future__ import annotations

import shutil
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.runs.marks import check_databases
from engine.runs.registry import register
from engine.runs.run import Run
from tests.engine.extras.trackers.test_trackers import needs
from tests.support.program import run_program, the_run

SHORT = ("--no-ui", "--game", "snake", "--board", "5x5", "--burnin", "100", "--eval-every", "0")
KILLED = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")  # so that it writes before the end of the transaction
database.execute("BEGIN")
database.execute("CREATE TABLE half AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
                 "SELECT i, hex(randomblob(100)) FROM n")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)


def plant(database: Path, victim: Path) -> Path:
    """A database with a journal that has SQLite delete a file when it is opened. Returns the journal's path."""
    database.parent.mkdir(exist_ok=True)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS planted (a)")
    connection.close()
    (size,) = struct.unpack(">H", database.read_bytes()[16:18])
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(victim).encode()
    header = magic + struct.pack(">5I", 0, 1234, database.stat().st_size // size, 512, size)
    end = struct.pack(">2I", len(name), sum(name)) + magic
    journal = database.with_name(f"{database.name}-journal")
    journal.write_bytes(header.ljust(512, b"\0") + struct.pack(">I", 0x40000000 // size + 1) + name + end)
    return journal


def test_what_is_planted_deletes_a_file(tmp_path: Path) -> None:
    """Else the other tests show nothing."""
    (victim := tmp_path / "victim").write_text("precious")
    plant(tmp_path / "some.db", victim)
    connection = sqlite3.connect(tmp_path / "some.db")
    assert connection.execute("SELECT * FROM planted").fetchall() == []
    connection.close()
    assert not victim.exists()


@pytest.mark.parametrize(
    ("sinks", "asked"),
    [
        ("mlflow", "MLFLOW_TRACKING_URI=sqlite:///{}/mlflow.db"),
        ("json-lines,mlflow:policy", "MLFLOW_TRACKING_URI=sqlite:///{}/mlflow.db"),
        ("trackio", "TRACKIO_DIR={}/trackio"),
    ],
)
def test_a_database_in_a_strangers_run_is_opened_only_if_the_user_names_it(
    sinks: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gift"
    folder.mkdir()
    trusted = asked.format(folder)
    with pytest.raises(UserError, match=f"which was not made here by you; .* if you trust it: {trusted}$"):
        check_databases(folder, sinks)
    check_databases(folder, "json-lines,wandb")
    monkeypatch.setenv(*trusted.split("=", 1))
    check_databases(folder, sinks)
    journal = plant(folder / ("trackio/mario-tui.db" if sinks == "trackio" else "mlflow.db"), tmp_path / "victim")
    for end in ("-journal", "-wal"):
        journal = journal.rename(str(journal).replace("-journal", end))
        with pytest.raises(
            UserError, match=f"{journal.name}: is a journal in {folder}, which was not made here by you"
        ):
            check_databases(folder, sinks)
    register(Run(folder))
    check_databases(folder, sinks)


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in ("mlflow", "trackio")])
@pytest.mark.process
def test_a_strangers_run_deletes_nothing_and_ones_own_resumes_after_a_kill(name: str, tmp_path: Path) -> None:
    run_program(*SHORT, "--steps", "300", "--sinks", name, cwd=tmp_path)
    run = the_run(tmp_path)
    (database,) = run.path.glob("mlflow.db" if name == "mlflow" else "trackio/mario-tui*.db")
    gift = Run(Path(shutil.copytree(run.path, tmp_path / "gift")))
    (victim := tmp_path / "victim").write_text("precious")
    plant(gift.path / database.relative_to(run.path), victim)
    done = run_program("--no-ui", "--resume", str(gift.path), "--steps", "400", "--sinks", name, cwd=tmp_path, check=2)
    (line,) = done.stderr.splitlines()
    assert f"{name} would open a database in {gift.path}, which was not made here by you" in line
    assert victim.exists() and gift.record().env_steps == run.record().env_steps

    subprocess.run([sys.executable, "-c", KILLED, str(database)], check=False)
    assert (
        database.with_name(f"{database.name}-journal").exists() or database.with_name(f"{database.name}-wal").exists()
    )
    run_program("--no-ui", "--resume", str(run.path), "--steps", "400", cwd=tmp_path)
    assert "no more metrics are written" not in run.log_path.read_text()
    with sqlite3.connect(database) as connection:
        assert "half" not in str(connection.execute("SELECT name FROM sqlite_master").fetchall())
    connection.close()
