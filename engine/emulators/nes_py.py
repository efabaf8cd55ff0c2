"""nes-py as a batched emulator: version 8.2 below Python 3.13, 9.0 from 3.13 on. Both play the same game.

Only the core of either version is used: importing 8.2 would import `gym`, which prints to the terminal and fails with
NumPy 2, and 9.0 has its own rewards. A core has one backup slot and can't write states to disk. So a saved state is the
log of inputs and pokes since power-on; loading replays it, or restores the backup slot if that has the same log.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.emulators.cartridge import installed_mario, load_cartridge
from engine.emulators.protocol import RAM_BYTES, SCREEN_SHAPE, with_states
from engine.emulators.view import WEIGHTS, View, reduce_rgb
from engine.errors import UserError

_FRAME, _POKE = 0, 1  # records of the log: [_FRAME, buttons] and [_POKE, address low, address high, value]


class NesPyEmulator:
    """`engine.emulators.protocol.Emulator` with nes-py. `threads` threads step the lanes; nes-py releases the GIL.

    Raises `CartridgeError` (a `UserError`) if the cartridge is missing or not supported.
    """

    def __init__(self, lanes: int, threads: int = 1, rom: Path | None = None) -> None:
        load_cartridge(rom)  # raises errors; nes-py itself would accept any file
        self.lanes, self._threads = lanes, threads
        self.ram = np.zeros((lanes, RAM_BYTES), np.uint8)
        self._rom = str(rom or installed_mario())
        self._consoles: list[_Console] = [self._power_on() for _ in range(lanes)]
        self._marks: list[bytes | None] = [None] * lanes  # the log that leads to the state in the backup slot
        self._slices = np.array_split(np.arange(lanes), min(threads, lanes))
        self._pool = ThreadPoolExecutor(len(self._slices), thread_name_prefix="lanes")
        for lane in range(lanes):
            self.ram[lane] = self._consoles[lane].ram

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has consoles of its own, which play the inputs since power-on again."""
        states = [self.save(lane) for lane in range(self.lanes)]
        return with_states, (NesPyEmulator, (self.lanes, self._threads, Path(self._rom)), states)

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        def run(lane: int) -> None:
            console = self._consoles[lane]
            console.run(int(buttons[lane]), frames)
            self.ram[lane] = console.ram

        self._each(run, active)

    def poke(self, lane: int, address: int, value: int) -> None:
        self._consoles[lane].poke(address, value)
        self.ram[lane, address] = value

    def screen(self, lane: int) -> NDArray[np.uint8]:
        return self._consoles[lane].screen.copy()

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        weights, spans = WEIGHTS[view.brightness], view.spans()

        def draw(lane: int) -> None:
            # plane by plane: NumPy copies pixels of three bytes far slower than rows
            planes = np.ascontiguousarray(self._consoles[lane].screen.transpose(2, 0, 1))
            reduce_rgb(planes, *weights, *spans, out[lane].reshape(-1))

        self._each(draw, active)

    def save(self, lane: int) -> bytes:
        return bytes(self._consoles[lane].log)

    def load(self, lane: int, state: bytes) -> None:
        if self._marks[lane] == state:
            self._consoles[lane].restore(state)
        else:
            self._consoles[lane].close()
            self._consoles[lane] = self._power_on()
            self._consoles[lane].replay(state)
            self._consoles[lane].backup()
            self._marks[lane] = state
        self.ram[lane] = self._consoles[lane].ram

    def close(self) -> None:
        self._pool.shutdown()
        for console in self._consoles:
            console.close()

    def _power_on(self) -> _Console:
        return _Console(power_on(self._rom))

    def _each(self, work: Callable[[int], None], active: NDArray[np.bool_] | None) -> None:
        """Call `work` for each active lane; each thread handles a slice of lanes."""

        def run(lanes: NDArray[np.intp]) -> None:
            for lane in lanes:
                if active is None or active[lane]:
                    work(int(lane))

        for future in [self._pool.submit(run, lanes) for lanes in self._slices]:
            future.result()


class _Console:
    """A core and the log of its inputs and pokes."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.log = bytearray()
        self.ram = core.ram_buffer()
        self.screen = core.screen_buffer()

    def run(self, buttons: int, frames: int) -> None:
        for _ in range(frames):
            self._core.frame_advance(buttons)
        self.log += bytes((_FRAME, buttons)) * frames

    def poke(self, address: int, value: int) -> None:
        self.ram[address] = value
        self.log += bytes((_POKE, address & 0xFF, address >> 8, value))

    def backup(self) -> None:
        self._core.backup()

    def restore(self, state: bytes) -> None:
        """Restore the backup slot, whose log must be `state`."""
        self._core.restore()
        self.log = bytearray(state)

    def replay(self, state: bytes) -> None:
        """Replay a log. Raises `ValueError` if it is not a valid log."""
        at = 0
        while at < len(state):
            if state[at] == _FRAME and at + 2 <= len(state):
                self.run(state[at + 1], 1)
                at += 2
            elif state[at] == _POKE and at + 4 <= len(state) and state[at + 2] < RAM_BYTES >> 8:
                self.poke(state[at + 1] | state[at + 2] << 8, state[at + 3])
                at += 4
            else:
                raise ValueError("not a saved state of the nes-py emulator")

    def close(self) -> None:
        self._core.close()


class Core(Protocol):
    """One console of nes-py, with the method names of 9.0. The arrays are views of its memory."""

    def reset(self) -> None: ...
    def frame_advance(self, buttons: int, /) -> None: ...
    def ram_buffer(self) -> NDArray[np.uint8]: ...  # [2048]
    def screen_buffer(self) -> NDArray[np.uint8]: ...  # [240, 256, 3], not contiguous
    def backup(self) -> None: ...
    def restore(self) -> None: ...
    def close(self) -> None: ...


class _LibraryCore:
    """A `Core` with the C++ library of nes-py 8.2."""

    def __init__(self, rom: str) -> None:
        self._library = _load_library()
        self._handle = self._library.Initialize(rom)
        self._joypad = _view(self._library.Controller(self._handle, 0), 1)

    def reset(self) -> None:
        self._library.Reset(self._handle)

    def frame_advance(self, buttons: int, /) -> None:
        self._joypad[0] = buttons
        self._library.Step(self._handle)

    def ram_buffer(self) -> NDArray[np.uint8]:
        return _view(self._library.Memory(self._handle), RAM_BYTES)

    def screen_buffer(self) -> NDArray[np.uint8]:
        height, width, colors = SCREEN_SHAPE
        words = _view(self._library.Screen(self._handle), height * width * 4)  # 0x00RRGGBB, lowest byte first
        return words.reshape(height, width, 4)[:, :, colors - 1 :: -1]

    def backup(self) -> None:
        self._library.Backup(self._handle)

    def restore(self) -> None:
        self._library.Restore(self._handle)

    def close(self) -> None:
        self._library.Close(self._handle)


def power_on(rom: str) -> Core:
    """Power on a core of the installed nes-py with a cartridge. Raises `UserError` if nes-py is incomplete."""
    core: Core = _native_emulator(rom) if sys.version_info >= (3, 13) else _LibraryCore(rom)
    core.reset()  # without it, 9.0 writes many lines to stdout
    return core


def _native_emulator(rom: str) -> Core:
    try:
        return importlib.import_module("nes_py._native").NativeEmulator(rom)
    except ImportError as error:
        raise UserError(f"the package nes_py is not installed completely: {error}") from None


def _view(address: int, size: int) -> NDArray[np.uint8]:
    """A view of `size` bytes of the library's memory."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


@functools.cache
def _load_library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(_package_file("nes_py", "lib_nes_env*")))
    library.Initialize.argtypes = [ctypes.c_wchar_p]
    library.Initialize.restype = ctypes.c_void_p
    library.Controller.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.Controller.restype = ctypes.c_void_p
    for name in ("Screen", "Memory"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = ctypes.c_void_p
    for name in ("Reset", "Step", "Backup", "Restore", "Close"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
        getattr(library, name).restype = None
    return library


def _package_file(package: str, pattern: str) -> Path:
    """Find a file in an installed package without importing it. Raises `UserError` if it is missing."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).glob(pattern):
            return path
    raise UserError(f"{pattern} not found: the package {package} is not installed completely")
