"""Decodes the program into packed words, one for each address, so that the CPU need not decode instructions as it runs.

Word: bits 0-15 operand (immediate value, address, or branch target), 16-21 operation, 22-25 addressing mode, 26-29
cycles, 30 set if crossing a page costs more, 31 (the sign) set if machine code begins there (machine_code.py). A word
of 0 means that the bytes must be fetched at run time (code in RAM). There are more modes than on the 6502: an absolute
address is known to be RAM, a register, or program (then the operand is already the value read). Two more rewrites make
it faster without changing results: a `JMP` to itself becomes IDLE, and an `LDA $2002` at the start of the loop
`LDA $2002 / AND #$40 / branch back` becomes POLL; the CPU skips whole iterations of these loops.

Undocumented opcodes do the same as in nes-py. If the bits of the opcode encode a known operation and mode, that is
executed; otherwise only the operand is skipped. Either takes one cycle. Known differences: an NMI right after one, and
sprite DMA started by one, take one cycle less in nes-py.

The code of a program is found as well: the instructions that can be reached, and where its basic blocks begin.

Code is followed from the vectors of reset and NMI through branches, jumps and calls. The targets of an indirect jump
are known only at run time, with one exception: a routine that jumps through a table of addresses after its own call, as
in many games, is recognised by its first instructions. Code that is not found still runs, in the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import helper

# Addressing modes; the last four are subdivisions of IMPLIED and ABSOLUTE
IMPLIED, IMMEDIATE, ZERO_PAGE, ZERO_PAGE_X, ZERO_PAGE_Y, ABSOLUTE_X, ABSOLUTE_Y, INDIRECT_X, INDIRECT_Y = range(9)
ABSOLUTE, ABSOLUTE_RAM, ABSOLUTE_PROGRAM, BRANCH, CONTROL = range(9, 14)

# Operations, in this order: those that read their operand, read-modify-write, stores, all others
LDA, LDX, LDY, ADC, SBC, AND, ORA, EOR, CMP, CPX, CPY, BIT = range(12)
ASL, LSR, ROL, ROR, INC, DEC = range(12, 18)
STA, STX, STY = range(18, 21)
BPL, BMI, BVC, BVS, BCC, BCS, BNE, BEQ = range(21, 29)
ASL_A, LSR_A, ROL_A, ROR_A = range(29, 33)
TAX, TXA, TAY, TYA, TSX, TXS, INX, INY, DEX, DEY = range(33, 43)
CLC, SEC, CLI, SEI, CLD, SED, CLV, NOP = range(43, 51)
PHA, PHP, PLA, PLP, JMP, JMP_INDIRECT, JSR, RTS, RTI, BRK = range(51, 61)
IDLE, POLL_WHILE_SET, POLL_WHILE_CLEAR = range(61, 64)
FIRST_MODIFY, FIRST_STORE = ASL, STA

MACHINE_CODE = -(1 << 31)  # the sign bit of a word
_LENGTH = {IMPLIED: 1} | dict.fromkeys(
    (IMMEDIATE, ZERO_PAGE, ZERO_PAGE_X, ZERO_PAGE_Y, INDIRECT_X, INDIRECT_Y, BRANCH), 2
)

_SINGLE = {
    0x00: (BRK, 14), 0x08: (PHP, 3), 0x18: (CLC, 2), 0x28: (PLP, 4), 0x38: (SEC, 2), 0x40: (RTI, 6),
    0x48: (PHA, 3), 0x58: (CLI, 2), 0x60: (RTS, 6), 0x68: (PLA, 4), 0x78: (SEI, 2), 0x88: (DEY, 2),
    0x8A: (TXA, 2), 0x98: (TYA, 2), 0x9A: (TXS, 2), 0xA8: (TAY, 2), 0xAA: (TAX, 2), 0xB8: (CLV, 2),
    0xBA: (TSX, 2), 0xC8: (INY, 2), 0xCA: (DEX, 2), 0xD8: (CLD, 2), 0xE8: (INX, 2), 0xEA: (NOP, 2),
    0xF8: (SED, 2), 0x0A: (ASL_A, 2), 0x2A: (ROL_A, 2), 0x4A: (LSR_A, 2), 0x6A: (ROR_A, 2),
}  # fmt: skip
_JUMPS = {0x20: (JSR, 6), 0x4C: (JMP, 3), 0x6C: (JMP_INDIRECT, 5)}
_BRANCHES = (BPL, BMI, BVC, BVS, BCC, BCS, BNE, BEQ)

# Operations by the top three bits of the opcode, addressing modes by the next three
_GROUP_1 = (ORA, AND, EOR, ADC, STA, LDA, CMP, SBC)
_GROUP_2 = (ASL, ROL, LSR, ROR, STX, LDX, DEC, INC)
_GROUP_0 = (NOP, BIT, NOP, NOP, STY, LDY, CPY, CPX)
_MODES_1 = (INDIRECT_X, ZERO_PAGE, IMMEDIATE, ABSOLUTE, INDIRECT_Y, ZERO_PAGE_X, ABSOLUTE_Y, ABSOLUTE_X)
_MODES_0_2 = {0: IMMEDIATE, 1: ZERO_PAGE, 3: ABSOLUTE, 5: ZERO_PAGE_X, 7: ABSOLUTE_X}
_READ_CYCLES = {
    IMMEDIATE: 2, ZERO_PAGE: 3, ZERO_PAGE_X: 4, ZERO_PAGE_Y: 4, ABSOLUTE: 4, ABSOLUTE_X: 4, ABSOLUTE_Y: 4,
    INDIRECT_X: 6, INDIRECT_Y: 5,
}  # fmt: skip
_STORE_CYCLES = _READ_CYCLES | {ABSOLUTE_X: 5, ABSOLUTE_Y: 5, INDIRECT_Y: 6}
_MODIFY_CYCLES = {ZERO_PAGE: 5, ZERO_PAGE_X: 6, ABSOLUTE: 6, ABSOLUTE_X: 7}
_UNDOCUMENTED = frozenset(
    (0x02, 0x22, 0x34, 0x3C, 0x42, 0x62, 0x80, 0x82, 0x89, 0x9C, 0x9E, 0xC2, 0xD4, 0xDC, 0xE2, 0xF4, 0xFC)
)


class Instruction(NamedTuple):
    """A word, unpacked. cycles: without those of a taken branch or a crossed page."""

    operation: int
    mode: int
    operand: int
    cycles: int
    crossing: bool
    length: int


def unpack(word: int) -> Instruction:
    """The fields of a packed word; the length in bytes follows from the mode."""
    mode = word >> 22 & 15
    return Instruction(
        word >> 16 & 63, mode, word & 0xFFFF, word >> 26 & 15, bool(word >> 30 & 1), _LENGTH.get(mode, 3)
    )


def opcode_info(opcode: int) -> tuple[int, int, int, bool]:
    """Operation, addressing mode, cycles, and whether crossing a page costs one more, of an opcode 0..255.

    Read-modify-write with an absolute indexed address costs one more cycle if a page is crossed, as in nes-py, but not
    on the 6502.
    """
    if opcode in _SINGLE:
        operation, cycles = _SINGLE[opcode]
        return (operation, CONTROL if operation in (BRK, RTI, RTS) else IMPLIED, cycles, False)
    if opcode in _JUMPS:
        return (_JUMPS[opcode][0], CONTROL, _JUMPS[opcode][1], False)
    if opcode & 0x1F == 0x10:
        return (_BRANCHES[opcode >> 5], BRANCH, 2, False)
    row, column, group = opcode >> 5, opcode >> 2 & 7, opcode & 3
    if group == 3 or (group != 1 and column in (2, 4, 6)):
        return (NOP, IMPLIED, 1, False)
    if group == 1:
        operation, mode = _GROUP_1[row], _MODES_1[column]
    else:
        operation = (_GROUP_0 if group == 0 else _GROUP_2)[row]
        mode = _MODES_0_2[column]
        if operation in (LDX, STX):
            mode = {ZERO_PAGE_X: ZERO_PAGE_Y, ABSOLUTE_X: ABSOLUTE_Y}.get(mode, mode)
    if operation == NOP or opcode in _UNDOCUMENTED:
        return (operation, mode, 1, False)
    if operation < FIRST_MODIFY:
        return (operation, mode, _READ_CYCLES[mode], mode in (ABSOLUTE_X, ABSOLUTE_Y, INDIRECT_Y))
    if operation < FIRST_STORE:
        return (operation, mode, _MODIFY_CYCLES[mode], mode == ABSOLUTE_X)
    return (operation, mode, _STORE_CYCLES[mode], False)


def opcode_words() -> NDArray[np.int32]:
    """int32 [256]: the packed word of every opcode, without an operand."""
    words = np.zeros(256, np.int32)
    for opcode in range(256):
        operation, mode, cycles, crossing = opcode_info(opcode)
        words[opcode] = operation << 16 | mode << 22 | cycles << 26 | crossing << 30
    return words


@helper
def pack(word: int, pc: int, low: int, high: int) -> int:
    """Complete the word of an opcode at `pc` with the two following bytes. Also compiled for use in kernels."""
    mode = (word >> 22) & 15
    if mode == BRANCH:
        after = (pc + 2) & 0xFFFF
        target = (after + low - ((low & 0x80) << 1)) & 0xFFFF
        return word | target | ((after ^ target) > 0xFF) << 30
    if mode in (ABSOLUTE, ABSOLUTE_X, ABSOLUTE_Y, CONTROL):
        return word | low | high << 8
    return word | low


def decode_program(program: NDArray[np.uint8]) -> NDArray[np.int32]:
    """int32 [65536]: the packed word for every CPU address, from a program (uint8 [32768] at $8000)."""
    words = [int(word) for word in opcode_words()]
    code = [int(byte) for byte in program]
    decoded = np.zeros(0x10000, np.int32)
    for i in range(len(program) - 2):
        word = pack(words[code[i]], 0x8000 + i, code[i + 1], code[i + 2])
        address = word & 0xFFFF
        if (word >> 22) & 15 == ABSOLUTE and address < 0x2000:
            word = replace(word, 22, 15, ABSOLUTE_RAM) & ~0xFFFF | address & 0x7FF
        elif (word >> 22) & 15 == ABSOLUTE and address >= 0x8000:
            word = replace(word, 22, 15, ABSOLUTE_PROGRAM) & ~0xFFFF | code[address - 0x8000]
        elif code[i] == 0x4C and address == 0x8000 + i:
            word = replace(word, 16, 63, IDLE)
        decoded[0x8000 + i] = word
    for i in range(len(program) - 8):
        poll = {0xD0: POLL_WHILE_SET, 0xF0: POLL_WHILE_CLEAR}.get(code[i + 5])
        if poll and code[i : i + 5] == [0xAD, 0x02, 0x20, 0x29, 0x40] and code[i + 6] == 0xF9:
            crossing = int(decoded[0x8000 + i + 5]) & 1 << 30
            word = replace(replace(int(decoded[0x8000 + i]), 16, 63, poll), 22, 15, CONTROL)
            decoded[0x8000 + i] = word | crossing
    return decoded


def replace(word: int, position: int, mask: int, value: int) -> int:
    """`word` with the field of `mask` at bit `position` set to `value`."""
    return word & ~(mask << position) | value << position


PROGRAM_START, VECTORS = 0x8000, 0xFFFA
_NMI, _RESET = 0xFFFA, 0xFFFC
_TABLE_JUMP = bytes.fromhex("0A A8 68 85")  # ASL A, TAY, PLA, STA: take the address of the table from the stack


class Code(NamedTuple):
    """instructions: all reachable ones by address. leaders: addresses at which a basic block begins."""

    instructions: dict[int, Instruction]
    leaders: set[int]


def successors(address: int, instruction: Instruction) -> tuple[int, ...]:
    """Addresses at which execution can continue after an instruction; for JSR, the routine and where it returns to.

    Empty for indirect jumps and returns, and for a jump to itself.
    """
    after = address + instruction.length
    if instruction.mode == BRANCH:
        return (instruction.operand, after)
    if instruction.mode == CONTROL:
        if instruction.operation == JMP:
            return (instruction.operand,)
        if instruction.operation == JSR:
            return (instruction.operand, after)
        if instruction.operation in (RTS, RTI, BRK, IDLE, JMP_INDIRECT):
            return ()
    return (after,)


def find_code(program: NDArray[np.uint8], decoded: NDArray[np.int32]) -> Code:
    """Follow the code of a program (uint8 [32768] at $8000), decoded by `decode_program`."""
    found = Code({}, set())
    pending = [_word(program, _NMI), _word(program, _RESET)]
    tables: list[int] = []
    while pending:
        _follow(program, decoded, pending, tables, found)
        while tables and not pending:
            pending = [target for target in _table(program, tables.pop(), found) if target not in found.leaders]
    return found


def _follow(
    program: NDArray[np.uint8], decoded: NDArray[np.int32], pending: list[int], tables: list[int], found: Code
) -> None:
    """Follow the code from the `pending` addresses; append tables of addresses to `tables`."""
    while pending:
        address = pending.pop()
        if PROGRAM_START <= address < VECTORS:
            found.leaders.add(address)
        while PROGRAM_START <= address < VECTORS and decoded[address]:
            if address in found.instructions:
                found.leaders.add(address)  # where this path joins another one
                break
            instruction = found.instructions[address] = unpack(int(decoded[address]))
            following = successors(address, instruction)
            address += instruction.length
            if following != (address,) or instruction.mode == CONTROL:
                if instruction.operation == JSR and _is_table_jump(program, instruction.operand):
                    tables.append(address)
                    following = following[:1]
                pending += [target for target in following if target not in found.leaders]
                break


def _is_table_jump(program: NDArray[np.uint8], routine: int) -> bool:
    offset = routine - PROGRAM_START
    return offset >= 0 and program[offset : offset + len(_TABLE_JUMP)].tobytes() == _TABLE_JUMP


def _table(program: NDArray[np.uint8], start: int, found: Code) -> Iterator[int]:
    """The addresses in a table. Its end is not marked: it is at the latest where the first routine of it begins."""
    end = VECTORS - 1
    place = start
    while place < end and place not in found.instructions:
        target = _word(program, place)
        if not PROGRAM_START <= target < VECTORS:
            return
        if target > start:
            end = min(end, target)
        yield target
        place += 2


def _word(program: NDArray[np.uint8], address: int) -> int:
    return int(program[address - PROGRAM_START]) | int(program[address - PROGRAM_START + 1]) << 8
