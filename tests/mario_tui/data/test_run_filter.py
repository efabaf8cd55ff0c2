"""The filter of lists of runs finds options as flags and files spell them, and words in everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.config.reading import make_config
from engine.runs.run import make_annotation, write_annotation
from mario_tui.commands.runs import run as list_runs
from mario_tui.data.differences import matches, words_of
from tests.support.app import folder_of_runs

OPTIONS = {
    "n_step": 10,
    "learning_rate": 0.0003,
    "amp": False,
    "network": "small",
    "batch_size": "auto",
    "Soft-Tau": 1.0,
}


@pytest.mark.parametrize(
    "filter",
    ["n-step=10", "--n-step=10", "n_step=10", "N-STEP=1e1", "n-step=", "--n-step", "learning-rate=3e-4", "amp=off",
     "learning_rate=0.00030", "network=Small", "--no-amp",
     "batch-size=auto", "first n-step=10"],
)  # fmt: skip
def test_an_option_is_found_as_flags_spell_it(filter: str) -> None:
    assert matches(words_of(filter), "First", lambda: OPTIONS)


@pytest.mark.parametrize(
    "filter",
    ["n-step=1", "n-step=100", "n-step=many", "learning-rate=3e-3", "amp=on", "--amp", "--no-n-step", "network=smal",
     "gamma=0.9", "--gamma", "n-step=10 second"],
)  # fmt: skip
def test_another_value_or_an_option_that_there_is_not_is_not_found(filter: str) -> None:
    assert not matches(words_of(filter), "First, in n-step=1", lambda: OPTIONS)


def test_what_is_no_option_is_looked_for_in_the_text() -> None:
    assert matches(["lr=3"], "note: LR=3 was better", lambda: OPTIONS)
    assert matches(["st"], "First", lambda: pytest.fail("options are not needed"))


def test_runs_are_filtered_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, second, third = folder_of_runs(tmp_path, first="finished", second="failed", third="failed")
    for run in (second, third):
        (run.path / "config.toml").write_text(make_config({"n_step": 3}).to_toml())
    write_annotation(third, make_annotation("night", ""))

    def found(*filters: str) -> list[str]:
        list_runs(["--names", "--run-dir", str(tmp_path), *(f"--filter={each}" for each in filters)])
        return capsys.readouterr().out.split()

    assert found("n-step=3") == ["third", "second"]
    assert found("n-step=3", "failed #night") == ["third"]
    assert found("stopped") == ["first"]
    assert found("n-step=4") == []
    list_runs(["--json", "--filter=--n-step=3 second", "--run-dir", str(tmp_path)])
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["second"]
    list_runs(["--filter=none of them", "--run-dir", str(tmp_path)])
    assert capsys.readouterr().out == "no run matches 'none of them'\n"
