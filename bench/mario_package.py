"""gym-super-mario-bros 7.4, patched to run on NumPy 2. Only benchmarks use it, as a peer.

Two expressions of the package overflow because NumPy 2 keeps the type of a uint8: sizes in the cartridge's header and
`ram[a] * 0x100`. Both get Python integers here. The notice that `gym` prints to stderr on import is suppressed.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import warnings
from typing import Any

import numpy as np


def mario_env() -> Any:
    """World 1-1 as an environment of the old gym: `reset()` returns a screen, `step(buttons)` screen, reward, done and
    info.

    A screen is uint8 [240, 256, 3], a live view of the emulator's memory. Raises `ImportError` if the package is
    missing.
    """
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gym  # noqa: F401  # from Python 3.13 on the package is another one, without it
        import nes_py._rom as rom
        from gym_super_mario_bros import SuperMarioBrosEnv
        from nes_py import nes_env

        if not isinstance(rom.ROM.header, _Header):
            rom.ROM.header = _Header(rom.ROM.header.fget)
        nes_env.NESEnv._ram_buffer = _ram_buffer
        return SuperMarioBrosEnv(target=(1, 1))


class _Header(property):
    """The cartridge's header as Python integers, which don't overflow."""

    def __get__(self, rom: Any, kind: Any = None) -> Any:
        return self if rom is None else super().__get__(rom, kind).astype(np.int64)


def _ram_buffer(self: Any) -> Any:
    """Work RAM with Python integers as items."""
    from nes_py import nes_env

    address = nes_env._LIB.Memory(self._env)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8 * 0x800)).contents
