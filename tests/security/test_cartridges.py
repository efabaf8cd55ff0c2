"""A cartridge that is no Mario is refused, and never waited for without end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.emulators.cartridge import installed_mario
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


def test_another_game_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "other.nes").write_bytes(cartridge_file(CLOCK))
    done = run_program("--no-ui", "--rom", "other.nes", "--steps", "100", "--run-dir", "runs", cwd=tmp_path, check=2)
    assert "does not play like Super Mario Bros" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list((tmp_path / "runs").glob("*"))


def test_every_stage_of_the_true_cartridge_is_recognised() -> None:
    for stage in ("random", "game"):
        task = MarioTask(stage=stage)
        assert stage_starts("native", task.stages, whole_game=task.whole_game, rom=installed_mario())


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
