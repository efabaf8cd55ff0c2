"""Presets, options of other runners, and the memory that all processes of a run take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.agents.optimisers import RMSProp
from engine.config.command_line import preset, presets
from engine.config.game import games
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.monitoring.memory_budget import check_memory
from mario_tui.launch import make_plan
from tests.support.learner import make_learner
from tests.support.program import run_program


@pytest.mark.parametrize("name", presets())
@pytest.mark.process
def test_a_preset_makes_a_run_and_gives_way_to_file_and_flags(name: str, tmp_path: Path) -> None:
    config = make_plan({}, preset_name=name).config
    for field, value in preset(name).items():
        assert config.value(field) == value
    file = tmp_path / "mine.toml"
    file.write_text(f'runner = "{config.runner}"\nbatch_size = 128\nsync_every = 77\n')
    config = make_plan({"sync_every": 78, "seed": 5}, config_file=file, preset_name=name).config
    assert (config.batch_size, config.sync_every, config.seed) == (128, 78, 5)
    assert config.save_every == presets()[name].options.get("save_every", RunConfig.save_every)


@pytest.mark.process
def test_the_preset_of_the_minatar_paper_learns_with_its_network_and_optimiser(tmp_path: Path) -> None:
    config = make_config(preset("minatar-paper"))
    learner = make_learner(config, config.spec, run=tmp_path)
    assert sum(parameter.numel() for parameter in learner.agent.online.parameters()) == 132_566
    assert isinstance(learner.agent.optimizer, RMSProp) and learner.agent.learning_rate == 0.00025
    learner.close()


def test_every_game_has_a_preset() -> None:
    assert {preset(name).get("game", RunConfig.game) for name in presets()} == set(games())


@pytest.mark.parametrize(
    ("runner", "option", "many"), [("apex", "num_actors", 1024), ("parallel", "num_processes", 256)]
)
def test_what_all_processes_take_of_memory_is_checked_before_the_start(runner: str, option: str, many: int) -> None:
    options: dict[str, Any] = {"runner": runner, "parallel_envs": 1, "batch_size": 2048, "buffer_size": 600_000}
    check_memory(make_config({**options, option: 1}), with_replay=True)
    with pytest.raises(UserError, match=r"GiB of memory are free; accepted: .* or fewer processes"):
        check_memory(make_config({**options, option: many}), with_replay=True)  # 360 GiB and more


@pytest.mark.process
def test_an_unknown_preset_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = run_program("--no-ui", "--preset", "fastest", cwd=tmp_path, check=2)
    assert done.stdout == ""
    assert done.stderr.startswith("mario-tui: error: --preset must be one of parallel-classic")
    assert len(done.stderr.splitlines()) == 1
