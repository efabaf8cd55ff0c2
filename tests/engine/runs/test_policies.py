"""Policies that come with the package: their cards are correct, and `play` and `eval` find them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.errors import UserError
from engine.evaluation.policy import load_policy, mean_interval
from engine.protocol.outcome import Conditions
from engine.runs import policies
from engine.runs.checkpoints import POLICY_FORMAT, CheckpointError, check_policy, policy_metadata
from mario_tui.extras.play import of_task
from tests.support.policy_files import shipped
from tests.support.program import run_program


def test_every_policy_of_the_package_has_a_card_and_is_found() -> None:
    files = sorted(
        path.stem
        for folder in (policies.folder(), policies.folder().parent / "more-policies")
        for path in folder.glob("*.safetensors")
    )
    assert files == [card.name for card in policies.cards()]
    for card in policies.cards():
        path = shipped(card.name)
        alike = [other.name for other in policies.cards() if (other.game, other.stage) == (card.game, card.stage)]
        assert of_task(card.game, card.stage).stem == min(alike)
        assert path.stat().st_size < 5e6
        said = policy_metadata(path)
        assert (said["game"], said["seed"], said["env_steps"]) == (card.game, card.seed, card.env_steps)
    with pytest.raises(UserError, match="no policy comes with the package for mario 8-4"):
        of_task("mario", "8-4")


def test_a_stage_is_played_by_a_policy_for_it_alone_or_else_by_one_for_several() -> None:
    several = max(policies.cards(), key=lambda card: card.stage.count(","))
    alone = {card.stage for card in policies.cards()}
    for stage in several.stage.split(","):
        expected = f"mario-{stage}" if stage in alone else several.name
        assert of_task("mario", stage).stem == expected


def test_the_policies_for_each_stage_are_listed_from_the_best_on_and_then_the_one_for_most() -> None:
    *single, widest = policies.by_task("mario")
    stages = {card.name: card.stage for card in policies.cards()}
    assert widest == "mario-nineteen-stages" and {"mario-1-1", "mario-8-3"} < {*single}
    assert all("," not in stages[name] for name in single)
    assert single.index("mario-2-3-halfway") < single.index("mario-2-3")  # it knows where lives of the whole game go on


def test_a_card_of_an_earlier_version_is_read_and_any_card_is_read_as_it_was_written(tmp_path: Path) -> None:
    (card,) = (card for card in policies.cards() if card.name == "mario-3-4")
    from engine.extras.release.release_policy import rate_of, write_card

    write_card(card, tmp_path)
    assert policies.cards(tmp_path) == [card]
    said = json.loads((tmp_path / "mario-3-4.json").read_bytes())
    said["rates"] = [{"console": "native", "episodes": 100, "noop_max": 30, "clears": 97, "mean_score": 520.0}]
    (tmp_path / "mario-3-4.json").write_text(json.dumps(said))
    (card,) = policies.cards(tmp_path)
    assert rate_of(card, "native", Conditions()) == card.rates[0]


@pytest.mark.process
def test_a_policy_is_judged_under_the_conditions_that_are_asked_for(tmp_path: Path) -> None:
    """It clears every episode if nobody repeats its actions, and none if nearly all are repeated."""
    options = ("--episodes", "4", "--noop-min", "40", "--noop-max", "50", "--sticky-actions", "0.9", "--json")
    said = json.loads(run_program("eval", "mario-1-1", *options, cwd=tmp_path).stdout)
    assert (said["noop_min"], said["noop_max"], said["sticky_actions"], said["epsilon"]) == (40, 50, 0.9, 0)
    assert said["clears"] == 0


@pytest.mark.parametrize("field", ["game", "network", "stack", "frame_shape", "outputs", "board"])
def test_a_policy_that_does_not_say_what_it_is_for_is_refused(field: str, tmp_path: Path) -> None:
    source = shipped("snake-12x12")
    said = {name: value for name, value in policy_metadata(source).items() if name != field}
    path = tmp_path / "x.safetensors"
    save_file(load_file(source), path, {"format": POLICY_FORMAT, "policy": json.dumps(said)})
    with pytest.raises(CheckpointError, match="not a policy of mario-tui"):
        policy_metadata(path)


def test_a_policy_file_that_was_cut_off_is_damaged(tmp_path: Path) -> None:
    source = shipped("snake-12x12")
    (tmp_path / "cut.safetensors").write_bytes(source.read_bytes()[:20_000])
    with pytest.raises(CheckpointError, match=r"cut\.safetensors: damaged \("):
        load_policy(tmp_path / "cut.safetensors")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.process
def test_a_policy_whose_weights_are_no_numbers_is_not_played(number: float, tmp_path: Path) -> None:
    source = shipped("snake-12x12")
    weights = load_file(source)
    weights["value.0.weight"][3, 5] = number
    path = tmp_path / "broken.safetensors"
    save_file(weights, path, {"format": POLICY_FORMAT, "policy": json.dumps(policy_metadata(source))})
    done = run_program("eval", str(path), "--episodes", "1", cwd=tmp_path, check=2)
    assert "broken.safetensors: damaged (value.0.weight has numbers that are NaN or infinite)" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("dtype", [np.int64, np.bool_])
def test_a_policy_whose_weights_are_integers_is_damaged(dtype: Any, tmp_path: Path) -> None:
    source, path = shipped("snake-12x12"), tmp_path / "integers.safetensors"
    weights = {name: array.astype(dtype) for name, array in load_file(source).items()}
    save_file(weights, path, {"format": POLICY_FORMAT, "policy": json.dumps(policy_metadata(source))})
    with pytest.raises(CheckpointError, match="must be F16, F32, F64, got"):
        check_policy(path)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"evaluation": {"noop_max": 10**18}}, "noop_max"),
        ({"evaluation": {"epsilon": -7.5}}, "epsilon"),
        ({"board": "012x12"}, "board must be WIDTHxHEIGHT"),
        ({"board": "١٢x12"}, "board must be WIDTHxHEIGHT"),
        ({"board": "12x12,12x12"}, "board must name each once"),
    ],
)
def test_a_policy_that_says_what_no_run_can_say_is_refused(
    fields: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    source, path = shipped("snake-12x12"), tmp_path / "x.safetensors"
    save_file(
        load_file(source), path, {"format": POLICY_FORMAT, "policy": json.dumps({**policy_metadata(source), **fields})}
    )
    with pytest.raises(CheckpointError, match=f"not a policy of mario-tui .*{complaint}"):
        policy_metadata(path)


def test_a_policy_of_another_version_is_told_from_what_is_no_policy(tmp_path: Path) -> None:
    source, path = shipped("snake-12x12"), tmp_path / "x.safetensors"
    for format, complaint in (("mario-tui-policy-4", "another version .*mario-tui-policy-4"), ("pt", "not a policy")):
        save_file(load_file(source), path, {"format": format, "policy": json.dumps(policy_metadata(source))})
        with pytest.raises(CheckpointError, match=complaint):
            policy_metadata(path)


def test_an_interval_of_few_games_is_wide_and_of_one_unknown() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 4.0])
    assert (mean, low, high) == pytest.approx((2.333, -1.461, 6.128), abs=0.001)  # Student's t, 2 degrees of freedom
    assert math.isnan(mean_interval([143.0])[1])


def test_a_policy_is_read_through_a_link(tmp_path: Path) -> None:
    link = tmp_path / "mine.safetensors"
    link.symlink_to(shipped("snake-12x12"))
    ours, theirs = (load_policy(path).state_dict() for path in (link, shipped("snake-12x12")))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
