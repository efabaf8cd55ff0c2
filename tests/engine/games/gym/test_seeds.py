"""What `--seed` decides in environments that draw from the modules `random` and `numpy.random`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.config.reading import make_config
from engine.config.runners import Choices
from engine.runners.apex_actor import ApexActor
from engine.runtime.stored_arrays import global_random_state, seeded_global_random
from tests.support.gym_envs import DRAWING
from tests.support.program import json_lines, run_program, the_run


def lengths(folder: Path, *options: str) -> list[int]:
    """Of the episodes since the run's last start, from the file that its host writes: a display may connect late."""
    run_program("--no-ui", "--runner", "single", "--sinks", "json-lines", *options, cwd=folder)
    events = json_lines((the_run(folder).path / "metrics.jsonl").read_text())
    begun = max(number for number, event in enumerate(events) if event["event"] == "begin")
    assert any(event["event"] == "evaluation" for event in events[begun:])
    return [event["length"] for event in events[begun:] if event["event"] == "episode"]


@pytest.mark.process
def test_runs_of_a_seed_are_alike_and_go_on_alike(tmp_path: Path) -> None:
    options = ("--game", DRAWING, "--seed", "5", "--burnin", "100", "--eval-every", "200", "--parallel-envs", "2")
    found = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        begun = lengths(folder, *options, "--steps", "400")
        resumed = lengths(folder, "--resume", "latest", "--steps", "800")
        assert len(begun) > 5 < len(resumed) and begun[:5] != resumed[:5]
        found.append((begun, resumed))
    assert found[0] == found[1]


@pytest.mark.process
def test_actors_of_a_run_draw_differently_and_always_alike() -> None:
    config = make_config({"game": DRAWING, "runner": "apex", "num_actors": 2, "parallel_envs": 2, "seed": 5})
    choices, found = Choices("cpu", "float32", 32, 1), dict[tuple[int, int], Any]()
    with seeded_global_random(0):
        for index, again in ((0, 0), (1, 0), (0, 1)):
            actor = ApexActor(config, choices, index=index, restarts=0, begun_at=0, level=0.0, lane_threads=1)
            actor.close()
            found[index, again] = global_random_state()["globals.numpy"]
    assert np.array_equal(found[0, 0], found[0, 1]) and not np.array_equal(found[0, 0], found[1, 0])


@pytest.mark.process
def test_an_evaluation_is_repeated_by_its_seed(tmp_path: Path) -> None:
    run_program("--no-ui", "--game", DRAWING, "--steps", "200", "--burnin", "100", cwd=tmp_path)
    said = [
        json.loads(run_program("eval", "latest", "--seed", seed, "--episodes", "8", "--json", cwd=tmp_path).stdout)
        for seed in ("1", "1", "2")
    ]
    assert said[0]["mean_length"] == said[1]["mean_length"] != said[2]["mean_length"]
