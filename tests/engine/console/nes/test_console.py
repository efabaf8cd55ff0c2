"""Batches of consoles: lanes are independent, results do not depend on threads, states can be saved."""

import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.console.cartridge import parse_cartridge
from engine.console.compiler.code_cache import keep_used
from engine.console.nes import FRAME_CYCLES, Cartridge, NesBatch, layout, load_cartridge, shorten_frame
from engine.console.nes.console import _HEADER
from engine.console.view import VIEWS
from tests.support.nes.homebrew import cartridge_file
from tests.support.nes.play import HELD, MODE, NORMAL, ODDS, PLAYER, PLAYING, START, TIMER

LANES = 5


@pytest.fixture(scope="module")
def cartridge() -> Cartridge:
    return load_cartridge()


@pytest.fixture(scope="module")
def start(cartridge: Cartridge) -> bytes:
    """A saved state at the first playable frame of 1-1."""
    console = NesBatch(1, cartridge)
    zero, pressed = np.zeros(1, np.uint8), np.full(1, START, np.uint8)
    console.step(zero, 60)
    for _ in range(100):
        console.step(pressed)
        console.step(zero)
        console.ram[0, TIMER] = 0
    assert (console.ram[0, MODE], console.ram[0, PLAYER]) == (PLAYING, NORMAL)
    return console.save(0)


def begin(lanes: int, cartridge: Cartridge, start: bytes, threads: int = 1) -> NesBatch:
    console = NesBatch(lanes, cartridge, threads)
    for lane in range(lanes):
        console.load(lane, start)
    return console


def pictures(console: NesBatch) -> NDArray[np.uint8]:
    out = np.zeros((console.lanes, 50, 60), np.uint8)
    console.picture(VIEWS["50x60"], out)
    return out


def everything(console: NesBatch) -> list[bytes]:
    return [console.save(lane) for lane in range(console.lanes)]


def random_buttons(steps: int, lanes: int) -> NDArray[np.uint8]:
    return np.random.default_rng(5).choice(HELD, (steps, lanes), p=ODDS)


def test_a_lane_of_many_equals_a_single_lane(cartridge: Cartridge, start: bytes) -> None:
    many = begin(LANES, cartridge, start)
    buttons = random_buttons(60, LANES)
    for held in buttons:
        many.step(held, 4)
    assert len(set(everything(many))) == LANES
    for lane in range(LANES):
        one = begin(1, cartridge, start)
        for held in buttons[:, lane : lane + 1]:
            one.step(held, 4)
        assert one.save(0) == many.save(lane)
        assert np.array_equal(one.screen(0), many.screen(lane))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_number_of_threads_changes_nothing(cartridge: Cartridge, start: bytes, threads: int) -> None:
    one, several = begin(LANES, cartridge, start), begin(LANES, cartridge, start, threads)
    for held in random_buttons(50, LANES):
        one.step(held, 4)
        several.step(held, 4)
    assert everything(one) == everything(several)
    assert np.array_equal(pictures(one), pictures(several))
    several.close()


def test_four_frames_at_once_equal_four_steps(cartridge: Cartridge, start: bytes) -> None:
    at_once, one_by_one = begin(LANES, cartridge, start), begin(LANES, cartridge, start)
    for held in random_buttons(50, LANES):
        at_once.step(held, 4)
        for _ in range(4):
            one_by_one.step(held)
        assert np.array_equal(pictures(at_once), pictures(one_by_one))
    assert everything(at_once) == everything(one_by_one)


def test_two_parts_of_a_frame_are_a_frame(cartridge: Cartridge, start: bytes) -> None:
    """Wherever it is cut, also within an instruction."""
    cuts = np.random.default_rng(8).integers(1, FRAME_CYCLES, (300, LANES))
    cuts[:10] = np.arange(1, 11)[:, None]
    whole, parted = begin(LANES, cartridge, start), begin(LANES, cartridge, start)
    for cut, held in zip(cuts, random_buttons(len(cuts), LANES), strict=True):
        whole.step(held)
        for part in (cut, FRAME_CYCLES - cut):
            for lane, cycles in enumerate(part.tolist()):
                shorten_frame(parted.state[lane], cycles)
            parted.step(held)
        assert np.array_equal(parted.state, whole.state)
        assert np.array_equal(parted.memory, whole.memory)
    unmoved = parted.state.copy()
    for lane in range(LANES):
        shorten_frame(parted.state[lane], 0)
    parted.step(np.zeros(LANES, np.uint8))
    unmoved[:, layout.BUTTONS] = 0
    assert np.array_equal(parted.state, unmoved)


def test_drawing_a_picture_does_not_change_the_state(cartridge: Cartridge, start: bytes) -> None:
    watched, unwatched = begin(LANES, cartridge, start), begin(LANES, cartridge, start)
    for held in random_buttons(50, LANES):
        watched.step(held, 4)
        unwatched.step(held, 4)
        pictures(watched)
        watched.screen(1)
    assert everything(watched) == everything(unwatched)


def test_saved_and_loaded_equals_continued(cartridge: Cartridge, start: bytes) -> None:
    console = begin(2, cartridge, start)
    buttons = random_buttons(60, 2)
    for held in buttons[:30]:
        console.step(held, 3)
    saved = console.save(0)
    before = pictures(console)[0], console.screen(0)
    for held in buttons[30:]:
        console.step(held, 3)
    other = NesBatch(2, cartridge)
    other.load(1, saved)
    assert np.array_equal(pictures(other)[1], before[0])
    assert np.array_equal(other.screen(1), before[1])
    for held in buttons[30:]:
        other.step(held[::-1].copy(), 3)
    assert other.save(1) == console.save(0)


def test_inactive_lanes_do_not_change(cartridge: Cartridge, start: bytes) -> None:
    console = begin(LANES, cartridge, start)
    before = everything(console)
    active = np.array([True, False, True, False, False])
    console.step(np.full(LANES, 0x81, np.uint8), 7, active)
    out = np.full((LANES, 50, 60), 77, np.uint8)
    console.picture(VIEWS["50x60"], out, active)
    for lane, state in enumerate(before):
        assert (console.save(lane) == state) != active[lane]
        assert (out[lane] == 77).all() != active[lane]


def test_ram_is_live(cartridge: Cartridge, start: bytes) -> None:
    console = begin(1, cartridge, start)
    console.ram[0, 0x75A] = 9
    console.step(np.zeros(1, np.uint8), 10)
    assert console.ram[0, 0x75A] == 9
    assert console.ram.base is console.memory and console.ram.shape == (1, 2048)


def test_power_on_restarts_a_lane(cartridge: Cartridge, start: bytes) -> None:
    console = begin(2, cartridge, start)
    console.power_on(1)
    assert console.save(1) == NesBatch(1, cartridge).save(0)
    assert console.save(0) == start
    assert not console.screen(1).any()


def test_a_foreign_or_damaged_state_is_refused_and_changes_nothing(cartridge: Cartridge, start: bytes) -> None:
    console = begin(1, cartridge, start)
    console.step(np.zeros(1, np.uint8), 5)
    before = console.save(0)
    other = NesBatch(1, Cartridge(cartridge.program[::-1].copy(), cartridge.tiles, True)).save(0)
    damaged = bytearray(start)
    damaged[2000] ^= 1
    newer = bytearray(start)
    newer[4] += 1
    for state, reason in (
        (b"", "not a saved state"),
        (start[:-1], "not a saved state"),
        (b"x" + start[1:], "not a saved state"),
        (other, "another cartridge"),
        (bytes(damaged), "damaged"),
        (bytes(newer), "format 3"),
    ):
        with pytest.raises(ValueError, match=reason):
            console.load(0, state)
        assert console.save(0) == before


def test_every_state_that_can_be_saved_can_be_loaded() -> None:
    """A program with the picture turned off, which reads on through video memory far beyond its end."""
    code = bytes.fromhex("A9 04 8D 00 20 A9 00 8D 01 20 AD 07 20 4C 0A 80")
    console = NesBatch(1, parse_cartridge(cartridge_file(code), "reads.nes"))
    addresses = set()
    for _ in range(20):
        console.step(np.zeros(1, np.uint8))
        addresses.add(int(console.state[0, layout.ADDRESS]))
        console.load(0, console.save(0))
    assert max(addresses) > 0x7FFF


def state_of(console: NesBatch, **words: int) -> bytes:
    """A saved state with some of its words replaced, and a checksum that fits."""
    saved = bytearray(console.save(0))
    for name, value in words.items():
        struct.pack_into("<q", saved, _HEADER.size + 8 * getattr(layout, name), value)
    struct.pack_into("<I", saved, 12, zlib.crc32(bytes(saved[_HEADER.size :])))
    return bytes(saved)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("SP", 1 << 40),  # the stack outside memory
        ("SP", -1),
        ("PC", 0x10000),
        ("POSITION", -(1 << 60)),  # a picture that never ends
        ("POSITION", layout.PICTURE_DOTS),
        ("DUE", -(1 << 60)),
        ("ADDRESS", 1 << 20),
        ("SPRITE_COUNT", 9),
        ("SPRITE_LIST", 64),
        ("SPRITE_ADDRESS", 256),
        ("BACKGROUND_TABLE", 0x2000),
        ("INCREMENT", 0),
        ("HIT_POSITION", -2),
        ("PICTURE", 2),
    ],
)
def test_a_state_with_an_impossible_word_is_refused_and_changes_nothing(
    word: str, value: int, cartridge: Cartridge, start: bytes
) -> None:
    console = NesBatch(1, cartridge)
    console.load(0, start)
    before = console.save(0)
    assert state_of(console) == before
    with pytest.raises(ValueError, match=f"word {getattr(layout, word)} of the console's state can't be {value}"):
        console.load(0, state_of(console, **{word: value}))
    assert console.save(0) == before


def test_any_accepted_state_runs_and_can_be_saved_again(cartridge: Cartridge) -> None:
    """No fabricated state makes the console hang or write outside its memory; adjacent memory does not change."""
    random, console = np.random.default_rng(0), NesBatch(3, cartridge)
    accepted = [list(layout._ACCEPTED[word]) for word in range(layout.STATE_WORDS)]
    accepted[layout.DOTS_DONE] = [0]
    neighbours = [console.save(lane)[16:] for lane in (0, 2)]
    active = np.array([False, True, False])
    for _ in range(300):
        for words, memory in ((console.state, console.memory), (console.last_state, console.last_memory)):
            words[1] = [values[random.integers(len(values))] for values in accepted]
            memory[1] = random.integers(0, 256, layout.MEMORY_BYTES)
        console.state[1, layout.PICTURE] = 1
        console.load(1, console.save(1))
        console.screen(1)
        console.step(random.integers(0, 256, 3).astype(np.uint8), 2, active)
        console.load(1, console.save(1))
    assert [console.save(lane)[16:] for lane in (0, 2)] == neighbours


def test_wrong_arguments_are_refused(cartridge: Cartridge) -> None:
    with pytest.raises(ValueError, match="lanes must be at least 1"):
        NesBatch(0, cartridge)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        NesBatch(1, cartridge, 0)
    console = NesBatch(2, cartridge)
    with pytest.raises(ValueError, match="buttons must have shape"):
        console.step(np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="frames must be at least 1"):
        console.step(np.zeros(2, np.uint8), 0)
    with pytest.raises(ValueError, match="active must be bool"):
        console.step(np.zeros(2, np.uint8), 1, np.ones(2, np.uint8))
    with pytest.raises(ValueError, match="out must be uint8"):
        console.picture(VIEWS["50x60"], np.zeros((2, 60, 50), np.uint8))


@pytest.mark.long
@pytest.mark.process
def test_the_cache_is_in_the_users_folder_and_contains_no_game(tmp_path: Path) -> None:
    code = (
        "import numpy as np; from engine.console.nes import NesBatch, load_cartridge\n"
        "console = NesBatch(1, load_cartridge()); console.step(np.zeros(1, np.uint8))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "MARIO_TUI_CODE"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    files = [file for file in (tmp_path / "mario-tui" / "code").rglob("*") if file.is_file()]
    assert {"cartridge", "run_frame", "run_lanes"} == {file.name.split("-")[0] for file in files}
    cartridge = load_cartridge()
    content = b"".join(file.read_bytes() for file in files)
    for data in (cartridge.program, cartridge.tiles):
        pieces = [data[i : i + 32].tobytes() for i in range(0, len(data), 32)]
        assert not any(piece in content for piece in pieces if len(set(piece)) > 8)


def test_cache_folders_of_other_versions_are_removed_after_a_month_without_use(tmp_path: Path) -> None:
    used, recent, old, foreign = (tmp_path / name for name in ("a" * 16, "b" * 16, "c" * 16, "notes"))
    for folder, days in ((used, 40), (recent, 29), (old, 31), (foreign, 400)):
        folder.mkdir()
        (folder / "kernel.o").touch()
        os.utime(folder, (time.time() - days * 24 * 3600,) * 2)
    keep_used(used)
    assert sorted(tmp_path.iterdir()) == [used, recent, foreign]
    assert (used / "kernel.o").exists() and time.time() - used.stat().st_mtime < 60
    keep_used(Path("/proc/nowhere/mario-tui"))  # can't be written: nothing happens
