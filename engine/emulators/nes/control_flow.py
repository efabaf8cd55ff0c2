"""Finds the code of a program: the instructions that can be reached, and where its basic blocks begin.

Code is followed from the vectors of reset and NMI through branches, jumps and calls. The targets of an indirect jump
are known only at run time, with one exception: a routine that jumps through a table of addresses after its own call, as
in many games, is recognised by its first instructions. Code that is not found still runs, in the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.emulators.nes.decode import (
    BRANCH,
    BRK,
    CONTROL,
    IDLE,
    JMP,
    JMP_INDIRECT,
    JSR,
    RTI,
    RTS,
    Instruction,
    unpack,
)

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
