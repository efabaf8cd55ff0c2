"""A program without one of the folders of `mario_tui.extras`: it does all else, and says in a line what is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from engine.runs.sweep import Member, SweepPlan
from mario_tui.commands.train import training_parser
from mario_tui.extras.sweeps.folder import create_sweep
from tests.support.app import folder_of_runs
from tests.support.program import Terminal, json_lines, refusal, run_program

ROOT = Path(__file__).parents[3]
NEED: dict[str, list[tuple[str, ...]]] = {
    "alerts": [("alerts", "one")],
    "assistants": [("assistants",)],
    "completion": [("completion", "bash")],
    "distill": [("distill", "mario-1-1")],
    "event_files": [("attach", "events"), ("attach", "./later"), ("export", "one")],
    "export": [("export", "one")],
    "mcp": [("mcp",)],
    "play": [("play", "mario-1-1")],
    "profile": [("profile", "--game", "snake")],
    "serve": [("serve",)],
    "sweeps": [("sweep", "--seeds", "2"), ("sweep", "status")],
}
"""What needs each folder."""


def test_each_folder_is_tried() -> None:
    folders = (path.parent.name for path in (ROOT / "mario_tui" / "extras").glob("*/__init__.py"))
    assert sorted(NEED) == sorted(folders)


@pytest.mark.parametrize("name", ["serve", "distill", "export"])
def test_a_command_whose_folder_is_missing_is_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = f"  mario-tui {name} "
    assert shown in training_parser().format_help()
    monkeypatch.setitem(sys.modules, f"mario_tui.extras.{name}", None)
    assert refusal(*NEED[name][0], cwd=tmp_path) == (
        f"mario-tui: error: this needs mario_tui.extras.{name}, which is not installed"
    )
    assert shown not in training_parser().format_help()


@pytest.mark.long
@pytest.mark.parametrize("name", NEED)
def test_without_a_folder_the_program_starts_lists_runs_trains_and_refuses_what_needed_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, work = tmp_path / "tree", tmp_path / "work"
    for package in ("engine", "mario_tui", "themes"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tree / "mario_tui" / "extras" / name)
    monkeypatch.setenv("PYTHONPATH", str(tree))
    runs = work / "checkpoints"
    sweep = create_sweep(runs, "both", SweepPlan({"game": "mario"}, 1, None, (Member({}, 1), Member({}, 2))))
    folder_of_runs(sweep.path, **{sweep.run(0).name: "finished", sweep.run(1).name: "failed"})
    (one,) = folder_of_runs(runs, one="finished")
    (events := work / "events").mkdir()
    (events / "events.out.tfevents.1").touch()

    commands = {words[0] for words in NEED[name]} - {"attach", "export" if name == "event_files" else ""}
    shown = run_program("--help", cwd=work).stdout
    assert "  mario-tui attach " in shown and not [each for each in commands if f"  mario-tui {each} " in shown]
    if name != "completion":
        assert "mario-tui" in run_program("completion", "bash", cwd=work).stdout
    for words in NEED[name]:
        assert run_program(*words, cwd=work, check=2).stderr == (
            f"mario-tui: error: this needs mario_tui.extras.{name}, which is not installed\n"
        )

    rows = ("both-001", "both-002") if name == "sweeps" else ("both (sweep of 2)",)
    terminal = Terminal(cwd=work, columns=120, rows=40)
    terminal.wait_for("one", *rows)
    assert ("sweep of" in terminal.text()) is (name != "sweeps")
    terminal.send("q")
    assert terminal.wait() == 0

    options = ("--game", "snake", "--steps", "300", "--burnin", "64", "--seed", "1")
    trained = run_program("--no-ui", "--log-format", "json", *options, cwd=work)
    assert json_lines(trained.stdout)[-1]["env_steps"] >= 300
    assert one.name in run_program("runs", "--names", cwd=work).stdout
