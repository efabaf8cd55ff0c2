"""What commands answer at once, without a process of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine import checkpoints, policies
from engine.config import RunConfig
from engine.errors import UserError
from engine.runs import Run, create_run
from mario_tui.cli import run


def refused(*arguments: str) -> str:
    """The one line that a command is refused with."""
    with pytest.raises(UserError) as error:
        run(list(arguments))
    assert "\n" not in str(error.value)
    return str(error.value)


def run_with_policy(folder: Path) -> Run:
    """A run that `eval` and `--resume` accept."""
    made = create_run(RunConfig(run_dir=str(folder)))
    (made.path / checkpoints.BEST_POLICY_FILE).write_bytes(policies.path_of("mario-1-1").read_bytes())
    checkpoint = made.path / checkpoints.folder_name(100)
    checkpoint.mkdir()
    (checkpoint / "config.toml").write_text(RunConfig(run_dir=str(folder)).to_toml())
    checkpoints.seal(checkpoint, 100, 1)
    return made


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Paths of the runs that are listed."""
    assert run(["runs", "--json", *arguments]) == 0
    return [each["path"] for each in json.loads(capsys.readouterr().out)]


def test_a_run_dir_is_the_only_folder_that_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = run_with_policy(tmp_path / "here"), run_with_policy(tmp_path / "there")
    (tmp_path / "empty").mkdir()
    assert listed(capsys, "--run-dir", "here") == [str(here.path)]
    assert listed(capsys, "--run-dir", "empty") == []
    assert set(listed(capsys)) == {str(here.path), str(there.path)}
    assert run(["runs", "--run-dir", "empty"]) == 0
    assert capsys.readouterr().out.startswith("no runs in empty yet")
    for name in ("latest", there.name):
        for command in (["attach", name], ["eval", name], ["play", name], ["--no-ui", "--resume", name]):
            assert name in refused(*command, "--run-dir", "empty")
    assert refused("attach", "--run-dir", "empty") == "latest: there is no run in empty yet"
    assert refused("--no-ui", "--resume", "latest", "--run-dir", "empty") == (
        "--resume latest: no run in empty has a checkpoint yet"
    )
    for folder, made in (("here", here), ("there", there)):
        assert checkpoints.find_source("latest", folder).run.path == made.path
        assert checkpoints.find_policy("latest", folder).parent == made.path


@pytest.mark.parametrize("command", [["runs"], ["attach"], ["eval", "latest"], ["play", "latest"]])
def test_a_run_dir_that_is_not_there_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_run(RunConfig(run_dir="runs"))
    (tmp_path / "file").touch()
    assert refused(*command, "--run-dir", "missing") == "--run-dir must be an existing folder, got 'missing'"
    assert refused(*command, "--run-dir", "file") == "--run-dir must be a folder, got the file 'file'"


def test_home_is_not_opened_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "must be a folder" in refused("--run-dir", str(tmp_path / "file"))


def test_the_table_names_folders_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        create_run(RunConfig(run_dir=str(tmp_path / folder)))
    run(["runs"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "FOLDER"
    assert {row.split()[-1] for row in rows} == {str(tmp_path / "a"), str(tmp_path / "b")}
    run(["runs", "--run-dir", str(tmp_path / "a")])
    assert "FOLDER" not in capsys.readouterr().out
