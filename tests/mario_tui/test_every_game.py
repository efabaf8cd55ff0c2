"""What the program does with every game, one of an installed package too: train, resume, evaluate, show, play."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from engine.config.capabilities import Playable
from engine.config.game import Game, game_of, games
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.config.runners import RUNNERS
from engine.monitoring.memory_budget import estimate_bytes
from engine.protocol.messages import Episode, Evaluation
from engine.protocol.outcome import Outcome, mean_keys
from engine.runs import checkpoints
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.format import judged_label
from mario_tui.screens.dashboard import DashboardScreen
from tests.support.app import shown_as, text, until
from tests.support.plugins import catch_here
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    Terminal,
    json_lines,
    nobody_is_left,
    run_program,
    the_run,
    wait_until,
)

pytestmark = pytest.mark.process

SHORT = ("--burnin", "200", "--batch-size", "32", "--parallel-envs", "8", "--buffer-size", "4000", "--seed", "1",
         "--no-amp", "--eval-every", "400", "--eval-episodes", "2")  # fmt: skip


IN_SHORT = (RunConfig.game,)
"""Games that the short tests try; the long ones try all. Those of Catch in short are in test_plugins.py."""


@pytest.fixture(
    params=[name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.long) for name in (*games(), "catch")]
)
def game(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Game]:
    if request.param != "catch":
        yield game_of(request.param)
        return
    with catch_here(tmp_path / "site"):
        yield game_of("catch")


def trained(game: Game, folder: Path, *options: str) -> list[dict[str, Any]]:
    """The JSON lines of a short run."""
    arguments = ("--no-ui", "--log-format", "json", "--game", game.name, *SHORT, *options)
    return json_lines(run_program(*arguments, cwd=folder).stdout)


def of_kind(kind: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [event for event in events if event["event"] == kind]
    assert found, kind
    return found


def keys(message: type[msgspec.Struct], *own: str) -> set[str]:
    """The keys of a message's line: its fields, with the game's `own` instead of those that stand for them."""
    fields = {field.name for field in msgspec.structs.fields(message)}
    return {"event", *fields} - {"results", "success", "task", "cleared"} | {*own}


def of_episodes(outcome: Outcome) -> list[str]:
    goal = [] if outcome.goal is None else [outcome.goal.name]
    return [*of_results(outcome), *goal, *([outcome.task, "cleared"] if outcome.tasks else [])]


def of_results(outcome: Outcome) -> list[str]:
    return [result.name for result in outcome.results]


async def test_a_run_is_told_shown_resumed_and_evaluated_in_the_words_of_the_game(game: Game, tmp_path: Path) -> None:
    outcome = game.outcome
    events, run = trained(game, tmp_path, "--steps", "800"), the_run(tmp_path)
    means = [*mean_keys(dict.fromkeys(of_results(outcome), 0.0))]
    assert all(event.keys() == keys(Episode, *of_episodes(outcome)) for event in of_kind("episode", events))
    assert all(event.keys() == keys(Evaluation, *means) for event in of_kind("evaluation", events))
    summary = events[-1]
    assert summary["event"] == "summary" and summary["env_steps"] == 800 and summary["updates"] > 0
    assert checkpoints.verify(Path(summary["checkpoint"])).env_steps == 800

    await assert_shown(run, outcome, len(of_kind("evaluation", events)))

    resumed = run_program("--resume", run.name, "--steps", "1000", "--no-ui", "--log-format", "json", cwd=tmp_path)
    assert json_lines(resumed.stdout)[-1]["env_steps"] == 1000
    done = run_program("eval", run.name, "--episodes", "2", "--json", cwd=tmp_path)
    judged = json.loads(done.stdout)
    assert (judged["game"], judged["episodes"]) == (game.name, 2)
    assert judged["trained_env_steps"] in (400, 800, 1000)
    assert (judged["noop_min"] is None) == (game.name not in ("mario", "gym"))
    for mean in means:
        assert judged[f"{mean}_low"] <= judged[mean] <= judged[f"{mean}_high"]


async def assert_shown(run: Run, outcome: Outcome, evaluations: int) -> None:
    """The dashboard of the finished run has something in the table of actors, the charts and the evaluations."""
    async with MarioApp(open_run=run).run_test(size=(200, 60)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: dashboard.shown.end and dashboard.shown.lanes, "the end of the run")
        await until(pilot, lambda: "recent" in text(dashboard, "actors"), "the table")
        table = text(dashboard, "actors")
        assert all(f"0.{lane} " in table for lane in range(8))
        if outcome.results:
            assert outcome.results[0].label[:6] in table
        for chart in dashboard.charts:
            await until(pilot, lambda chart=chart: chart.lines(), f"a line in {chart.id}")
        shown = text(dashboard, "evaluations")
        assert judged_label(outcome) in shown and "best" in shown
        assert shown.count("\n") > evaluations


@pytest.mark.long
@pytest.mark.parametrize("runner", [*RUNNERS][1:])
def test_every_other_runner_trains_and_resumes_it(runner: str, game: Game, tmp_path: Path) -> None:
    count = RUNNERS[runner].count
    two = () if count is None else (f"--{count.replace('_', '-')}", "2")
    summary = trained(game, tmp_path, "--runner", runner, *two, "--steps", "1000")[-1]
    assert summary["event"] == "summary" and summary["env_steps"] >= 1000 and summary["updates"] > 0
    resumed = run_program("--resume", "latest", "--steps", "1500", "--no-ui", "--log-format", "json", cwd=tmp_path)
    again = json_lines(resumed.stdout)[-1]
    assert again["env_steps"] >= 1500 and again["updates"] > summary["updates"]
    nobody_is_left(tmp_path)


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Runs a command, and prints the most memory in KiB that any of its processes has taken."""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts in KiB")
def test_a_run_takes_no_more_memory_than_is_estimated(game: Game, tmp_path: Path) -> None:
    options = {"game": game.name, "batch_size": 2048, "buffer_size": 8000, "burnin": 2100, "parallel_envs": 8}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-c", MEASURE, *PROGRAM, "--no-ui", *given, "--steps", "6200", "--eval-every", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < estimate_bytes(make_config(options))[0]


@pytest.mark.long
def test_an_episode_of_its_policy_is_filmed(game: Game, tmp_path: Path) -> None:
    trained(game, tmp_path, "--steps", "400")
    done = run_program("play", the_run(tmp_path).name, "--record", "film.gif", cwd=tmp_path)
    assert all(result.label in done.stdout for result in game.outcome.results[:1])
    with Image.open(tmp_path / "film.gif") as film:
        assert film.size == (256, 240)


@pytest.mark.long
def test_a_person_plays_it(game: Game, tmp_path: Path) -> None:
    assert isinstance(game, Playable)
    keys = game.keys_of_person(make_config({"game": game.name}))
    terminal = Terminal("play", "--human", "--game", game.name, cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("▶ 1x", "episode 1", next(iter(keys.help.values())))
    terminal.send("d")  # to the right, in every game
    wait_until(lambda: re.search(r"step [1-9]", terminal.text()), "a step")
    terminal.send("?")
    terminal.wait_for("Your game", "esc: close", *keys.help.values())
    terminal.send("\x1b")
    wait_until(lambda: "esc: close" not in terminal.text(), "the end of the help")
    terminal.send("q")
    assert terminal.wait() == 0
    nobody_is_left(tmp_path)
