"""A checkpoint that somebody else made: sealed as it should be, and wrong inside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.errors import UserError
from engine.runs import checkpoints
from tests.support.in_process import checkpoint_of, train

SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of(train(tmp_path_factory.mktemp("made"), SNAKE, 160))


@pytest.fixture
def checkpoint(made: Path, tmp_path: Path) -> Path:
    """A copy, which may be spoilt."""
    return Path(shutil.copytree(made, tmp_path / "checkpoint"))


def seal(checkpoint: Path) -> None:
    (checkpoint / "manifest.json").unlink()
    checkpoints.seal(checkpoint, 160, 1)


SPOILT: dict[str, Callable[[dict[str, Any]], object]] = {
    "no updates": lambda state: state.pop("updates"),
    "negative updates": lambda state: state.update(updates=-1),
    "a trillion updates due": lambda state: state.update(credit=1e12),
    "NaN updates due": lambda state: state.update(credit=float("nan")),
    "infinite beta": lambda state: state.update(beta=float("inf")),
    "text for beta": lambda state: state.update(beta="1"),
    "no parts": lambda state: state.update(accumulate=0),
    "many parts": lambda state: state.update(accumulate=10**12),
    "another precision": lambda state: state["choices"].update(precision="int4"),
    "no device": lambda state: state["choices"].pop("device"),
    "learning rate": lambda state: state["extra"].update(tuned={"learning_rate": 1e9}),
    "NaN epsilon": lambda state: state["extra"].update(tuned={"epsilon_scale": float("nan")}),
    "unknown number": lambda state: state["extra"].update(tuned={"shell": 1.0}),
    "huge counter": lambda state: state["extra"]["counters"].update(episodes=10**400),
    "negative counter": lambda state: state["extra"]["counters"].update(env_steps=-8),
    "text for a counter": lambda state: state["extra"]["counters"].update(wall_s="long"),
    "1e300 seconds": lambda state: state["extra"]["counters"].update(wall_s=1e300),
}


@pytest.mark.parametrize("name", SPOILT)
def test_numbers_that_no_run_writes_are_refused_in_one_line(name: str, checkpoint: Path, tmp_path: Path) -> None:
    path = checkpoint / "state.json"
    state = json.loads(path.read_text())
    SPOILT[name](state)
    path.write_text(json.dumps(state))
    seal(checkpoint)
    with pytest.raises(UserError) as refused:
        train(tmp_path / "resumed", SNAKE, 320, checkpoint)
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 1000


@pytest.mark.parametrize("content", [b"", b"null", b"[" * 200_000, b"\xff", b'{"updates": 1}'])
def test_a_state_that_is_none_is_refused_in_one_line(content: bytes, checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "state.json").write_bytes(content)
    seal(checkpoint)
    with pytest.raises(UserError, match=r"state\.json: damaged") as refused:
        train(tmp_path / "resumed", SNAKE, 320, checkpoint)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["obs", "held"])
@pytest.mark.parametrize("spoil", ["missing", "another shape"])
def test_games_that_do_not_fit_are_refused_in_one_line(name: str, spoil: str, checkpoint: Path, tmp_path: Path) -> None:
    arrays = load_file(checkpoint / "lanes.safetensors")
    if spoil == "missing":
        del arrays[name]
    else:
        arrays[name] = np.zeros((3, 3), arrays[name].dtype)
    save_file(arrays, checkpoint / "lanes.safetensors")
    seal(checkpoint)
    with pytest.raises(UserError, match="its games can't be resumed"):
        train(tmp_path / "resumed", SNAKE, 320, checkpoint)


@pytest.mark.parametrize("cell", [-1, 25, 2**62])
def test_games_with_a_head_outside_the_board_are_refused_in_one_line(
    cell: int, checkpoint: Path, tmp_path: Path
) -> None:
    arrays = load_file(checkpoint / "lanes.safetensors")
    arrays["env.head"][0] = cell
    save_file(arrays, checkpoint / "lanes.safetensors")
    seal(checkpoint)
    with pytest.raises(UserError, match=f"head must be between 0 and 24, got {cell}"):
        train(tmp_path / "resumed", SNAKE, 320, checkpoint)


TETRIS = {"game": "tetris", "board": "4x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000}


@pytest.fixture(scope="module")
def made_tetris(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of(train(tmp_path_factory.mktemp("tetris"), TETRIS, 160))


@pytest.mark.parametrize(
    ("file", "name", "value", "reason"),
    [
        (
            "replay",
            "storage.actions",
            10_000,
            "its replay can't be resumed .actions must be between -1 and 15, got 10000",
        ),
        ("replay", "storage.rewards", np.nan, "its replay can't be resumed .rewards must be between"),
        ("lanes", "held", 16, "its games can't be resumed .held must be between 0 and 15, got 16"),
        ("lanes", "env.columns", 0, "its games can't be resumed .columns must be between -32 and -1, got 0"),
    ],
)
def test_numbers_that_compiled_code_would_index_with_are_refused_in_one_line(
    file: str, name: str, value: float, reason: str, made_tetris: Path, tmp_path: Path
) -> None:
    checkpoint = Path(shutil.copytree(made_tetris, tmp_path / "checkpoint"))
    arrays = load_file(checkpoint / f"{file}.safetensors")
    arrays[name][0] = value
    save_file(arrays, checkpoint / f"{file}.safetensors")
    seal(checkpoint)
    with pytest.raises(UserError, match=reason):
        train(tmp_path / "resumed", TETRIS, 320, checkpoint)


def test_an_untouched_copy_resumes(checkpoint: Path, tmp_path: Path) -> None:
    """What all of the above changed by one thing alone."""
    seal(checkpoint)
    train(tmp_path / "resumed", SNAKE, 320, checkpoint)
