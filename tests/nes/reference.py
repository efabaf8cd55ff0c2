"""nes-py's C++ core without its Python package, whose import would pull in gym and print to the terminal."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.envs.nes.cartridge import installed_mario


def _load_library() -> ctypes.CDLL:
    spec = find_spec("nes_py")
    assert spec is not None and spec.submodule_search_locations, "nes_py is the oracle of these tests"
    (path,) = Path(spec.submodule_search_locations[0]).glob("lib_nes_env*.so")
    library = ctypes.CDLL(str(path))
    library.Initialize.argtypes, library.Initialize.restype = [ctypes.c_wchar_p], ctypes.c_void_p
    for name in ("Screen", "Memory"):
        getattr(library, name).argtypes, getattr(library, name).restype = [ctypes.c_void_p], ctypes.c_void_p
    library.Controller.argtypes, library.Controller.restype = (
        [ctypes.c_void_p, ctypes.c_uint],
        ctypes.c_void_p,
    )
    for name in ("Reset", "Step", "Close"):
        getattr(library, name).argtypes, getattr(library, name).restype = [ctypes.c_void_p], None
    return library


class NesPy:
    """One nes-py console. ram: uint8 [2048], live. pixels: uint32 [240, 256] of 0x00RRGGBB, live."""

    _library: ctypes.CDLL | None = None

    def __init__(self, rom: Path | None = None) -> None:
        if NesPy._library is None:
            NesPy._library = _load_library()
        self._lib = NesPy._library
        self._console = self._lib.Initialize(str(rom or installed_mario()))
        self._lib.Reset(self._console)
        self.ram = self._view(self._lib.Memory(self._console), ctypes.c_uint8 * 2048)
        self._held = self._view(self._lib.Controller(self._console, 0), ctypes.c_uint8 * 1)
        self.pixels: NDArray[np.uint32] = self._view(
            self._lib.Screen(self._console), ctypes.c_uint32 * (240 * 256)
        ).reshape(240, 256)

    @staticmethod
    def _view(address: int, kind) -> NDArray:
        return np.ctypeslib.as_array(kind.from_address(address))

    def step(self, buttons: int) -> None:
        """One frame."""
        self._held[0] = buttons
        self._lib.Step(self._console)

    def screen(self) -> NDArray[np.uint8]:
        """RGB uint8 [240, 256, 3], a copy."""
        return np.stack([self.pixels >> 16, self.pixels >> 8, self.pixels], axis=2).astype(np.uint8)

    def close(self) -> None:
        self._lib.Close(self._console)
