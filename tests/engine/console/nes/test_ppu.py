"""Programs that access the PPU in ways that no game would, on the native console and on nes-py."""

from pathlib import Path

import numpy as np
import pytest

from engine.console.nes import NesBatch, load_cartridge
from engine.console.view import VIEWS
from tests.support.nes.play import shrunk
from tests.support.nes.reference import NesPy, needs_nes_py_8

HOLD = np.zeros(1, np.uint8)
REGISTERS = np.array([0x2000, 0x2001, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x4014])
ODDS = np.array([0.15, 0.2, 0.05, 0.15, 0.15, 0.1, 0.15, 0.05])


def random_program(rng: np.random.Generator) -> bytearray:
    """An endless loop that writes to a PPU register, waits a little, and stores a register's value in RAM.

    The NMI handler only counts. Values that nes-py leaves uninitialised (the mask, the read buffer) are set first.
    """
    code = bytearray.fromhex("a9 1e 8d 01 20 ad 07 20 ad 07 20 a9 00 8d 00 20")
    # some of the 256 sprites and name tables that a picture needs before anything can be seen in it
    code += bytes.fromhex(
        "a2 00 8a 9d 00 03 e8 d0 f9 a9 03 8d 14 40 a9 20 8d 06 20 a9 00 8d 06 20a0 08 8a 8d 07 20 e8 d0 f9 88 d0 f6"
    )
    begin = 0x8000 + len(code)
    while len(code) < 0x6F00:
        register = int(rng.choice(REGISTERS, p=ODDS))
        value = int(rng.integers(256))
        if register == 0x2001:
            value |= 0x18 if rng.random() < 0.7 else 0
        elif register == 0x2007:
            value &= 0x3F  # it may land in the palette, and a 65th colour is beyond the end of nes-py's table
        elif register == 0x4014:
            value = int(rng.integers(8))
        elif register == 0x2003 and rng.random() < 0.7:
            value = 0
        code += bytes([0xA9, value, 0x8D, register & 0xFF, register >> 8])
        if register == 0x2006:
            code += bytes([0xA9, value, 0x8D, 0x06, 0x20, 0xA9, value & 0x3F, 0x8D, 0x07, 0x20])
        # 5 cycles an iteration
        code += bytes([0xA2, int(rng.integers(1, 200)), 0xCA, 0xD0, 0xFD])
        code += bytes([0x2C, 0x02, 0x20, 0x08, 0x68])
        code += bytes([0x8D, int(rng.integers(256)), 2, 0xAD, int(rng.choice([2, 4, 7])), 0x20])
        code += bytes([0x8D, int(rng.integers(256)), 4])
    code += bytes([0x4C, begin & 0xFF, begin >> 8])
    handler = 0x8000 + len(code)
    code += bytes.fromhex("e6 10 d0 02 e6 11 40")
    code += bytes(0x7FFA - len(code))
    return code + bytes([handler & 0xFF, handler >> 8, 0x00, 0x80, 0x00, 0x80])


@needs_nes_py_8
@pytest.mark.parametrize("mirroring", [0, 1], ids=["horizontal", "vertical"])
@pytest.mark.parametrize("seed", range(6))
def test_random_register_accesses_equal_nes_py(tmp_path: Path, seed: int, mirroring: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(rng)
    rom = tmp_path / "random.nes"
    rom.write_bytes(bytes([*b"NES\x1a", 2, 1, mirroring]) + bytes(9) + program + rng.bytes(8192))
    ours, theirs = NesBatch(1, load_cartridge(rom)), NesPy(rom)
    gray = np.zeros((1, 50, 60), np.uint8)
    for frame in range(90):
        ours.step(HOLD)
        theirs.step(0)
        unequal = np.flatnonzero(ours.ram[0] != theirs.ram)
        assert not len(unequal), f"frame {frame}: {[hex(a) for a in unequal]}"
        pixels = np.argwhere((ours.screen(0) != theirs.screen()).any(axis=2))
        assert not len(pixels), f"frame {frame}: {len(pixels)} pixels, first {pixels[0]}"
        ours.picture(VIEWS["50x60"], gray)
        assert np.array_equal(gray[0], shrunk(theirs.screen())), f"frame {frame}: the gray picture"
    assert ours.ram[0, 0x10] > 0, "the NMI was never taken"
    theirs.close()
