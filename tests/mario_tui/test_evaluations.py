"""Evaluations of a run and of policies, and films of their episodes, without a terminal."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from engine.console.cartridge import installed_mario
from engine.runs import checkpoints, policies
from engine.runs.lookup import find_policy
from tests.support.program import (
    FinishedRun,
    json_lines,
    run_program,
    the_run,
)

pytestmark = pytest.mark.process


def test_runs_are_listed_and_evaluated(finished_run: FinishedRun, tmp_path: Path) -> None:
    folder = str(finished_run.folder / "checkpoints")
    (listed,) = [
        record
        for record in json.loads(run_program("runs", "--json", "--run-dir", folder, cwd=tmp_path).stdout)
        if record["name"] == finished_run.run.name
    ]
    assert listed["state"] == "finished"
    assert finished_run.run.name in run_program("runs", "--run-dir", folder, cwd=tmp_path).stdout
    done = run_program("eval", str(finished_run.checkpoint), "--episodes", "3", "--json", cwd=tmp_path)
    (result,) = json_lines(done.stdout)
    assert result["episodes"] == 3
    assert done.stderr == ""  # no bar where nobody sees it move
    manifest = checkpoints.read_manifest(finished_run.checkpoint)
    assert result["policy"] == str(finished_run.checkpoint / checkpoints.POLICY_FILE)
    assert result["name"] == f"{finished_run.run.name} {finished_run.checkpoint.name}"
    assert (result["run"], result["trained_on"]) == (finished_run.run.name, "1-1")
    assert (result["trained_env_steps"], result["trained_updates"]) == (manifest.env_steps, manifest.updates)
    assert 0 <= result["clear_rate_low"] <= result["clear_rate"] <= result["clear_rate_high"] <= 1


@pytest.mark.long
def test_a_policy_is_evaluated_and_played_on_the_given_cartridge(finished_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copy(installed_mario(), tmp_path / "mine.nes")
    (tmp_path / "broken.nes").write_bytes(b"NES\x1a" + bytes(12))

    def result(*arguments: str) -> float:
        done = run_program("eval", str(finished_run.checkpoint), "--episodes=2", "--json", *arguments, cwd=tmp_path)
        return float(json_lines(done.stdout)[0]["mean_return"])

    assert result("--rom", "mine.nes") == result()
    for command in (("eval",), ("eval", "--emulator", "nes-py"), ("play", "--record", "film.gif")):
        done = run_program(*command, str(finished_run.checkpoint), "--rom", "broken.nes", cwd=tmp_path, check=2)
        assert done.stdout == ""
        complaint = f"mario-tui: error: {tmp_path}/broken.nes: has 0 program banks"
        assert done.stderr.splitlines()[-1].startswith(complaint)


@pytest.mark.long
def test_an_evaluation_names_its_policy_and_shows_no_bar_on_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI services do; it is for colours, and nobody sees a bar move
    policy = tmp_path / "copy\x1b[31m.safetensors"
    shutil.copy(policies.folder() / "tetris-7x14.safetensors", policy)
    for named, name in (("tetris-7x14", "tetris-7x14"), (str(policy), r"copy\x1b[31m.safetensors")):
        done = run_program("eval", named, "--episodes", "2", cwd=tmp_path)
        assert done.stderr == ""
        first, path, *rest = done.stdout.splitlines()
        assert first == f"{name}: trained on 7x14, at 1,900,032 environment steps, 29,609 updates"
        assert path.endswith(f"/{name.removesuffix('.safetensors')}.safetensors")
        assert rest[0].startswith("tetris: 2 games, mean score ") and all(rest)
        assert "\x1b" not in done.stdout


@pytest.mark.long
def test_an_episode_is_filmed_without_a_terminal(finished_run: FinishedRun, tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    done = run_program("play", str(finished_run.run.path), "--record", str(film), cwd=tmp_path)
    assert re.search(r"return -?\d+, x \d+, (no )?flag", done.stdout)
    assert re.fullmatch(rf"wrote {re.escape(str(film))}: \d+\.\d s, \d+ pictures, \d\S* [KM]iB\n", done.stderr)
    with Image.open(film) as pictures:
        assert pictures.n_frames > 10  # type: ignore[attr-defined]
    before = film.read_bytes()
    refused = run_program("play", str(finished_run.run.path), "--record", "film.gif", cwd=tmp_path, check=2)
    assert refused.stderr == "mario-tui: error: --record: film.gif exists already; --force overwrites it\n"
    assert film.read_bytes() == before
    run_program("play", str(finished_run.run.path), "--record", "film.gif", "--force", "--seed", "5", cwd=tmp_path)
    assert film.read_bytes() != before


def test_evaluations_are_reported_and_the_best_policy_is_kept(tmp_path: Path) -> None:
    options = ("--steps", "1500", "--burnin", "300", "--eval-every", "500", "--eval-episodes", "3")
    done = run_program("--no-ui", "--log-format", "json", *options, cwd=tmp_path)
    found = [event for event in json_lines(done.stdout) if event["event"] == "evaluation"]
    assert [event["env_steps"] // 500 for event in found] == [1, 2, 3]
    assert found[0]["best"]
    best = max(found, key=lambda event: (event["clears"], event["mean_return"], event["env_steps"]))
    policy = the_run(tmp_path).path / checkpoints.BEST_POLICY_FILE
    said = checkpoints.policy_metadata(policy)
    assert said["env_steps"] == best["env_steps"]
    assert said["score"] == [best["clears"] / 3, pytest.approx(best["mean_return"])]
    assert find_policy("latest", tmp_path / "checkpoints") == policy
    recorded = the_run(tmp_path).record().best
    assert recorded is not None and (recorded.env_steps, recorded.mean_return) == (
        best["env_steps"],
        best["mean_return"],
    )
