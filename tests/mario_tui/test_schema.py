"""`mario-tui schema`: what the program prints and accepts is what its schemas say."""

from __future__ import annotations

import contextlib
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from engine.config.fields import LARGEST, ConfigError, check, coerce
from engine.config.game import games, own_options
from engine.config.reading import load_toml, make_config
from engine.config.run_config import COMMON, stored_options
from engine.errors import UserError
from engine.protocol.json_lines import EVENT_NAMES, Gap, line_of
from engine.protocol.messages import Alert, Changed, Failed, FinalEvaluation, Log, Mean, Phase, Progress
from engine.protocol.outcome import Outcome
from engine.runs import policies
from engine.runs.checkpoints import policy_metadata
from engine.runs.recording import read_recording
from engine.runtime.formats import safetensors_header
from mario_tui.cli import run
from mario_tui.commands.schema import schema_of
from mario_tui.extras.sweeps.command import sweep_parser
from mario_tui.extras.sweeps.options import PARSERS, PLAN_KEYS, read_plan
from tests.support.app import RECORDING, folder_of_runs, recorded_run, write_recording
from tests.support.program import FinishedRun, refusal, run_program

DOCS = Path(__file__).parents[2] / "docs"


def validator(what: str) -> Draft202012Validator:
    schema = schema_of(what)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def wrong(what: str, value: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(what).iter_errors(value)]


# ---------------------------------------------------------------------------------------------- events


@pytest.mark.process
def test_the_events_of_a_run_are_as_the_schema_says(finished_run: FinishedRun) -> None:
    assert {"progress", "episode", "checkpoint", "summary"} <= {line["event"] for line in finished_run.events}
    valid = validator("events")
    assert [line for line in finished_run.events if not valid.is_valid(line)] == []


def test_so_are_those_that_few_runs_have() -> None:
    nan = float("nan")
    final = FinalEvaluation(
        env_steps=1, policy_env_steps=1, episodes=0, clears=0, clear_rate_low=nan, clear_rate_high=nan,
        mean_return=Mean(nan, nan, nan), note="it was too short",
    )  # fmt: skip
    events: tuple[Any, ...] = (
        final, Alert(at=1.5, run="a", path="/a", rule="loss", text="x", env_steps=1),
        Gap({"episode": 3}), Phase(env_steps=1, phase=1, phases=2, name="1-2"),
        Changed(name="gamma", value=0.9, before=0.8, env_steps=1), Log(at=1.5, level="warning", text="x"),
        Failed(reason="x"),
    )  # fmt: skip
    valid = validator("events")
    (progress,) = (event for event in read_recording(RECORDING) if isinstance(event, Progress))
    for event in (*events, msgspec.structs.replace(progress, numbers={"approx_kl": nan, "entropy": 0.5})):
        line = json.loads(line_of(event, Outcome()) or "")
        assert valid.is_valid(line)
        assert not valid.is_valid({**line, "more": {}}) and not valid.is_valid({"event": line["event"]})
    assert set(schema_of("events")["$defs"]) == {*EVENT_NAMES}


# ---------------------------------------------------------------------------------------------- runs and policies


@pytest.mark.process
def test_the_list_of_runs_is_as_the_schema_says(finished_run: FinishedRun, tmp_path: Path) -> None:
    folder = finished_run.run.path.parent
    listed = json.loads(run_program("runs", "--json", "--run-dir", str(folder), cwd=tmp_path).stdout)
    assert wrong("runs", listed) == [] and listed
    others = tmp_path / "others"
    folder_of_runs(others, running="running", damaged="damaged", stopped="finished")
    run = recorded_run(others)
    (run.path / "annotation.json").write_text('{"tags": ["a"], "note": "b"}')
    write_recording(run, [], evaluated=[0.5, math.nan])
    listed = json.loads(run_program("runs", "--json", "--evaluations", "--run-dir", str(others), cwd=tmp_path).stdout)
    assert wrong("runs", listed) == [] and any(run["evaluations"] for run in listed)
    assert [error.partition(":")[0] for error in wrong("runs", [listed[0] | {"state": "asleep"}])] == ["$[0].state"]


@pytest.mark.process
def test_the_metadata_of_policies_are_as_the_schema_says(finished_run: FinishedRun) -> None:
    files = [*policies.folder().glob("*.safetensors"), *finished_run.run.path.rglob("policy.safetensors")]
    assert len(files) > 3
    said = [json.loads(safetensors_header(path)[0]["__metadata__"]["policy"]) for path in files]
    assert [error for each in said for error in wrong("policy", each)] == []
    assert [error for path in files for error in wrong("policy", policy_metadata(path))] == []
    assert wrong("policy", said[0] | {"stack": 0})


# ---------------------------------------------------------------------------------------------- options and plans


def is_accepted(name: str, value: Any) -> bool:
    """Return whether some game's option accepts a value."""
    for spec in [own_options(game)[name] for game in games() if name in own_options(game)] or [COMMON[name]]:
        with contextlib.suppress(ConfigError):
            check(spec, coerce(spec, value))
            return True
    return False


@pytest.mark.parametrize("name", [name for name in stored_options() if name != "game"])
def test_the_schema_accepts_what_an_option_accepts(name: str) -> None:
    bounds = [each for end in ("low", "high") for each in [stored_options()[name].metadata[end]] if each is not None]
    near = [value for each in bounds for value in (each, each - 1, each + 1, float(each), each + 0.5, each * 0.999)]
    choices = [*(stored_options()[name].metadata["choices"] or ())]
    values = [*near, *choices, True, False, 0, 1, 2, -1, 0.5, LARGEST, LARGEST + 1, "", "none", "auto", "nonsense", [1]]
    valid = validator("options")
    assert [value for value in values if is_accepted(name, value) != valid.is_valid({name: value})] == []
    assert valid.is_valid({name: {"a": 1}}) == is_accepted(name, '{"a": 1}')  # a table stands for its JSON


def test_files_of_options_are_accepted_by_the_program_and_by_the_schema(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    for text, is_right in {
        'game = "snake:8x8"\nsteps = 1e6\nfinal_gamma = "none"\nbatch_size = "auto"': True,
        "use_mmap_buffer = true": True,
        make_config({"game": "tetris"}).to_toml(): True,
        "learning_rat = 1e-3": False,
        "learning_rate = 2.0": False,
        'game = "chess"': False,
        "steps = 1.5": False,
    }.items():
        file.write_text(text)
        try:
            make_config(load_toml(file))
            accepted = True
        except UserError:
            accepted = False
        assert (accepted, wrong("options", tomllib.loads(text)) == []) == (is_right, is_right), text


def test_so_are_plans_of_sweeps(tmp_path: Path) -> None:
    (page,) = re.findall(r"^```toml\n(.*?)^```", (DOCS / "sweeps.md").read_text(), re.MULTILINE | re.DOTALL)
    file = tmp_path / "plan.toml"
    for text, is_right in {
        page: True,
        'search = "tpe"\nsample = 5\n[vary]\nlearning-rate = "log:1e-4..1e-2"\n[options]\ngame = "snake"': True,
        "seeds = 0": False,
        'prune = "mean"': False,
        "jobs = 1001": False,
        "colour = 1": False,
        "[options]\nlearning-rat = 1": False,
    }.items():
        file.write_text(text)
        try:
            read_plan(file, sweep_parser().parse_args([]), {})
            accepted = True
        except UserError:
            accepted = False
        assert (accepted, wrong("plan", tomllib.loads(text)) == []) == (is_right, is_right), text
    assert set(schema_of("plan")["properties"]) == {*PLAN_KEYS} >= {*PARSERS}


def test_a_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["schema", "events"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("events")
    assert "argument WHAT: invalid choice: 'x'" in refusal("schema", "x", cwd=tmp_path)
