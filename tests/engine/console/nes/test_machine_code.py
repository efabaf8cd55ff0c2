"""Machine code of a program does what the interpreter does, in every byte, cycle by cycle."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.console.nes import Cartridge, NesBatch, decode, load_cartridge, machine_code
from engine.console.nes.decode import find_code
from engine.console.nes.translator import find_blocks, is_translated
from tests.support.nes.cpu_model import LENGTH, OPCODES

TILES = np.zeros(8192, np.uint8)
HOLD = np.zeros(1, np.uint8)
RIGHT_A_B, START = 0x83, 0x08
# Opcodes that a random program can contain without losing its way
STRAIGHT = sorted(
    opcode
    for opcode, (mnemonic, mode) in OPCODES.items()
    if mnemonic not in ("BRK", "RTI", "RTS", "JMP", "JSR", "TXS", "PLP") and mode != "rel"
)


def interpreted(cartridge: Cartridge) -> NesBatch:
    """A console whose interpreter executes everything."""
    console = NesBatch(1, cartridge)
    console.rom[1][:] &= ~decode.MACHINE_CODE
    return console


def random_routine(rng: np.random.Generator, length: int) -> bytes:
    """Instructions of all kinds with operands in RAM or program, and short branches over others."""
    code = bytearray()
    while len(code) < length:
        opcode = int(rng.choice(STRAIGHT))
        size = LENGTH.get(OPCODES[opcode][1], 2)
        if rng.random() < 0.15:
            code += bytes([int(rng.choice([0x10, 0x30, 0x50, 0x70, 0x90, 0xB0, 0xD0, 0xF0])), size])
        high = int(rng.choice([rng.integers(2, 7), rng.integers(0x80, 0xFF)]))
        code += bytes([opcode, int(rng.integers(256)), high][:size])
    return bytes(code) + b"\x60"


def random_cartridge(seed: int) -> Cartridge:
    """A program that calls 40 random routines forever; stray stack operations are undone before each call."""
    rng = np.random.default_rng(seed)
    program = bytearray(0x8000)
    routines = []
    place = 0x1000
    for _ in range(40):
        routine = random_routine(rng, int(rng.integers(20, 80)))
        # the return address lies below what the routine has pushed, so it restores the stack pointer first
        routine = routine[:-1] + b"\xa6\xff\x9a\x60"
        program[place : place + len(routine)] = routine
        routines.append(0x8000 + place)
        place += len(routine)
    main = bytearray(b"\xa9\x00\x8d\x00\x20\x8d\x01\x20")
    loop = 0x8000 + len(main)
    for routine_address in routines:
        main += b"\xa2\xf0\x9a\xa2\xee\x86\xff"  # SP = $F0; $FF = where it is in the routine
        main += bytes([0x20, routine_address & 0xFF, routine_address >> 8])
    main += bytes([0x4C, loop & 0xFF, loop >> 8])
    program[: len(main)] = main
    program[0x7FFA:] = bytes([0x00, 0x80] * 3)
    return Cartridge(np.frombuffer(bytes(program), np.uint8), TILES, True)


def assert_equal(ours: NesBatch, other: NesBatch, where: str) -> None:
    assert np.array_equal(ours.state, other.state), where
    assert np.array_equal(ours.memory, other.memory), where


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_equal_the_interpreter(seed: int) -> None:
    cartridge = random_cartridge(seed)
    ours, other = NesBatch(1, cartridge), interpreted(cartridge)
    rng = np.random.default_rng(seed)
    assert (ours.rom[1] < 0).sum() > 100
    for frame in range(60):
        ram = rng.integers(0, 256, 0x600, np.uint8)
        for console in (ours, other):
            console.ram[0, 0x200:] = ram[:0x600]
            console.step(HOLD)
        assert_equal(ours, other, f"seed {seed}, frame {frame}")


def test_the_game_equals_the_interpreter() -> None:
    """With random buttons through the title screen and into the stage, deaths included."""
    ours, other = NesBatch(1, load_cartridge()), interpreted(load_cartridge())
    rng = np.random.default_rng(3)
    for frame in range(1500):
        held = START if frame % 100 == 50 and frame < 200 else int(rng.choice([RIGHT_A_B, 0x80, 0x82, 0x40, 0x81]))
        for console in (ours, other):
            console.step(np.full(1, held, np.uint8))
        assert_equal(ours, other, f"frame {frame}")


def test_nearly_all_of_the_game_is_translated() -> None:
    program = load_cartridge().program
    code = find_code(program, decode.decode_program(program))
    blocks = find_blocks(code)
    translated = {address for block in blocks.values() for address in block}
    assert len(code.instructions) > 10_000
    assert translated == {address for address, each in code.instructions.items() if is_translated(each)}
    assert len(translated) > 0.97 * len(code.instructions)


def test_a_frame_ends_at_the_same_instruction() -> None:
    """An endless loop of INC: how often it ran says in which cycle the frame ended."""
    program = bytearray(0x8000)
    program[:7] = bytes([0xE6, 0x00, 0xD0, 0xFC, 0x4C, 0x00, 0x80])
    program[0x7FFA:] = bytes([0x00, 0x80] * 3)
    cartridge = Cartridge(np.frombuffer(bytes(program), np.uint8), TILES, True)
    ours, other = NesBatch(1, cartridge), interpreted(cartridge)
    for _ in range(20):
        ours.step(HOLD)
        other.step(HOLD)
        assert_equal(ours, other, "INC loop")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MARIO_TUI_CODE", str(tmp_path))
    machine_code._machine_code.cache_clear()
    yield tmp_path
    machine_code._machine_code.cache_clear()


def run_a_second(cartridge: Cartridge) -> bytes:
    console = NesBatch(1, cartridge)
    console.step(HOLD, 60)
    return hashlib.sha256(console.memory.tobytes()).digest()


@pytest.mark.parametrize("damage", [b"", b"no object file", None])
def test_a_damaged_file_in_the_cache_is_compiled_again(empty_cache: Path, damage: bytes | None) -> None:
    cartridge = random_cartridge(9)
    expected = run_a_second(cartridge)
    (path,) = empty_cache.glob("cartridge-*.o")
    good = path.read_bytes()
    path.write_bytes(good[:-5] if damage is None else damage)
    machine_code._machine_code.cache_clear()
    assert run_a_second(cartridge) == expected
    assert path.read_bytes() == good


def test_a_cache_that_cannot_be_written_is_no_error(empty_cache: Path) -> None:
    empty_cache.chmod(0o500)
    try:
        run_a_second(random_cartridge(10))
    finally:
        empty_cache.chmod(0o700)
