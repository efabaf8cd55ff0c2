"""nes-py as a batched emulator: version 8.2 below Python 3.13, 9.0 from 3.13 on. Both play the same game.

Only the core of either version is used: importing 8.2 would import `gym`, which prints to the terminal and fails with
NumPy 2, and 9.0 has its own rewards. A core has one backup slot and can't write states to disk. So a saved state is the
log of inputs and pokes since power-on; loading replays it, or restores the backup slot if that has the same log.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.console.cartridge import installed_mario, load_cartridge
from engine.console.protocol import RAM_BYTES, SCREEN_SHAPE, with_states
from engine.console.view import WEIGHTS, View, reduce_rgb
from engine.errors import UserError

_POKE = 1 << 31
"""The log has a word for each frame, the buttons, and for each poke: this bit, the address and the value."""


class NesPyEmulator:
    """`engine.console.protocol.Emulator` with nes-py. `threads` threads step the lanes; nes-py releases the GIL.

    Raises `CartridgeError` (a `UserError`) if the cartridge is missing or not supported.
    """

    def __init__(self, lanes: int, threads: int = 1, rom: Path | None = None) -> None:
        load_cartridge(rom)  # raises errors; nes-py itself would accept any file
        self.lanes, self._threads, self._rom = lanes, threads, rom or installed_mario()
        self._cores = [power_on(self._rom) for _ in range(lanes)]
        self._logs = [bytearray() for _ in range(lanes)]
        self._marks = [b""] * lanes  # the log that leads to the state in the backup slot; empty: nothing is there
        self._pool = ThreadPoolExecutor(min(threads, lanes), thread_name_prefix="lanes")
        self.ram = np.stack([core.ram_buffer() for core in self._cores])

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has consoles of its own, which play the inputs since power-on again."""
        return with_states, (NesPyEmulator, (self.lanes, self._threads, self._rom), [*map(bytes, self._logs)])

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        def run(lane: int) -> None:
            core, held = self._cores[lane], int(buttons[lane])
            for _ in range(frames):
                core.frame_advance(held)
            self._logs[lane] += held.to_bytes(4, "little") * frames
            self.ram[lane] = core.ram_buffer()

        self._each(run, active)

    def poke(self, lane: int, address: int, value: int) -> None:
        self._cores[lane].ram_buffer()[address] = self.ram[lane, address] = value
        self._logs[lane] += (_POKE | address << 8 | value).to_bytes(4, "little")

    def screen(self, lane: int) -> NDArray[np.uint8]:
        return self._cores[lane].screen_buffer().copy()

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        def draw(lane: int) -> None:
            # plane by plane: NumPy copies pixels of three bytes far slower than rows
            planes = np.ascontiguousarray(self._cores[lane].screen_buffer().transpose(2, 0, 1))
            reduce_rgb(planes, *WEIGHTS[view.brightness], *view.spans(), out[lane].reshape(-1))

        self._each(draw, active)

    def save(self, lane: int) -> bytes:
        return bytes(self._logs[lane])

    def load(self, lane: int, state: bytes) -> None:
        if state and self._marks[lane] == state:
            self._cores[lane].restore()
        else:
            self._cores[lane].close()
            self._cores[lane] = power_on(self._rom)
            _replay(self._cores[lane], state)
            self._cores[lane].backup()
            self._marks[lane] = state
        self._logs[lane], self.ram[lane] = bytearray(state), self._cores[lane].ram_buffer()

    def close(self) -> None:
        self._pool.shutdown()
        for core in self._cores:
            core.close()

    def _each(self, work: Callable[[int], None], active: NDArray[np.bool_] | None) -> None:
        lanes = range(self.lanes) if active is None else np.flatnonzero(active).tolist()
        list((map if len(lanes) == 1 else self._pool.map)(work, lanes))


class _LibraryCore:
    """A core with the C++ library of nes-py 8.2."""

    def __init__(self, rom: str) -> None:
        library = _load_library()
        console = library.Initialize(rom)
        self._joypad = _view(library.Controller(console, 0), 1)
        self._ram = _view(library.Memory(console), RAM_BYTES)
        height, width, colors = SCREEN_SHAPE
        words = _view(library.Screen(console), height * width * 4)  # 0x00RRGGBB, lowest byte first
        self._screen = words.reshape(height, width, 4)[:, :, colors - 1 :: -1]
        self._step = partial(library.Step, console)
        for name in ("Reset", "Backup", "Restore", "Close"):
            setattr(self, name.lower(), partial(getattr(library, name), console))

    def frame_advance(self, buttons: int, /) -> None:
        self._joypad[0] = buttons
        self._step()

    def ram_buffer(self) -> NDArray[np.uint8]:
        return self._ram

    def screen_buffer(self) -> NDArray[np.uint8]:
        return self._screen


def power_on(rom: Path) -> Any:
    """Power on a core of the installed nes-py with a cartridge, with the methods of 9.0: `frame_advance(buttons)`,
    `backup()`, `restore()`, `close()`; views of its memory are `ram_buffer()`, uint8 [2048], and `screen_buffer()`,
    uint8 [240, 256, 3], not contiguous. Raises `UserError` if nes-py is incomplete."""
    try:
        is_native = sys.version_info >= (3, 13)
        core: Any = (importlib.import_module("nes_py._native").NativeEmulator if is_native else _LibraryCore)(str(rom))
    except ImportError as error:
        raise UserError(f"the package nes_py is not installed completely: {error}") from None
    core.reset()  # without it, 9.0 writes many lines to stdout
    return core


def _replay(core: Any, log: bytes) -> None:
    """Replay a saved state. Raises `ValueError` for bytes that are no words."""
    if len(log) % 4:
        raise ValueError("not a saved state of the nes-py emulator")
    for word in np.frombuffer(log, "<u4").tolist():
        if word & _POKE:
            core.ram_buffer()[word >> 8 & RAM_BYTES - 1] = word & 0xFF
        else:
            core.frame_advance(word & 0xFF)


def _view(address: int, size: int) -> NDArray[np.uint8]:
    """A view of `size` bytes of the library's memory."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


@cache
def _load_library() -> ctypes.CDLL:
    """Load nes-py's library without importing the package. Raises `UserError` if it is missing."""
    spec = find_spec("nes_py")
    folders = [] if spec is None else spec.submodule_search_locations or []
    path = next((path for folder in folders for path in Path(folder).glob("lib_nes_env*")), None)
    if path is None:
        raise UserError("lib_nes_env* not found: the package nes_py is not installed completely")
    library = ctypes.CDLL(str(path))
    library.Initialize.argtypes, library.Controller.argtypes = [ctypes.c_wchar_p], [ctypes.c_void_p, ctypes.c_uint]
    for name in ("Screen", "Memory", "Reset", "Step", "Backup", "Restore", "Close"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    for name in ("Initialize", "Controller", "Screen", "Memory"):
        getattr(library, name).restype = ctypes.c_void_p
    return library
