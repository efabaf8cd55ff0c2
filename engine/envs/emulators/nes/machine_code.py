"""Compiles a cartridge's program to machine code, which `run_frame` calls.

LLVM compiles what translator.py writes with hardly any optimisation: that takes a second instead of six, and most of
the gain is there. The result is kept in the cache folder of this user, as numba's is. It contains the game, so it is
never distributed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
from typing import NamedTuple

import numpy as np
from llvmlite import binding
from numpy.typing import NDArray

from engine.envs.emulators.nes.control_flow import PROGRAM_START, find_code
from engine.envs.emulators.nes.decode import decode_program
from engine.envs.emulators.nes.translator import NUMBERS, RUN, translate
from engine.runtime.files import read_bounded, write_atomically
from engine.runtime.jit import code_cache, sources_digest

_MAX_BYTES = 64 << 20


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
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=0, jit=True)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(_object_code(program, machine)))
    engine.finalize_object()
    numbers = ctypes.string_at(engine.get_global_value_address(NUMBERS), 2 * len(program))
    blocks = np.flatnonzero(np.frombuffer(numbers, np.uint16)) + PROGRAM_START
    return MachineCode(engine.get_function_address(RUN), blocks, engine)


def _object_code(program: bytes, machine: binding.TargetMachine) -> bytes:
    """The object file of a program, from the cache if it is there and undamaged."""
    name = hashlib.sha256(f"{sources_digest()} {machine.triple} ".encode() + program).hexdigest()[:32]
    path = code_cache() / f"cartridge-{name}.o"
    with contextlib.suppress(OSError):
        stored = read_bounded(path, _MAX_BYTES)
        if hashlib.sha256(stored[32:]).digest() == stored[:32]:
            return stored[32:]
    array = np.frombuffer(program, np.uint8)
    module = binding.parse_assembly(translate(find_code(array, decode_program(array))))
    module.verify()
    compiled: bytes = machine.emit_object(module)
    with contextlib.suppress(OSError):  # a cache that can't be written costs a second at the next start
        write_atomically(path, hashlib.sha256(compiled).digest() + compiled)
    return compiled
