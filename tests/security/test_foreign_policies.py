"""Policy files that somebody else made: each thing that they may say, spoilt; every command answers in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from engine.config.game import options_with
from engine.config.reading import make_config
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.runs import checkpoints
from engine.runs.checkpoints import POLICY_FORMAT, policy_metadata
from engine.runs.lookup import find_policy
from engine.runs.registry import create_run
from tests.support.policy_files import shipped
from tests.support.program import run_program

SAID: dict[str, dict[str, Any]] = {
    "network as a list": {"network": ["dueling-paths"]},
    "a network of another game": {"network": "dueling-columns"},
    "an unknown network": {"network": "dueling-x"},
    "stack as text": {"stack": "1"},
    "1e7 frames": {"stack": 10**7},
    "2^63 frames": {"stack": 2**63},
    "no frames": {"stack": 0},
    "frames of 80 GB": {"frame_shape": [5, 40_000, 100_000]},
    "frames of 2^63": {"frame_shape": [5, 2**63, 12]},
    "negative frames": {"frame_shape": [5, -12, 12]},
    "frames without axes": {"frame_shape": []},
    "frames of eight axes": {"frame_shape": [1] * 8},
    "frames as text": {"frame_shape": "5x12x12"},
    "1e9 outputs": {"outputs": 10**9},
    "-5 outputs": {"outputs": -5},
    "outputs that are no whole number": {"outputs": 4.5},
    "a game that is none": {"game": "chess"},
    "game as an object": {"game": {}},
    "board as words": {"board": "large"},
    "board as a number": {"board": 12},
    "a board of 2^63": {"board": f"{2**63}x12"},
    "a thousand boards": {"board": ",".join(["12x12"] * 1000)},
    "another board": {"board": "5x5"},
    "NaN death penalty": {"death_penalty": float("nan")},
    "death penalty as text": {"death_penalty": "3"},
    "an unknown reward": {"reward": "coins"},
    "NaN score": {"score": [float("nan")]},
    "1e300 score": {"score": [1e300, 1e300]},
    "2^63 steps": {"env_steps": 2**63},
    "negative updates": {"updates": -1},
    "seed as a list": {"seed": [1]},
}
MARIO: dict[str, dict[str, Any]] = {
    "no actions": {"actions": []},
    "actions as text": {"actions": "right"},
    "unknown actions": {"actions": ["fly"] * 5},
    "fewer actions than outputs": {"actions": ["noop", "right"]},
    "a stage that is none": {"stage": "9-9"},
    "stage as a list": {"stage": ["1-1"]},
    "another observation": {"observation": "84x84"},
    "observation as an object": {"observation": {}},
    "no frame skip": {"frame_skip": 0},
    "2^63 skipped frames": {"frame_skip": 2**63},
    "an unknown emulator": {"emulator": "fceux"},
}
HEADERS: dict[str, bytes] = {
    "nested metadata": json.dumps(
        {"__metadata__": {"format": POLICY_FORMAT, "policy": "[" * 100_000 + "]" * 100_000}}
    ).encode(),
    "metadata as a list": b'{"__metadata__": []}',
    "a policy that is a list": json.dumps({"__metadata__": {"format": POLICY_FORMAT, "policy": "[1]"}}).encode(),
    "a policy that is a number": json.dumps({"__metadata__": {"format": POLICY_FORMAT, "policy": "3"}}).encode(),
}
TENSORS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no tensors": lambda weights: weights.clear(),
    "a missing tensor": lambda weights: weights.pop("value.0.weight"),
    "another shape": lambda weights: weights.update({"value.0.bias": np.zeros(3, np.float16)}),
    "NaN": lambda weights: [weight.fill(np.nan) for weight in weights.values()],
    "infinity": lambda weights: weights["value.0.bias"].fill(np.inf),
}


def spoilt(path: Path, name: str, said: dict[str, Any], change: Callable[[dict[str, Any]], object] = len) -> Path:
    """A copy of a policy of the package whose metadata or tensors are others."""
    source = shipped(name)
    weights = load_file(source)
    change(weights)
    save_file(weights, path, {"format": POLICY_FORMAT, "policy": json.dumps({**policy_metadata(source), **said})})
    return path


def refused(path: Path) -> None:
    """Before a process starts, or at the latest where the network is built; in one line."""
    with pytest.raises(UserError) as error:
        load_policy(find_policy(str(path), None))
    assert len(str(error.value).splitlines()) == 1 and len(str(error.value)) < 1000


@pytest.mark.parametrize("name", SAID)
def test_metadata_that_no_policy_has_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a policy of mario-tui"):
        find_policy(str(spoilt(tmp_path / "x.safetensors", "snake-12x12", SAID[name])), None)


@pytest.mark.parametrize("name", MARIO)
def test_metadata_that_no_policy_for_mario_has_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a policy of mario-tui"):
        find_policy(str(spoilt(tmp_path / "x.safetensors", "mario-1-1", MARIO[name])), None)


@pytest.mark.parametrize("name", ["mario-2-2", "snake-12x12", "tetris-7x14"])
def test_whatever_a_field_says_is_of_its_type_when_a_game_reads_it_or_the_file_is_refused(
    name: str, tmp_path: Path
) -> None:
    good = policy_metadata(shipped(name))
    for field in ("game", "network", "stack", "frame_shape", "outputs", *options_with("policy", good["game"])):
        of_other_types: tuple[Any, ...] = (
            None,
            True,
            7,
            4.0,
            -1,
            2**70,
            float("nan"),
            "x",
            "",
            [],
            [7],
            ["x"],
            [[]],
            {},
        )
        for said in (*of_other_types, [good[field]]):
            path = spoilt(tmp_path / "x.safetensors", name, {field: said}, dict.clear)
            try:
                found = policy_metadata(path)[field]
            except UserError as error:
                assert len(str(error).splitlines()) == 1 and str(path) in str(error)
                assert said is not None or field in str(error)
            else:
                assert type(found) is type(good[field]) and found == said


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_no_policy_has_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(HEADERS[name]).to_bytes(8, "little") + HEADERS[name])
    refused(path)


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_no_policy_has_are_refused(name: str, tmp_path: Path) -> None:
    refused(spoilt(tmp_path / "x.safetensors", "snake-12x12", {}, TENSORS[name]))


def test_a_tensor_of_another_network_is_named(tmp_path: Path) -> None:
    path = spoilt(tmp_path / "x.safetensors", "snake-12x12", {}, TENSORS["another shape"])
    with pytest.raises(UserError, match=r"size mismatch for value\.0\.bias"):
        load_policy(path)


def test_tensors_that_the_header_only_claims_are_refused(tmp_path: Path) -> None:
    path = spoilt(tmp_path / "x.safetensors", "snake-12x12", {})
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"shape":[256]', b'"shape":[999]', 1))
    with pytest.raises(UserError, match="does not have as many bytes as its shape says"):
        find_policy(str(path), None)


def test_policies_for_several_boards_are_accepted(tmp_path: Path) -> None:
    path = spoilt(tmp_path / "x.safetensors", "snake-12x12", {"board": "5x5,12x10,10x12"})
    assert policy_metadata(find_policy(str(path), None))["board"] == "5x5,12x10,10x12"


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "RUN"), ("--no-ui", "--initial-policy", "RUN"), pytest.param(("play", "RUN"), marks=pytest.mark.long),
        pytest.param(("--eval-only", "--resume", "RUN"), marks=pytest.mark.long),
        pytest.param(("eval", "FILE"), marks=pytest.mark.long), pytest.param(("play", "FILE"), marks=pytest.mark.long),
        pytest.param(("distill", "FILE", "--into", "y.safetensors"), marks=pytest.mark.long),
    ],
)  # fmt: skip
@pytest.mark.process
def test_commands_refuse_such_a_policy_in_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    """Also if it is the best one of a run."""
    run = create_run(make_config({"game": "snake", "board": "12x12", "run_dir": str(tmp_path / "runs")}))
    best = spoilt(run.path / checkpoints.BEST_POLICY_FILE, "snake-12x12", {"frame_shape": [5, 40_000, 100_000]})
    places = {"RUN": str(run.path), "FILE": str(best)}
    done = run_program(*(places.get(word, word) for word in command), cwd=tmp_path, check=2)
    assert "frame_shape" in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
