"""A cartridge that is no Mario is refused, and never waited for without end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engine.console.cartridge import installed_mario
from engine.errors import UserError
from engine.games.mario import rules
from engine.games.mario.lanes import MarioLanes, stage_starts
from engine.games.mario.task import MarioTask
from tests.support.nes.homebrew import cartridge_file
from tests.support.program import run_program


@pytest.fixture
def idle(tmp_path: Path) -> Path:
    """A cartridge whose program does nothing: JMP to itself."""
    content = bytearray(installed_mario().read_bytes())
    content[16 : 16 + 3] = b"\x4c\x00\x80"
    content[16 + 0x7FFA : 16 + 0x8000] = b"\x00\x80" * 3
    path = tmp_path / "idle.nes"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("emulator", ["native", pytest.param("nes-py", marks=pytest.mark.long)])
def test_a_game_that_never_begins_is_given_up(emulator: str, idle: Path) -> None:
    with pytest.raises(UserError, match=r"idle\.nes: the game has not begun after 5,000 frames; accepted: a cartridge"):
        MarioLanes(MarioTask(), 1, emulator=emulator, rom=idle)


@pytest.mark.process
def test_the_program_says_so_in_one_line(idle: Path, tmp_path: Path) -> None:
    done = run_program("eval", "mario-1-1", "--rom", str(idle), cwd=tmp_path, check=2)
    assert done.stdout == ""
    assert "the game has not begun" in done.stderr and len(done.stderr.splitlines()) == 1


COUNTER = bytes.fromhex("CE FA 07 EE F8 07 4C 00 80")  # bytes of Mario's clock are counters that never stop
CLOCK = bytes.fromhex(  # a clock that counts down every 32 pictures, and all that Mario's start needs, but no Mario
    "A9 04 8D F8 07 A9 09 8D FA 07 A9 01 8D 70 07 85 B5 A9 08 85 0E 2C 02 20 10 FB E6 00 A5 00 29 1F D0 F3"
    "CE FA 07 4C 15 80"
)


@pytest.mark.parametrize("emulator", ["native", "nes-py"])
@pytest.mark.parametrize(
    ("code", "reason"), [(COUNTER, r"no Mario stands there \(\$000E\)"), (CLOCK, "x .* does not grow pixel by pixel")]
)
def test_another_game_is_recognised_by_what_it_does(emulator: str, code: bytes, reason: str, tmp_path: Path) -> None:
    rom = tmp_path / "other.nes"
    rom.write_bytes(cartridge_file(code))
    with pytest.raises(UserError, match=f"other.nes: the game does not play like Super Mario Bros, because .*{reason}"):
        MarioLanes(MarioTask(), 1, emulator=emulator, rom=rom)


@pytest.mark.process
def test_another_game_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "other.nes").write_bytes(cartridge_file(CLOCK))
    done = run_program("--no-ui", "--rom", "other.nes", "--steps", "100", "--run-dir", "runs", cwd=tmp_path, check=2)
    assert "does not play like Super Mario Bros" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list((tmp_path / "runs").glob("*"))


def test_every_stage_of_the_true_cartridge_is_recognised() -> None:
    for stage in ("random", "game"):
        task = MarioTask(stage=stage)
        assert stage_starts("native", task.stages, whole_game=task.whole_game, rom=installed_mario())


@pytest.mark.parametrize("name", ["super-mario-bros-2", "super-mario-bros-2-downsample"])
def test_of_a_game_with_other_worlds_only_stages_that_can_be_found_are_played(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The Lost Levels: 2-2, 3-2 and 4-2 would begin in other areas."""
    rom = installed_mario().with_name(f"{name}.nes")
    for stage in ("2-2", "1-1,1-2", "random"):
        with pytest.raises(UserError, match=r"\d-\d can't be found, because its worlds have other areas"):
            MarioLanes(MarioTask(stage=stage), 1, rom=rom)
    for stage in ("4-1", "game"):
        caplog.clear()
        MarioLanes(MarioTask(stage=stage), 1, rom=rom)
        assert "is not Super Mario Bros: rewards and ends may not fit" in caplog.text


@pytest.mark.process
def test_an_evaluation_warns_of_another_game(tmp_path: Path) -> None:
    rom = installed_mario().with_name("super-mario-bros-2.nes")
    done = run_program("eval", "mario-1-1", "--episodes", "1", "--rom", str(rom), "--json", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert line == f"mario-tui: warning: --rom: {rom} is not Super Mario Bros: rewards and ends may not fit"
    assert json.loads(done.stdout)["episodes"] == 1


def test_cartridges_that_look_otherwise_have_all_stages(caplog: pytest.LogCaptureFixture) -> None:
    for kind in ("downsample", "pixel"):
        MarioLanes(MarioTask(stage="4-2"), 1, rom=installed_mario().with_name(f"super-mario-bros-{kind}.nes"))
    assert not caplog.records


@pytest.mark.parametrize("emulator", ["native", "nes-py"])
def test_a_player_who_never_gets_control_ends_the_wait(emulator: str) -> None:
    """A state that somebody made up: the console stands still with Mario inside a pipe."""
    lanes = MarioLanes(MarioTask(), 1, emulator=emulator)
    lanes.reset()
    program = b"\x4c\x00\x04"  # JMP $0400
    for offset, byte in enumerate(program):
        lanes.emulator.poke(0, 0x400 + offset, byte)
    lanes.emulator.poke(0, rules.PLAYER_STATE, 2)
    step = lanes.step(np.zeros(1, np.int64))
    assert step.game_frames >= 4
