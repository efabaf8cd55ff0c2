"""A run whose folder is renamed while it trains, replaced by another one, or deleted."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from engine.host.client import HostClient
from engine.protocol import messages
from engine.protocol.commands import Checkpoint, Stop
from engine.runs import checkpoints
from engine.runs.marks import mark_of
from engine.runs.registry import list_runs
from engine.runs.run import HeldRun, Run
from tests.support.program import PATIENCE_S, headless, next_event, read_event, the_run, wait_until

pytestmark = pytest.mark.process

SNAKE = ("--game", "snake", "--board", "5x5", "--burnin", "100", "--eval-every", "0", "--steps", "100000000")


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_run_whose_folder_is_renamed_goes_on(tmp_path: Path) -> None:
    with headless(*SNAKE, "--sinks", "json-lines", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        before, now = run.path, tmp_path / "elsewhere" / "renamed"
        mark_of("code", before).parent.mkdir(parents=True)
        mark_of("code", before).write_text('{"network": "nets:Mine"}')
        with HostClient(run) as connected:
            now.parent.mkdir()
            before.rename(now)
            assert next_event(connected, messages.Hello).path == str(now)
            assert run.path == now
            connected.send(Checkpoint())
            saved = next_event(connected, messages.Saved, lambda event: event.kind == "checkpoint")
            assert Path(saved.path).parent == now and Path(saved.path).is_dir()
        wait_until(lambda: Run(now).record().checkpoint == saved.path, "the record")
        assert Run(now).record().state == "running"
        assert now in [each.path for each in list_runs()]
        assert mark_of("code", now).read_text() == '{"network": "nets:Mine"}'
        assert not mark_of("code", before).exists() and not mark_of("runs", before).exists()

        def reachable() -> bool:
            with HostClient(Run(now)) as client:
                client.send(Stop())
            return True

        wait_until(reachable, "its new socket")
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert not before.exists()
    ended = [json.loads(line) for line in (now / "metrics.jsonl").read_text().splitlines()][-1]
    assert ended["event"] == "summary" and ended["run"] == "renamed"
    assert Run(now).record().state == "finished" and checkpoints.newest(Run(now)) is not None


def test_a_run_in_whose_place_another_folder_stands_ends_in_order_and_leaves_that_alone(tmp_path: Path) -> None:
    with headless(*SNAKE, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run, aside = the_run(tmp_path), tmp_path / "aside"
        others = {"run.json", "history.msgpack"}
        path = run.path
        path.rename(aside)
        path.mkdir()
        for name in others:
            (path / name).write_text("of somebody else")
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert {file.name: file.read_text() for file in path.iterdir()} == dict.fromkeys(others, "of somebody else")
    record = Run(aside).record()
    assert record.told_state == "stopped" and record.reason == f"another folder stands at {path}"
    assert record.checkpoint is not None and Path(record.checkpoint) == checkpoints.newest(Run(aside))


def test_a_run_whose_folder_is_deleted_ends(tmp_path: Path) -> None:
    with headless(*SNAKE, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        path = the_run(tmp_path).path

        def is_gone() -> bool:
            shutil.rmtree(path, ignore_errors=True)  # the host may write a file just now
            return not path.exists()

        wait_until(is_gone, "its end")
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        assert "its folder was removed, or moved to where it can't be found" in err
    assert not path.exists()


def test_a_held_run_is_found_wherever_it_is(tmp_path: Path) -> None:
    first, second, gone = (tmp_path / name for name in ("first", "second", "gone"))
    first.mkdir()
    run = HeldRun(first)
    try:
        way_in = run.folder.way_in
        first.rename(second)
        first.mkdir()
        assert run.look() == run.path == second
        (way_in / "file").touch()
        assert (second / "file").exists() and not any(first.iterdir())
        second.rename(gone)
        shutil.rmtree(gone)
        second.mkdir()
        with pytest.raises(FileNotFoundError):
            run.look()
    finally:
        os.close(run.folder.descriptor)
