"""`mario-tui rename` and `delete`: runs and sweeps, what is left alone, and what is still trusted afterwards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from engine.config.fields import ConfigError
from engine.config.reading import make_config
from engine.errors import UserError
from engine.runs import lookup
from engine.runs.lookup import find_run_or_sweep
from engine.runs.marks import check_code, mark_of, was_created_here
from engine.runs.registry import create_run, list_runs
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan, list_sweeps
from mario_tui.commands import folders
from mario_tui.extras.sweeps.folder import create_sweep
from tests.support.app import hold
from tests.support.program import Terminal, refusal

NETWORK = "nets:Mine"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def made(name: str, run_dir: str = "checkpoints") -> Run:
    """A run of this user's that has ended, and names code."""
    run = create_run(make_config({"game": "snake", "run_dir": run_dir}), name)
    record = run.record()
    record.state, record.reason = "finished", "stopped"
    run.write_record(record)
    mark_of("code", run.path).parent.mkdir(exist_ok=True)
    mark_of("code", run.path).write_text(json.dumps({"network": NETWORK}))
    return run


def made_sweep(name: str) -> tuple[Sweep, list[Run]]:
    """A sweep whose runs have ended."""
    plan = SweepPlan({"game": "snake"}, 1, None, tuple(Member({}, seed) for seed in range(2)))
    sweep = create_sweep(Path("checkpoints"), name, plan)
    return sweep, [made(sweep.run(number).name, str(sweep.path)) for number in range(2)]


def is_trusted(path: Path) -> bool:
    """Whether code that a run names would be imported, and its sinks started."""
    try:
        check_code({"game": "gym", "network": NETWORK}, {}, path, "the run")
    except ConfigError:
        assert not was_created_here(path)
        return False
    return was_created_here(path)


def test_a_renamed_run_keeps_its_trust_and_leaves_none_behind(capsys: pytest.CaptureFixture[str]) -> None:
    run = made("before")
    shutil.copytree(run.path, "copy")
    assert is_trusted(run.path)
    assert folders.run(["rename", "before", "after", "--json"]) == 0
    now = run.path.with_name("after")
    assert json.loads(capsys.readouterr().out) == {"name": "after", "path": str(now), "before": str(run.path)}
    assert [each.path for each in list_runs()] == [now] and Run(now).record().name == "after"
    assert is_trusted(now)
    shutil.move("copy", run.path)  # somebody else's is unpacked in its place
    assert not is_trusted(run.path)
    assert folders.run(["rename", "before", "third"]) == 0
    assert not is_trusted(run.path.with_name("third"))


def test_a_renamed_sweep_keeps_its_runs_and_its_plan() -> None:
    sweep, runs = made_sweep("before")
    assert folders.run(["rename", "before", "after"]) == 0
    now = find_run_or_sweep("after")
    assert isinstance(now, Sweep) and now.own_plan().members and [each.path for each in list_sweeps()] == [now.path]
    assert [now.run(number).path for number in range(2)] == [now.path / run.name for run in runs]
    assert all(is_trusted(now.path / run.name) and not is_trusted(run.path) for run in runs)
    assert not sweep.path.exists()


def test_several_are_deleted_and_what_can_not_be_keeps_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    one, kept, (sweep, runs) = made("one"), made("kept"), made_sweep("both")
    shutil.copytree(one.path, "copy")
    assert folders.run(["delete", "both", "one", "missing", "both-002", "--yes", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["path"], each["status"]) for each in told] == [
        ("missing", None, 2),
        ("one", str(one.path), 0),
        ("both-002", str(runs[1].path), 0),
        ("both", str(sweep.path), 0),
    ]
    assert [each.path for each in list_runs()] == [kept.path] and not list_sweeps()
    assert not one.path.exists() and not sweep.path.exists()
    shutil.move("copy", one.path)
    assert not any(map(is_trusted, (one.path, *(run.path for run in runs))))


def test_what_trains_is_neither_renamed_nor_deleted(tmp_path: Path) -> None:
    run, (sweep, (member, _)) = made("alone"), made_sweep("both")
    for held, names, stop in (
        (run, ["alone"], "stop alone"),
        (member, ["both", member.name], f"stop {member.name}"),
    ):
        with hold(held):
            for name in names:
                for command in (("rename", name, "other"), ("delete", name, "--yes")):
                    line = refusal(*command, cwd=tmp_path)
                    assert f"is running; stop it first: mario-tui {stop}" in line
    with sweep.lock():
        for command in (("rename", "both", "other"), ("delete", "both", "--yes")):
            assert refusal(*command, cwd=tmp_path).endswith("is running; stop it first: mario-tui sweep stop both")
    assert all(path.is_dir() for path in (run.path, sweep.path, member.path))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rename", "one", "two"), "two exists already; choose another name"),
        (("rename", "one", "../two"), "the new name must be up to 100 letters"),
        (("rename", "one", "latest"), "the new name must not be latest"),
        (("rename", "both-001", "other"), "both-001: is a run of the sweep both, which can be renamed as a whole"),
        (("rename", "link", "other"), "link: is a link; give the folder that it leads to"),
        (("delete", "link", "--yes"), "link: is a link; give the folder that it leads to"),
        (("rename", "nothing", "other"), "nothing: no such run or sweep; accepted: a name or path, or latest"),
        (("delete", "checkpoints", "--yes"), "not a run of mario-tui"),
        (("delete", "project", "--yes"), "not a run of mario-tui"),
        (("delete", "one"), "delete asks before it deletes, which needs a terminal; without one, give --yes"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    one, two, _ = made("one"), made("two"), made_sweep("both")
    Path("link").symlink_to(one.path)
    shutil.copy(one.record_path, "checkpoints")  # then all that is in it would be deleted
    Path("project").mkdir()
    Path("project/run.json").write_text('{"command": "of another program"}')
    assert complaint in refusal(*arguments, cwd=tmp_path)
    assert one.path.is_dir() and two.path.is_dir() and Path("project/run.json").exists()


def test_a_link_in_a_run_leads_nowhere_when_it_is_deleted(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "file").touch()
    run = made("one")
    (run.path / "policies").symlink_to(outside)
    assert folders.run(["delete", str(run.path), "--yes"]) == 0
    assert not run.path.exists() and (outside / "file").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make folders of other users")
def test_another_users_run_is_left_to_its_owner() -> None:
    run = made("one")
    os.chown(run.path, 12345, -1)
    for work in (lambda: lookup.rename(run, "two"), lambda: lookup.delete(run)):
        with pytest.raises(UserError, match=r"belongs to .*; only its owner can rename or delete it"):
            work()
    assert run.path.is_dir()


@pytest.mark.parametrize(("answer", "status"), [("\n", 1), ("yes\n", 0)])
@pytest.mark.process
def test_delete_asks_in_a_terminal(answer: str, status: int, tmp_path: Path) -> None:
    run = made("one")
    terminal = Terminal("delete", "one", cwd=tmp_path)
    terminal.wait_for("This can't be undone. [y/N]")
    terminal.send(answer)
    assert terminal.wait() == status
    assert run.path.exists() == bool(status)
    assert ("nothing was deleted" if status else "one: deleted") in terminal.text()
