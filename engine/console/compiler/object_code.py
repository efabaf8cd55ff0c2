"""Machine code from LLVM IR, kept in the cache folder of this user so that it is compiled once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path

import llvmlite
from llvmlite import binding

from engine.console.compiler.code_cache import code_cache, sources_digest
from engine.runtime.files import read_bounded, write_atomically

_MAX_BYTES = 64 << 20


def load(name: str, key: str, write: Callable[[], str], *, optimise: bool) -> binding.ExecutionEngine:
    """The machine code of what `write` returns, LLVM IR; it must be freed only when the code is no longer in use.

    name, key: its file in the cache is called `name-....o`; `key` is all that the IR depends on besides our sources.
    optimise: for this machine's processor, as well as LLVM can. Otherwise hardly at all, in a sixth of the time.
    """
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    options = _this_processor() if optimise else {}
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(opt=3 if optimise else 0, jit=True, **options)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    words = f"{sources_digest()} {llvmlite.__version__} {machine.triple} {sorted(options.items())} {key}"
    path = code_cache() / f"{name}-{hashlib.sha256(words.encode()).hexdigest()[:32]}.o"
    engine.add_object_file(binding.ObjectFileRef.from_data(_stored(path) or _compile(path, write(), machine, optimise)))
    engine.finalize_object()
    return engine


def _this_processor() -> dict[str, str]:
    return {"cpu": binding.get_host_cpu_name(), "features": binding.get_host_cpu_features().flatten()}


def _stored(path: Path) -> bytes:
    """An object file from the cache; empty if it is not there or damaged."""
    with contextlib.suppress(OSError):
        stored = read_bounded(path, _MAX_BYTES)
        if hashlib.sha256(stored[32:]).digest() == stored[:32]:
            return stored[32:]
    return b""


def _compile(path: Path, assembly: str, machine: binding.TargetMachine, optimise: bool) -> bytes:
    """Compile LLVM IR to an object file, and store it."""
    module = binding.parse_assembly(assembly)
    module.verify()
    if optimise:
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(3))
        builder.getModulePassManager().run(module, builder)
    compiled: bytes = machine.emit_object(module)
    with contextlib.suppress(OSError):  # a cache that can't be written costs the time again at the next start
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(compiled).digest() + compiled)
    return compiled
