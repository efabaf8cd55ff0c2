"""Presets, options of other runners, and the memory that all processes of a run take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config.games import games
from engine.config.presets import preset, presets
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.monitoring.memory_budget import check_memory
from mario_tui import cli
from mario_tui.launch import make_plan
from tests.support.program import run_program


@pytest.mark.parametrize("name", presets())
def test_a_preset_makes_a_run_and_gives_way_to_file_and_flags(name: str, tmp_path: Path) -> None:
    config = make_plan({}, preset_name=name).config
    for field, value in preset(name).items():
        assert config.value(field) == value
    file = tmp_path / "mine.toml"
    file.write_text(f'runner = "{config.runner}"\nbatch_size = 128\nsync_every = 77\n')
    config = make_plan({"sync_every": 78, "seed": 5}, config_file=file, preset_name=name).config
    assert (config.batch_size, config.sync_every, config.seed) == (128, 78, 5)
    assert config.save_every == presets()[name].options.get("save_every", RunConfig.save_every)


def test_every_game_has_a_preset() -> None:
    assert {preset(name).get("game", RunConfig.game) for name in presets()} == set(games())


SINGLE, TWO, THREE = (" or ".join(f"--runner {name}" for name in names) for names in (
    ("single",), ("parallel", "ddp"), ("single", "parallel", "ddp"),
))  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--preset apex", "--preset must be one of parallel-classic, apex-classic, apex-paper, snake-12x12, "),
        ("--runner single --num-actors 3", "--num-actors is not an option of single; it needs --runner apex"),
        ("--runner ddp --num-actors 3", "--num-actors is not an option of ddp; it needs --runner apex"),
        ("--num-processes 3", f"--num-processes is not an option of single; it needs {TWO}"),
        ("--runner parallel --checkpoint-replay",
         f"--checkpoint-replay is not an option of parallel; it needs {SINGLE}"),
        ("--runner apex --use-mmap-buffer", f"--replay-device is not an option of apex; it needs {THREE}"),
        ("--runner apex --no-async-envs", f"--async-envs is not an option of apex; it needs {THREE}"),
        ("--runner apex --num-actors 0", "--num-actors must be a whole number between 1 and 1,024, got 0"),
        ("--preset apex-paper --runner single", "--num-actors is not an option of single"),
        ("--runner dpp", "--runner must be one of single, parallel, ddp, apex, got 'dpp'"),
    ],
)  # fmt: skip
def test_options_of_another_runner_are_refused_in_one_line(arguments: str, complaint: str) -> None:
    with pytest.raises(UserError) as refused:
        cli.run(["--no-ui", *arguments.split()])
    assert str(refused.value).startswith(complaint)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("runner", "option", "many"), [("apex", "num_actors", 1024), ("parallel", "num_processes", 256)]
)
def test_what_all_processes_take_of_memory_is_checked_before_the_start(runner: str, option: str, many: int) -> None:
    options: dict[str, Any] = {"runner": runner, "parallel_envs": 1, "batch_size": 2048, "buffer_size": 600_000}
    check_memory(make_config({**options, option: 1}), with_replay=True)
    with pytest.raises(UserError, match=r"GiB of memory are free; accepted: .* or fewer processes"):
        check_memory(make_config({**options, option: many}), with_replay=True)  # 360 GiB and more


def test_an_unknown_preset_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = run_program("--no-ui", "--preset", "fastest", cwd=tmp_path, check=2)
    assert done.stdout == ""
    assert done.stderr.startswith("mario-tui: error: --preset must be one of parallel-classic")
    assert len(done.stderr.splitlines()) == 1
