"""Which cartridge files are accepted, and how others are refused."""

from pathlib import Path

import numpy as np
import pytest

from engine.console import cartridge as module
from engine.console.nes import CartridgeError, load_cartridge


def ines(
    programs: int = 2,
    tiles: int = 1,
    flags6: int = 1,
    flags7: int = 0,
    flags8: int = 0,
    flags9: int = 0,
    timing: int = 0,
) -> bytes:
    header = bytes([*b"NES\x1a", programs, tiles, flags6, flags7, flags8, flags9, 0, 0, timing, 0, 0, 0])
    body = np.random.default_rng(0).bytes(programs * 16384 + tiles * 8192)
    return header + body


NES_2 = 0x08
"""Of byte 7: the header is in the format NES 2.0."""
SIGNED = ines()[:7] + b"DiskDude!" + ines()[16:]


def test_a_nes_2_header_of_the_same_hardware_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "game.nes"
    for timing in (0, 2):  # NTSC, or for every region
        file.write_bytes(ines(flags7=NES_2, timing=timing))
        assert load_cartridge(file).program.tobytes() == ines()[16 : 16 + 32768]


def test_the_installed_game_is_found_without_importing_its_package() -> None:
    cartridge = load_cartridge()
    assert cartridge.program.shape == (32768,) and cartridge.tiles.shape == (8192,)
    assert cartridge.program.dtype == cartridge.tiles.dtype == np.uint8
    assert cartridge.vertical_mirroring
    assert not cartridge.program.flags.writeable and not cartridge.tiles.flags.writeable


def test_a_small_program_appears_twice(tmp_path: Path) -> None:
    file = tmp_path / "small.nes"
    file.write_bytes(ines(programs=1, flags6=0))
    cartridge = load_cartridge(str(file))
    assert np.array_equal(cartridge.program[:16384], cartridge.program[16384:])
    assert cartridge.program[:16384].tobytes() == ines(programs=1)[16 : 16 + 16384]
    assert not cartridge.vertical_mirroring


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an iNES file"),
        (b"PK\x03\x04" + bytes(50000), "not an iNES file"),
        (ines()[:10], "truncated inside the header"),
        (ines()[:-1], "truncated"),
        (ines() + b"x", "too long"),
        (ines(flags6=0x11), "mapper 1"),
        (ines(flags7=0x40), "mapper 64"),
        (ines(flags6=0x05), "trainer"),
        (ines(flags6=0x03), "battery"),
        (ines(flags6=0x09), "four-screen"),
        (ines(flags9=1), "PAL"),
        (ines(programs=3), "3 program banks"),
        (ines(tiles=0), "0 tile banks"),
        (ines(flags7=NES_2, flags8=1), "mapper 256"),
        (ines(flags7=NES_2, flags9=0x01), "258 program banks and 1 tile banks"),
        (ines(flags7=NES_2, flags9=0x10), "2 program banks and 257 tile banks"),
        (ines(flags7=NES_2, timing=1), "PAL"),
        (ines(flags7=NES_2, timing=3), "PAL"),
        (SIGNED, "bytes 7 to 15 of its header, which hold a part of the mapper, are 'DiskDude!'; set them to 0"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "file",
)
def test_other_files_are_refused_in_one_line_with_name_and_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "game.nes"
    file.write_bytes(content)
    with pytest.raises(CartridgeError) as caught:
        load_cartridge(file)
    message = str(caught.value)
    assert reason in message and str(file) in message and "is accepted" in message and "\n" not in message


def test_a_missing_file_or_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.nes", tmp_path):
        with pytest.raises(CartridgeError, match="cannot be read"):
            load_cartridge(path)


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(CartridgeError, match="not installed"):
        load_cartridge()
