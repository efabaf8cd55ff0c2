"""Releasing policies: what their cards say, and the tables of all policies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from safetensors import safe_open

from engine.config.game import game_of
from engine.errors import UserError
from engine.extras.release.release_policy import (
    _distill_command,
    _weights,
    episodes_on_card,
    judged,
    leaderboard,
    rate_of,
    source_of,
    write_card,
)
from engine.games.mario.actions import ACTION_SETS
from engine.runs import policies
from engine.runs.run import Run
from tests.support.program import json_lines, run_program


@pytest.mark.long
@pytest.mark.process
def test_a_runs_best_policy_is_released_with_a_correct_card(tmp_path: Path) -> None:
    done = run_program(
        "--no-ui", "--log-format", "json", "--game", "snake", "--board", "4x4", "--parallel-envs", "8",
        "--steps", "2000", "--burnin", "200", "--batch-size", "32", "--eval-every", "1000", "--eval-episodes", "10",
        cwd=tmp_path,
    )  # fmt: skip
    run, into = Path(json_lines(done.stdout)[-1]["checkpoint"]).parent, tmp_path / "shipped"
    command = [sys.executable, "-m", "engine.extras.release.release_policy", str(run), "--into", str(into)]
    table = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    (card,) = policies.cards(into)
    assert (card.name, card.game, card.stage, card.minutes > 0) == ("snake-4x4", "snake", "4x4", True)
    assert card.command.startswith("mario-tui --game snake --steps 2000 --parallel-envs 8 ")
    assert "run-dir" not in card.command
    assert card.result == Run(run).record().result is not None
    assert f"| `snake-4x4` | {card.rates[0].mean_score:.1f} |" in table
    file = into / "snake-4x4.safetensors"
    with safe_open(file, "pt") as tensors:
        assert {str(tensors.get_tensor(name).dtype) for name in tensors.keys()} == {"torch." + card.dtype}  # noqa: SIM118
    found = run_program("eval", str(file), "--episodes", "100", "--seed", "1", "--json", cwd=tmp_path)
    assert json.loads(found.stdout)["mean_score"] == pytest.approx(card.rates[0].mean_score)


@pytest.mark.process
def test_what_a_card_says_of_a_distilled_policy(tmp_path: Path) -> None:
    short = ("--network", "small", "--steps", "400", "--eval-every", "400", "--eval-episodes", "1")
    run_program("distill", "mario-1-1", "mario-1-4", "--into", "one.safetensors", *short, cwd=tmp_path)
    policy = tmp_path / "one.safetensors"
    with pytest.raises(UserError, match="and --name"):
        source_of(policy, None)
    _, name, command, minutes, result = source_of(policy, "both")
    decisive = "--noop-max 30 --steps 400 --eval-every 400 --eval-episodes 1"
    assert (name, command) == ("both", f"mario-tui distill mario-1-1 mario-1-4 --network small --seed 0 {decisive}")
    assert 0 < minutes < 60 and result is None
    searched = {"game": "mario", "teachers": ["7-4"], "network": "small", "seed": 1}
    searched["actions"] = list(ACTION_SETS["simple"])
    assert _distill_command(searched) == "mario-tui distill 7-4 --network small --seed 1 --actions simple"


def test_a_policy_is_judged_again_and_replaced_where_its_weights_lie(tmp_path: Path) -> None:
    assert all(_weights(card.name, policies.folder()).is_file() for card in policies.cards())
    assert _weights("mario-1-1", tmp_path) == tmp_path / "mario-1-1.safetensors"


def test_every_rate_of_mario_was_measured_and_the_page_holds_the_tables() -> None:
    for card in policies.cards():
        rates = [rate_of(card, *each) for each in judged(game_of(card.game), card.stage).values()]
        assert [rate for rate in rates if rate is not None] == card.rates
        assert None not in rates or "," in card.stage  # starts that are held out take long for many stages
        assert " /" not in card.command  # no folder of a machine
        for rate in card.rates:
            assert rate.episodes == episodes_on_card(game_of(card.game), rate.console, card.stage)
    page = Path(__file__).parents[4] / "bench/experiments/policies.md"
    assert f"\n\n{leaderboard()}\n\n" in page.read_text(encoding="utf-8")


def test_the_stages_of_a_policy_for_several_have_rows_of_their_own(tmp_path: Path) -> None:
    (card,) = (card for card in policies.cards() if card.name == "mario-1-1")
    starts = [
        msgspec.structs.replace(rate, episodes=200, clears=150, clears_by_stage={"1-1": 99, "1-2": clears})
        for rate, clears in zip(card.rates, (51, 7), strict=False)
    ]
    write_card(msgspec.structs.replace(card, stage="1-1,1-2", rates=starts), tmp_path)
    table = leaderboard(tmp_path)
    assert "| `mario-1-1` | 1-1 | 99 | 99 |\n| `mario-1-1` | 1-2 | 51 | 7 |\n" in table


def test_a_rate_that_was_not_measured_is_a_dash(tmp_path: Path) -> None:
    (card,) = (card for card in policies.cards() if card.name == "mario-3-4")
    write_card(msgspec.structs.replace(card, rates=card.rates[:1]), tmp_path)
    percent = 100 * card.rates[0].clears // card.rates[0].episodes
    (row,) = (row for row in leaderboard(tmp_path).splitlines() if row.startswith(f"| `mario-3-4` | – | {percent} ("))
    assert row.endswith(") | – | – | – | – | – | – | – |")


@pytest.mark.process
def test_it_takes_a_line_to_say_what_is_missing() -> None:
    command = [sys.executable, "-m", "engine.commands.release_policy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == (
        "engine.commands.release_policy: error: "
        "RUN: specify the folder of a run, a distilled policy, --judge or --table\n"
    )
