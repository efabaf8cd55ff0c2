"""Policies that come with the package: their cards are correct, and `play` and `eval` find them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from engine.errors import UserError
from engine.runs import policies
from engine.runs.checkpoints import policy_metadata
from tests.support.program import json_lines, run_program


@pytest.mark.long
def test_a_runs_best_policy_is_released_with_a_correct_card(tmp_path: Path) -> None:
    done = run_program(
        "--no-ui", "--log-format", "json", "--game", "snake", "--board", "4x4", "--parallel-envs", "8",
        "--steps", "2000", "--burnin", "200", "--batch-size", "32", "--eval-every", "1000", "--eval-episodes", "10",
        cwd=tmp_path,
    )  # fmt: skip
    run, into = Path(json_lines(done.stdout)[-1]["checkpoint"]).parent, tmp_path / "shipped"
    command = [sys.executable, "-m", "engine.commands.release_policy", str(run), "--into", str(into)]
    table = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    (card,) = policies.cards(into)
    assert (card.name, card.game, card.stage, card.minutes > 0) == ("snake-4x4", "snake", "4x4", True)
    assert card.command.startswith("mario-tui --game snake --steps 2000 --parallel-envs 8 ")
    assert "run-dir" not in card.command
    assert f"| `snake-4x4` | mean score {card.rates[0].mean_score:.1f} |" in table
    file = into / "snake-4x4.safetensors"
    with safe_open(file, "pt") as tensors:
        assert {str(tensors.get_tensor(name).dtype) for name in tensors.keys()} == {"torch." + card.dtype}  # noqa: SIM118
    found = run_program("eval", str(file), "--episodes", "100", "--seed", "1", "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["mean_score"] == pytest.approx(card.rates[0].mean_score)


def test_every_policy_of_the_package_has_a_card_and_is_found() -> None:
    files = sorted(path.stem for path in policies.folder().glob("*.safetensors"))
    assert files == [card.name for card in policies.cards()]
    for card in policies.cards():
        path = policies.path_of(card.name)
        assert path is not None
        assert path == policies.of_task(card.game, card.stage)
        assert path.stat().st_size < 5e6
        said = policy_metadata(path)
        assert (said["game"], said["seed"], said["env_steps"]) == (card.game, card.seed, card.env_steps)
    with pytest.raises(UserError, match="no policy comes with the package for mario 8-3"):
        policies.of_task("mario", "8-3")
