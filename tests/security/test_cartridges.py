"""A cartridge that is no Mario is refused, and never waited for without end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.envs.emulators.cartridge import installed_mario
from engine.envs.mario import rules
from engine.envs.mario.lanes import MarioLanes
from engine.envs.mario.task import MarioTask
from engine.errors import UserError
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
    assert step.emulated >= 4
