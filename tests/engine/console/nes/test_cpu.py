"""Every documented opcode compared with a second implementation, and random programs compared with nes-py."""

from pathlib import Path

import numpy as np
import pytest

from engine.console.nes import Cartridge, NesBatch, load_cartridge
from engine.console.nes.layout import DUE, FRAME_CYCLES, PC, SP, STATUS, A, X, Y
from tests.support.nes.cpu_model import LENGTH, OPCODES, Model, TouchesRegister
from tests.support.nes.reference import NesPy, needs_nes_py_8

CASES = 40
TILES = np.zeros(8192, np.uint8)
HOLD = np.zeros(1, np.uint8)


def operand_bytes(mode: str, rng: np.random.Generator) -> list[int]:
    """An operand whose absolute addresses are mostly in RAM or program, sometimes near the end of a page."""
    if LENGTH.get(mode) == 3:
        high = int(rng.choice([int(rng.integers(0, 0x1F)), int(rng.integers(0x80, 0xFF))]))
        return [int(rng.choice([int(rng.integers(256)), 0xFF])), high]
    return [int(rng.integers(256)), int(rng.integers(256))]


def compare_one(console: NesBatch, model: Model) -> bool:
    """Run one instruction on both, in the last cycle of a frame. False if it accesses a register."""
    state = console.state[0]
    console.power_on(0)
    state[[A, X, Y, SP, PC, STATUS]] = model.a, model.x, model.y, model.sp, model.pc, model.status
    state[DUE] = FRAME_CYCLES
    console.ram[0] = np.frombuffer(bytes(model.ram), np.uint8)
    where = f"opcode {model.read(model.pc):02X} at {model.pc:04X}"
    try:
        cycles = model.step()
    except TouchesRegister:
        return False
    console.step(HOLD)
    ours = tuple(int(state[i]) for i in (A, X, Y, SP, PC, STATUS, DUE))
    assert ours == (model.a, model.x, model.y, model.sp, model.pc, model.get_status(), cycles), where
    assert console.ram[0].tobytes() == bytes(model.ram), where
    return True


def random_model(program: bytes, pc: int, rng: np.random.Generator) -> Model:
    """A model with random registers and RAM; half of the pointers in the zero page point to RAM or program."""
    ram = bytearray(rng.bytes(2048))
    for i in range(1, 256, 2):
        ram[i] = int(rng.choice([ram[i], ram[i] % 0x1F, ram[i] | 0x80]))
    a, x, y, sp, status = (int(value) for value in rng.integers(0, 256, 5))
    return Model(program, ram, pc, a, x, y, sp, status)


@pytest.fixture(scope="module")
def slots() -> tuple[NesBatch, bytes, dict[int, list[int]]]:
    """A program with CASES instructions of every documented opcode, four bytes each, and where they are."""
    rng = np.random.default_rng(6502)
    program = bytearray(rng.bytes(32768))
    places: dict[int, list[int]] = {opcode: [] for opcode in OPCODES}
    for i, opcode in enumerate(sorted(OPCODES) * CASES):
        program[4 * i : 4 * i + 3] = bytes([opcode, *operand_bytes(OPCODES[opcode][1], rng)])
        places[opcode].append(0x8000 + 4 * i)
    cartridge = Cartridge(np.frombuffer(bytes(program), np.uint8), TILES, True)
    return NesBatch(1, cartridge), bytes(program), places


def test_the_table_of_the_model_is_the_whole_instruction_set() -> None:
    assert len(OPCODES) == 151 and len({mnemonic for mnemonic, _ in OPCODES.values()}) == 56


@pytest.mark.parametrize("opcode", sorted(OPCODES), ids=lambda code: f"{code:02X}-{'-'.join(OPCODES[code])}")
def test_opcode_equals_the_model(slots: tuple[NesBatch, bytes, dict[int, list[int]]], opcode: int) -> None:
    console, program, places = slots
    rng = np.random.default_rng(opcode)
    compared = sum(compare_one(console, random_model(program, pc, rng)) for pc in places[opcode] for _ in range(2))
    assert compared >= CASES


def test_code_in_ram_equals_the_model(slots: tuple[NesBatch, bytes, dict[int, list[int]]]) -> None:
    console, program, _ = slots
    rng = np.random.default_rng(7)
    compared = 0
    for opcode in sorted(OPCODES) * 10:
        model = random_model(program, int(rng.integers(0x200, 0x7FD)), rng)
        model.ram[model.pc : model.pc + 3] = bytes([opcode, *operand_bytes(OPCODES[opcode][1], rng)])
        compared += compare_one(console, model)
    assert compared > 1000


def random_program(rng: np.random.Generator) -> bytearray:
    """Straight-line code of all 256 opcodes but those that jump or store outside RAM, and then a counting
    loop.

    The loop counts in RAM until the frame ends, so a single wrong cycle shows in what it has counted.
    """
    code = bytearray([0xA9, 0x00, 0x8D, 0x00, 0x20, 0x8D, 0x01, 0x20])  # no interrupt, no picture
    jumps = {0x00, 0x20, 0x40, 0x4C, 0x60, 0x6C}
    while len(code) < 6000:
        opcode = int(rng.integers(256))
        if opcode in jumps or opcode == 0x9A:
            continue
        if opcode & 0x1F == 0x10:
            # over as many bytes as follow it, each a NOP
            skipped = int(rng.integers(0, 4))
            code += bytes([opcode, skipped]) + bytes([0xEA] * skipped)
        elif opcode & 0x1F in (0x01, 0x11):
            # pointers through (zero page,X) could lead anywhere: make the pointer first
            pointer = int(rng.integers(0x10, 0xF0))
            code += bytes(
                [
                    0xA9,
                    int(rng.integers(256)),
                    0x85,
                    pointer,
                    0xA9,
                    int(rng.integers(2, 6)),
                    0x85,
                    pointer + 1,
                ]
            )
            code += bytes([0xA2, 0x00, opcode, pointer])
        else:
            code += bytes([opcode, int(rng.integers(256)), int(rng.integers(2, 7))][: nes_py_length(opcode)])
    loop = 0x8000 + len(code)
    code += bytes([0xE6, 0x00, 0xD0, 0x02, 0xE6, 0x01, 0x4C, loop & 0xFF, loop >> 8])
    return code + bytes(0x7FFA - len(code)) + bytes([0x00, 0x80] * 3)


def nes_py_length(opcode: int) -> int:
    """Length in bytes of an instruction in nes-py, including undocumented ones."""
    if opcode in OPCODES:
        return LENGTH.get(OPCODES[opcode][1], 2)
    if opcode & 3 == 3:
        return 1
    return {0: 2, 1: 2, 3: 3, 5: 2, 7: 3}.get(opcode >> 2 & 7, 1) if opcode & 3 != 1 else 2


@needs_nes_py_8
def test_random_programs_of_all_opcodes_equal_nes_py(tmp_path: Path) -> None:
    seen: set[int] = set()
    for seed in range(12):
        program = random_program(np.random.default_rng(seed))
        seen.update(program[:6000])
        rom = tmp_path / f"{seed}.nes"
        rom.write_bytes(b"NES\x1a\x02\x01\x01" + bytes(9) + program + bytes(8192))
        ours, theirs = NesBatch(1, load_cartridge(rom)), NesPy(rom)
        for frame in range(4):
            ours.step(HOLD)
            theirs.step(0)
            unequal = np.flatnonzero(ours.ram[0] != theirs.ram)
            assert not len(unequal), f"program {seed}, frame {frame}: {[hex(a) for a in unequal]}"
        assert ours.ram[0, 0] or ours.ram[0, 1], "the program never reached its counting loop"
        theirs.close()
    assert len(seen) == 256


def test_jump_to_itself_spends_the_whole_frame_in_threes() -> None:
    program = np.zeros(32768, np.uint8)
    program[:3] = 0x4C, 0x00, 0x80
    program[0x7FFC:0x7FFE] = 0x00, 0x80
    console = NesBatch(1, Cartridge(program, TILES, True))
    for frame in range(1, 50):
        console.step(HOLD)
        spent = frame * FRAME_CYCLES
        assert console.state[0, PC] == 0x8000
        assert console.state[0, DUE] == 1 + -spent % 3
