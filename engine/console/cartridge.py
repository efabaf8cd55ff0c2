"""Reads an iNES file into a `Cartridge`. Only NROM (mapper 0) is supported, which Super Mario Bros uses.

Without a path the game is taken from the installed gym_super_mario_bros. The package is located without importing it,
because the import would load gym and print to the terminal.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.runtime.files import read_bounded

HEADER_BYTES = 16
PROGRAM_BANK = 16 * 1024
TILE_BANK = 8 * 1024
_MAX_BYTES = 2**23
"""Larger than any cartridge that was sold, so that those are refused by what they need."""
ACCEPTED = "an iNES file with mapper 0 (NROM), NTSC, 1 or 2 program banks and 1 tile bank is accepted"


class CartridgeError(UserError):
    """The file is not a game that this console can run; the message names the file and what is accepted."""


@dataclass(frozen=True, eq=False)
class Cartridge:
    """The contents of a cartridge; the arrays are read-only.

    program: uint8 [32768], mapped at $8000 to $FFFF (a 16 KiB program appears twice).
    tiles: uint8 [8192], two pattern tables of 256 tiles of 16 bytes.
    vertical_mirroring: True if the name tables are side by side (horizontal scrolling).
    """

    program: NDArray[np.uint8]
    tiles: NDArray[np.uint8]
    vertical_mirroring: bool


def load_cartridge(path: str | Path | None = None) -> Cartridge:
    """Load the game at `path`, or Super Mario Bros from the installed gym_super_mario_bros.

    Raises `CartridgeError` if the file is missing, damaged or needs hardware that is not emulated.
    """
    file = installed_mario() if path is None else Path(path)
    return parse_cartridge(read_cartridge(file), str(file))


def read_cartridge(file: Path) -> bytes:
    """The contents of a cartridge file. Raises `CartridgeError` if it can't be read, or is none by its size."""
    try:
        return read_bounded(file, _MAX_BYTES, links=True)
    except OSError as error:
        raise CartridgeError(f"{file}: cannot be read ({error.strerror}); {ACCEPTED}") from error


def installed_mario() -> Path:
    """Path of the game in the installed gym_super_mario_bros. Raises `CartridgeError` if it is not installed."""
    spec = find_spec("gym_super_mario_bros")
    if spec is None or not spec.submodule_search_locations:
        raise CartridgeError(
            "gym_super_mario_bros: not installed, so there is no game to load; install it or specify a path"
        )
    return Path(spec.submodule_search_locations[0]) / "_roms" / "super-mario-bros.nes"


def parse_cartridge(content: bytes, name: str) -> Cartridge:
    """Parse the bytes of an iNES file; `name` is used in errors. Raises `CartridgeError` if it is not supported."""

    def refuse(reason: str) -> CartridgeError:
        return CartridgeError(f"{name}: {reason}; {ACCEPTED}")

    if content[:4] != b"NES\x1a":
        raise refuse("not an iNES file (its first bytes are not 'NES' and 0x1A)")
    if len(content) < HEADER_BYTES:
        raise refuse(f"truncated inside the header ({len(content)} of {HEADER_BYTES} bytes)")
    program_banks, tile_banks, flags6, flags7, flags8, flags9 = content[4:10]
    mapper = flags6 >> 4 | flags7 & 0xF0
    pal = bool(flags9 & 0x01)
    if flags7 & 0x0C == 0x08:  # NES 2.0, https://www.nesdev.org/wiki/NES_2.0
        mapper |= (flags8 & 0x0F) << 8
        program_banks |= (flags9 & 0x0F) << 8
        tile_banks |= (flags9 >> 4) << 8
        pal = content[12] & 0x03 in (1, 3)  # 3: Dendy, with PAL's picture
    elif flags7 & 0xF0 and any(content[12:HEADER_BYTES]):  # old tools signed there, most with "DiskDude!"
        text = content[7:HEADER_BYTES].decode("ascii", "replace")
        raise refuse(f"bytes 7 to 15 of its header, which hold a part of the mapper, are {text!r}; set them to 0")
    if mapper != 0:
        raise refuse(f"mapper {mapper}")
    if flags6 & 0x04:
        raise refuse("has a trainer")
    if flags6 & 0x02:
        raise refuse("has battery-backed memory")
    if flags6 & 0x08:
        raise refuse("has four-screen name tables")
    if pal:
        raise refuse("is made for PAL")
    if program_banks not in (1, 2) or tile_banks != 1:
        raise refuse(f"has {program_banks} program banks and {tile_banks} tile banks")
    expected = HEADER_BYTES + program_banks * PROGRAM_BANK + tile_banks * TILE_BANK
    if len(content) != expected:
        problem = "truncated" if len(content) < expected else "too long"
        raise refuse(f"{problem} ({len(content)} bytes, but its header specifies {expected})")
    split = HEADER_BYTES + program_banks * PROGRAM_BANK
    program = np.tile(np.frombuffer(content[HEADER_BYTES:split], np.uint8), 2 // program_banks)
    tiles = np.frombuffer(content[split:], np.uint8).copy()
    program.flags.writeable = tiles.flags.writeable = False
    return Cartridge(program, tiles, bool(flags6 & 0x01))
