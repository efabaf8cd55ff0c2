"""What is noted as the user's own counts only where nobody else can have noted it."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.errors import UserError
from engine.runs import marks
from engine.runs.lookup import rename
from engine.runs.marks import check_code, is_trusted, trust, was_created_here
from engine.runs.registry import create_run, list_runs, register
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan, list_sweeps
from mario_tui.extras.sweeps.folder import create_sweep
from tests.security.test_compiler import OTHER, only_root

KINDS: tuple[marks.Kind, ...] = ("runs", "code", "sweeps", "folders")
CODE = b'{"network": "nets:Mine"}'


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This program's state folder, which does not exist yet, nor does the one above."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "local" / "state"))
    return tmp_path / "local" / "state" / "mario-tui"


def made(run_dir: Path) -> tuple[Run, Sweep]:
    """A run of this user's that names code, and a sweep."""
    run = create_run(make_config({"game": "snake", "run_dir": str(run_dir)}), "own")
    marks.write("code", run.path, CODE)
    trust(run.path)
    return run, create_sweep(run_dir, "mine", SweepPlan({"game": "snake"}, 1, None, (Member({}, 1),)))


def trusted(run: Run, sweep: Sweep) -> list[bool]:
    """What is believed of them: that the user has chosen the run's code, trusts its files, and made it and the
    sweep."""
    others = [is_trusted(run.path), was_created_here(run.path), sweep.is_own]
    try:
        check_code({"game": "gym", "network": "nets:Mine"}, {}, run.path, "the run")
    except ConfigError:
        return [False, *others]
    return [True, *others]


def listed() -> list[Path]:
    return [*(run.path for run in list_runs()), *(sweep.path for sweep in list_sweeps())]


def test_marks_lie_where_only_this_user_gets(state: Path, tmp_path: Path) -> None:
    mask = os.umask(0o002)
    try:
        run, sweep = made(tmp_path / "runs")
    finally:
        os.umask(mask)
    folders = state.parent.parent, state.parent, state, *(state / kind for kind in KINDS)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert trusted(run, sweep) == [True] * 4
    assert listed() == [run.path, sweep.path]


def test_folders_of_an_earlier_version_are_closed_and_what_the_user_noted_still_counts(
    state: Path, tmp_path: Path
) -> None:
    run, sweep = made(tmp_path / "runs")
    folders = state, *(state / kind for kind in KINDS)
    for folder in folders:
        folder.chmod(0o775)
    assert trusted(run, sweep) == [True] * 4
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


@pytest.mark.parametrize("where", ["above", "link", pytest.param("another user's", marks=only_root)])
def test_no_mark_counts_where_others_can_write(where: str, state: Path, tmp_path: Path) -> None:
    run, sweep = made(tmp_path / "runs")
    match where:
        case "above":
            state.parent.chmod(0o777)
        case "link":
            (open_to_all := tmp_path / "open").mkdir()
            open_to_all.chmod(0o777)
            state.rename(open_to_all / "state")
            state.symlink_to(open_to_all / "state")
        case _:
            os.chown(state, OTHER, OTHER)
    assert trusted(run, sweep) == [False] * 4
    assert listed() == []
    reason = "belongs to another user" if where == "another user's" else "can be written by others"
    with pytest.raises(ConfigError, match=f"whether you started it is unknown, because .* {reason}; if you trust it"):
        check_code({"game": "gym", "network": "nets:Mine"}, {}, run.path, "the run")
    with pytest.raises(UserError, match=f"may have been made by somebody else, because .* {reason}"):
        sweep.own_plan()
    with pytest.raises(UserError, match=rf"can't be written \(.* {reason}\)"):
        create_sweep(tmp_path / "runs", "another", sweep.plan())
    register(run)  # is no reason to fail


@pytest.mark.parametrize("how", ["hard link", "link", "writable", pytest.param("another user's", marks=only_root)])
def test_a_mark_that_others_may_have_planted_does_not_count(how: str, state: Path, tmp_path: Path) -> None:
    run, sweep = made(tmp_path / "runs")
    for kind in KINDS:
        mark = marks.mark_of(kind, sweep.path if kind == "sweeps" else run.path)
        match how:
            case "hard link":
                (tmp_path / f"file of {kind}").hardlink_to(mark)
            case "link":
                mark.rename(tmp_path / f"file of {kind}")
                mark.symlink_to(tmp_path / f"file of {kind}")
            case "writable":
                mark.chmod(0o664)
            case _:
                os.chown(mark, OTHER, OTHER)
    assert trusted(run, sweep) == [False] * 4
    assert listed() == []


def test_another_folder_in_the_place_of_a_marked_one_is_not_trusted(tmp_path: Path) -> None:
    run, _ = made(tmp_path / "runs")
    shutil.copytree(run.path, tmp_path / "gift")
    shutil.rmtree(run.path)
    shutil.copytree(tmp_path / "gift", run.path)
    with pytest.raises(ConfigError, match="names code that would run; if you trust it: nets:Mine"):
        check_code({"game": "gym", "network": "nets:Mine"}, {}, run.path, "the run")
    assert not was_created_here(run.path)
    marks.write("code", run.path, CODE)  # the user resumes it, and types what it names
    check_code({"game": "gym", "network": "nets:Mine"}, {}, run.path, "the run")
    assert not was_created_here(run.path)


def test_a_mark_of_another_run_is_none(tmp_path: Path) -> None:
    """Who could write to the folder once may have renamed marks of this user's."""
    run, _ = made(tmp_path / "runs")
    gift = Path(shutil.copytree(run.path, tmp_path / "gift"))
    marks.mark_of("runs", run.path).rename(marks.mark_of("runs", gift))
    assert not was_created_here(gift)


def test_a_mark_of_an_earlier_version_counts(state: Path, tmp_path: Path) -> None:
    run, sweep = made(tmp_path / "runs")
    shutil.rmtree(state / "births")
    assert all(trusted(run, sweep))


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[]", b'{"x":' + b"[" * 100_000], ids=["empty", "bytes", "list", "nested"]
)
def test_a_damaged_mark_is_none(content: bytes, tmp_path: Path) -> None:
    run, sweep = made(tmp_path / "runs")
    marks.mark_of("code", run.path).write_bytes(content)
    marks.mark_of("sweeps", sweep.path).write_bytes(content)
    assert trusted(run, sweep)[0] is False and not sweep.is_own
    rename(run, "later")
    rename(sweep, "then")
    assert listed()[0] == run.path.with_name("later")


def test_a_rename_makes_no_mark_of_a_planted_one(state: Path, tmp_path: Path) -> None:
    run, sweep = made(tmp_path / "runs")
    for mark in (marks.mark_of("code", run.path), marks.mark_of("sweeps", sweep.path)):
        mark.chmod(0o666)
    rename(run, "later")
    rename(sweep, "then")
    assert trusted(Run(run.path.with_name("later")), Sweep(sweep.path.with_name("then"))) == [False, True, True, False]
