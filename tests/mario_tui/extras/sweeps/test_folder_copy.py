"""The copy of a run's folder that is elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.runs.checkpoints import committed, seal, verify
from engine.runs.run import Run
from mario_tui.extras.sweeps.folder_copy import Changes, Follower, write_changes


def checkpoint(run: Run, steps: int) -> None:
    folder = run.path / f"step-{steps:012}"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(str(steps))
    seal(folder, steps, 0)


def tree(run: Run) -> list[str]:
    return sorted(path.relative_to(run.path).as_posix() for path in run.path.rglob("*") if not path.is_dir())


def test_a_copy_follows_its_run(tmp_path: Path) -> None:
    run, copy = Run(tmp_path / "there" / "run"), Run(tmp_path / "here" / "run")
    checkpoint(run, 100)
    run.record_path.write_text("1")
    (run.path / "run.lock").touch()
    (run.path / "replay").mkdir()
    (run.path / "replay" / "states").touch()
    (run.path / "foreign").symlink_to("/etc/passwd")
    follower = Follower(run)
    write_changes(copy, follower.take())
    assert tree(copy) == ["run.json", "step-000000000100/manifest.json", "step-000000000100/weights"]
    assert follower.take() == Changes({}, {}, ["step-000000000100"])

    checkpoint(run, 200)
    (run.path / "step-000000000100" / "manifest.json").unlink()
    run.record_path.write_text("12")
    write_changes(copy, follower.take("record"))
    assert copy.record_path.read_text() == "12" and [each.name for each in committed(copy)] == ["step-000000000100"]
    write_changes(copy, follower.take())
    assert [verify(each).env_steps for each in committed(copy)] == [200]


def test_a_checkpoint_that_is_not_complete_is_no_part_of_a_copy(tmp_path: Path) -> None:
    run, copy = Run(tmp_path / "there" / "run"), Run(tmp_path / "here" / "run")
    checkpoint(run, 100)
    (run.path / "step-000000000100" / "weights").rename(tmp_path / "weights")
    follower = Follower(run)
    write_changes(copy, follower.take())
    assert tree(copy) == []

    (tmp_path / "weights").rename(run.path / "step-000000000100" / "weights")
    changes = follower.take()
    write_changes(copy, changes)
    assert verify(copy.path / "step-000000000100").env_steps == 100
    changes.checkpoints["step-000000000100"]["weights"] = b"cut off"
    write_changes(copy, changes)
    assert verify(copy.path / "step-000000000100").env_steps == 100


def test_folders_of_trackers_are_copied_with_all_else(tmp_path: Path) -> None:
    run, copy = Run(tmp_path / "there" / "run"), Run(tmp_path / "here" / "run")
    for name in ("wandb/offline/run.wandb", "trackio/runs.db", "trackio/runs.db-wal", "trackio/.half"):
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_text(name)
    (run.path / "trackio" / "foreign").symlink_to("/etc/passwd")
    (run.path / "linked").symlink_to(run.path / "trackio")
    follower = Follower(run)
    write_changes(copy, follower.take("files"))
    assert tree(copy) == []
    write_changes(copy, follower.take())
    assert tree(copy) == ["trackio/runs.db", "trackio/runs.db-wal", "wandb/offline/run.wandb"]

    (copy.path / "pictures").mkdir()
    (copy.path / "pictures" / "own.png").touch()
    (run.path / "trackio" / "runs.db-wal").unlink()
    write_changes(copy, follower.take())
    assert tree(copy) == ["pictures/own.png", "trackio/runs.db", "wandb/offline/run.wandb"]
    (copy.path / "pictures").rename(tmp_path / "pictures")
    (copy.path / "pictures").symlink_to(tmp_path / "pictures")
    with pytest.raises(OSError, match="no name of a file"):
        write_changes(copy, Changes({"pictures/other.png": b"x"}, {}, []))


@pytest.mark.parametrize("name", ["../run.json", "..", "", "/etc/passwd", "a/../b", "a//b"])
def test_nothing_is_written_beside_a_copy(name: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "run")
    with pytest.raises(OSError, match="no name of a file"):
        write_changes(run, Changes({name: b"x"}, {}, []))
    for checkpoints in ({name: {"x": b"x"}}, {"step-000000000100": {name: b"x"}}):
        with pytest.raises(OSError, match="no name of a file"):
            write_changes(run, Changes({}, checkpoints, []))
    assert not any(path.is_file() for path in (tmp_path / "runs").rglob("*"))
