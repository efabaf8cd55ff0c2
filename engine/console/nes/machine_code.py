"""Compiles a cartridge's program to machine code, which `run_frame` calls.

LLVM compiles what translator.py writes with hardly any optimisation: that takes a second instead of six, and most of
the gain is there. The result is kept in the cache folder of this user. It contains the game, so it is never
distributed.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.function_source import Intrinsic
from engine.console.compiler.object_code import load
from engine.console.compiler.values import Array, InstructionWriter, Number
from engine.console.nes.decode import PROGRAM_START, decode_program, find_code
from engine.console.nes.translator import NUMBERS, RUN, translate


class MachineCode(NamedTuple):
    """address: of the function `run`, see `translate`. blocks: int64, CPU addresses at which a block begins.

    engine: LLVM's owner of the code, which must not be freed while the code is in use.
    """

    address: int
    blocks: NDArray[np.int64]
    engine: object


def machine_code_of(program: NDArray[np.uint8]) -> MachineCode:
    """The machine code of a program (uint8 [32768] at $8000), compiled at the first call or read from the cache."""
    return _machine_code(program.tobytes())


@functools.cache
def _machine_code(program: bytes) -> MachineCode:
    engine = load("cartridge", hashlib.sha256(program).hexdigest(), lambda: _translated(program), optimise=False)
    numbers = ctypes.string_at(engine.get_global_value_address(NUMBERS), 2 * len(program))
    blocks = np.flatnonzero(np.frombuffer(numbers, np.uint16)) + PROGRAM_START
    return MachineCode(engine.get_function_address(RUN), blocks, engine)


def _translated(program: bytes) -> str:
    array = np.frombuffer(program, np.uint8)
    return translate(find_code(array, decode_program(array)))


def _call(
    writer: InstructionWriter, address: Number, memory: Array, program: Array, registers: Array, limit: Number
) -> None:
    pointers = ", ".join(f"ptr {array.address}" for array in (memory, program, registers))
    function = writer.value(f"inttoptr i64 {address.name} to ptr")
    writer.emit(f"call void {function}({pointers}, i64 {limit.name})")


call_machine_code = Intrinsic(_call)
"""In kernels, `call_machine_code(address, memory, program, registers, limit)`: call the function `run`."""
