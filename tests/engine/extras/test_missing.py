"""A program without one of the folders of `engine.extras`: it does all else, and says in a line what is missing."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config.features import FEATURES, feature, has_feature
from engine.errors import UserError
from tests.support.program import PATIENCE_S, json_lines, run_program

ROOT = Path(__file__).parents[3]
TRAIN = ("--no-ui", "--log-format", "json", "--seed", "1", "--steps", "300", "--burnin", "64")
SNAKE = (*TRAIN, "--game", "snake")
NEED: dict[str, list[tuple[tuple[str, ...], str]]] = {
    "distillation": [
        (("distill", "mario-1-1"), "this"),
        ((*TRAIN, "--game", "mario", "--guide", "0.5"), "--guide"),
    ],
    "export": [(("export", "latest", "--format", "onnx"), "--format onnx")],
    "gymnasium_api": [
        (
            (*TRAIN, "--game", "gym:engine.games.gymnasium_api:mario_tui/Snake-v1"),
            "--env engine.games.gymnasium_api can't be imported: engine.games.gymnasium_api",
        )
    ],
    "hub": [
        (("eval", "hf://somebody/snake"), "hf://somebody/snake"),
        ((*SNAKE, "--initial-policy", "hf://somebody/snake"), "--initial-policy must be a policy; hf://somebody/snake"),
        (("export", "snake-12x12", "--to", "hf://somebody/snake", "--license", "mit"), "--to"),
    ],
    "playing": [(("play", "latest", "--record", "snake.gif"), "this")],
    "profiling": [(("profile", "--game", "snake"), "this")],
    "ray": [
        ((*SNAKE, "--runner", "apex", "--ray", "auto"), "--ray"),
        (("sweep", "--game", "snake", "--seeds", "2", "--ray", "auto"), "--ray"),
    ],
    "release": [],
    "reporting": [],
    "torchrun": [((*SNAKE, "--runner", "ddp"), "torchrun")],
    "trackers": [
        ((*SNAKE, "--sinks", "wandb:policy"), "--sinks wandb:policy"),
        ((*SNAKE, "--sinks", "mlflow"), "--sinks mlflow"),
    ],
}
"""What needs each folder, and how its line begins."""
RANK = {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0", "RANK": "0", "WORLD_SIZE": "2",
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}  # fmt: skip
"""What torchrun tells each of its ranks."""
CORE = """
import importlib, pkgutil
for package in ("engine", "mario_tui"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.", lambda name: None):
        if ".extras" not in module.name and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except Exception as error:
                print(f"{module.name}: {error}")
"""
SAID_AT_IMPORT = "engine.emulators: engine.emulators is engine.console now; see docs/console.md\n"


def test_each_folder_is_tried_and_the_table_names_what_is_there() -> None:
    assert sorted(NEED) == sorted(path.parent.name for path in (ROOT / "engine" / "extras").glob("*/__init__.py"))
    assert {place.split(".")[2].partition(":")[0] for place in FEATURES.values()} == {*NEED}
    assert all(map(has_feature, FEATURES))


def test_other_tests_can_be_collected_without_extras() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("tests", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if not path.is_relative_to(Path(__file__).parent) and "plugin_game" not in path.parts  # which no test imports
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom) and "engine.extras" in ast.unparse(node)
    }
    assert not found


def test_a_feature_is_missing_if_only_its_compiled_modules_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty" / "__pycache__").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    for place in ("empty", "empty.module:name", "empty_and_gone.module:name"):
        monkeypatch.setattr("engine.config.features.FEATURES", {"feature": f"engine.extras.{place}"})
        monkeypatch.setattr("engine.extras.__path__", [str(tmp_path)])
        with pytest.raises(UserError) as refused:
            feature("feature", "--flag")
        assert str(refused.value) == (f"--flag needs engine.extras.{place.partition('.')[0]}, which is not installed")


def copy_of_program(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in ("engine", "mario_tui", "themes"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(tree))
    return tree


@pytest.mark.long
def test_without_the_games_on_boards_the_others_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = copy_of_program(tmp_path / "tree", monkeypatch)
    for game in ("boards", "snake", "tetris"):
        shutil.rmtree(tree / "engine" / "games" / game)
    trained = run_program(*TRAIN, "--game", "gym:CartPole-v1", cwd=tmp_path)
    assert json_lines(trained.stdout)[-1]["env_steps"] >= 300
    refused = run_program(*SNAKE, cwd=tmp_path, check=2)
    assert refused.stderr == "mario-tui: error: --game must be one of mario, gym, got 'snake'\n"
    imported = subprocess.run([sys.executable, "-P", "-c", CORE], cwd=tmp_path, capture_output=True, text=True)
    assert imported.stdout == SAID_AT_IMPORT


@pytest.mark.long
@pytest.mark.parametrize("name", NEED)
def test_without_a_folder_the_program_starts_trains_and_refuses_what_needed_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, missing = tmp_path / "work", f"engine.extras.{name}, which is not installed"
    tree = copy_of_program(tmp_path / "tree", monkeypatch)
    shutil.rmtree(tree / "engine" / "extras" / name)
    work.mkdir()

    shown = run_program("--help", cwd=work).stdout
    assert "  mario-tui attach " in shown and ("  mario-tui distill " in shown) is (name != "distillation")
    assert "mario-tui" in run_program("completion", "bash", cwd=work).stdout
    trained = run_program(*SNAKE, cwd=work)
    assert json_lines(trained.stdout)[-1]["env_steps"] >= 300
    runs = sorted((work / "checkpoints").iterdir())
    for variable, value in RANK.items() if name == "torchrun" else ():
        monkeypatch.setenv(variable, value)
    for words, begins in NEED[name]:
        assert run_program(*words, cwd=work, check=2).stderr == f"mario-tui: error: {begins} needs {missing}\n"
    assert sorted((work / "checkpoints").iterdir()) == runs

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", *arguments]
        return subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE_S)

    names = ("engine.games.gymnasium_api", "mario_tui.environments") if name == "gymnasium_api" else ()
    assert python("-c", CORE).stdout == SAID_AT_IMPORT + "".join(f"{each}: {each} needs {missing}\n" for each in names)
    released = python("-m", "engine.commands.release_policy")
    assert released.returncode == 2
    begins, needs = "engine.commands.release_policy: error: ", f"engine.commands.release_policy needs {missing}\n"
    assert released.stderr.startswith(begins) and (released.stderr == begins + needs) is (name == "release")
