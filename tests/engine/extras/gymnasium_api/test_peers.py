"""Other implementations of DQN train on our Gymnasium environments; SB3 checks them first."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.runs.run import Run

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("peer", "game", "shortest"),
    [
        ("cleanrl_dqn", (), 10),
        ("sb3_dqn", ("SuperMarioBros-1-1-v0",), 10),
        ("sb3_dqn", ("Snake-v1",), 1),
        ("sb3_dqn", ("Tetris-v0",), 1),
    ],
)
def test_peer_trains_on_our_environment(peer: str, game: tuple[str, ...], shortest: int) -> None:
    if peer == "sb3_dqn" and find_spec("stable_baselines3") is None:
        pytest.fail("stable-baselines3 is missing: .venv/bin/pip install -c constraints.txt -e '.[peers]'")
    command = [sys.executable, "-m", f"tests.support.peers.{peer}", "400", *game]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["steps"] == 400
    assert result["updates"] >= 70
    assert math.isfinite(result["loss"])
    assert result["loss"] > 0
    assert result["lengths"]
    assert min(result["lengths"]) >= shortest


@pytest.mark.long
def test_the_callback_of_the_docs_reports_a_peer(tmp_path: Path) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "library.md").read_text("utf-8"), re.M | re.S)
    (recipe,) = (block for block in blocks if "Reporter(" in block)
    subprocess.run([sys.executable, "-c", recipe], cwd=tmp_path, check=True, timeout=600)
    record = Run(tmp_path / "checkpoints" / "sb3").record()
    assert (record.state, record.env_steps) == ("finished", 5_000) and record.episodes > 20
