"""The copy of a run's folder that is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.runs.checkpoints import committed
from engine.runs.folder_copy import Changes, Follower, write_changes
from engine.runs.run import Run


def checkpoint(run: Run, steps: int) -> None:
    folder = run.path / f"step-{steps:012}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(str(steps))


def test_a_copy_follows_its_run(tmp_path: Path) -> None:
    run, copy = Run(tmp_path / "there" / "run"), Run(tmp_path / "here" / "run")
    checkpoint(run, 100)
    run.record_path.write_text("1")
    (run.path / "run.lock").touch()
    (run.path / "replay").mkdir()
    (run.path / "foreign").symlink_to("/etc/passwd")
    follower = Follower(run)
    write_changes(copy, follower.take())
    assert sorted(each.name for each in copy.path.iterdir()) == ["run.json", "step-000000000100"]
    assert follower.take() == Changes({}, {}, ["step-000000000100"])

    checkpoint(run, 200)
    (run.path / "step-000000000100" / "manifest.json").unlink()
    run.record_path.write_text("12")
    write_changes(copy, follower.take(record_only=True))
    assert copy.record_path.read_text() == "12" and [each.name for each in committed(copy)] == ["step-000000000100"]
    write_changes(copy, follower.take())
    assert [(each / "manifest.json").read_text() for each in committed(copy)] == ["200"]


@pytest.mark.parametrize("name", ["../run.json", "..", "", "/etc/passwd", "a/b"])
def test_nothing_is_written_beside_a_copy(name: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with pytest.raises(OSError, match="no name of a file"):
        write_changes(run, Changes({name: b"x"}, {}, []))
    for checkpoints in ({name: {"x": b"x"}}, {"step-000000000100": {name: b"x"}}):
        with pytest.raises(OSError, match="no name of a file"):
            write_changes(run, Changes({}, checkpoints, []))
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
