"""`mario-tui policies`: what is listed, and that commands find it by the names in the list."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.runs import policies
from engine.runs.lookup import find_policy
from mario_tui.cli import run
from tests.mario_tui.test_schema import wrong
from tests.support.program import FinishedRun


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, object]]:
    assert run(["policies", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert wrong("policies", found) == []
    return {each["name"]: each for each in found}


def test_those_of_the_package_are_listed_with_their_rates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = listed(capsys, "--run-dir", str(tmp_path))
    assert list(found) == [card.name for card in policies.cards()]
    mario = found["mario-1-1"]
    assert (mario["kind"], mario["game"], mario["stage"], mario["env_steps"]) == ("included", "mario", "1-1", 600_000)
    path = Path(str(mario["path"]))
    assert mario["size_bytes"] == path.stat().st_size and find_policy("mario-1-1", None) == path
    run(["policies", "--game", "tetris", "--run-dir", str(tmp_path)])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["POLICY", "KIND", "GAME", "TRAINED", "ON", "STEPS", "SIZE", "PLAYS", "BY"]
    assert rows[1].endswith("63.5 over 100 episodes") and rows[1].startswith("tetris-7x14   included  tetris  7x14")
    with pytest.raises(UserError, match=r"^--game must be one of mario, snake, tetris, got 'chess'$"):
        run(["policies", "--game", "chess", "--run-dir", str(tmp_path)])


def test_one_that_is_not_installed_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "_folders", lambda: iter([policies.folder()]))
    assert listed(capsys, "--run-dir", str(tmp_path))["mario-8-3"]["path"] is None
    run(["policies", "--run-dir", str(tmp_path)])
    assert "those without a size: " in capsys.readouterr().out


@pytest.mark.process
def test_those_of_runs_are_found_by_their_names(
    finished_run: FinishedRun, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(finished_run.run.path, tmp_path / "checkpoints" / finished_run.run.name)
    newest = max(copy.glob("step-*"))
    shutil.copy(newest / "policy.safetensors", copy / "policy-000000000064.safetensors")
    monkeypatch.chdir(tmp_path)
    found = [each for each in listed(capsys, "--run-dir", "checkpoints").values() if each["run"]]
    assert {str(each["kind"]) for each in found} >= {"saved"} and len(found) == 2
    for each in found:
        assert find_policy(str(each["name"]), "checkpoints") == Path(str(each["path"]))
        assert each["size_bytes"] == Path(str(each["path"])).stat().st_size
    assert [each["env_steps"] for each in found if each["kind"] == "saved"] == [64]
