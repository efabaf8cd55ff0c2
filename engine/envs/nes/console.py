"""`NesBatch`: N consoles with the same cartridge, stepped together.

A step is one call of compiled code per thread over a slice of lanes. Whole pictures are drawn only when
somebody asks: a lane remembers how it stood before its last frame, and `screen` plays that frame again. The
small gray picture, which agents ask for at every step, is drawn along with the last frame.

A frame ends where nes-py's ends, after 29,781 CPU cycles, which is not a whole picture: the border creeps
down the picture by 1.5 dots a frame, and what lies above it shows the picture that comes next. nes-py shows
the same.
"""

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.envs.nes.cartridge import Cartridge
from engine.envs.nes.colors import BLACK, RGB
from engine.envs.nes.lanes import make_rom, run_lanes
from engine.envs.nes.layout import (
    BUTTONS,
    CANVAS_BYTES,
    DRAW_GRAY,
    DRAW_NOTHING,
    DRAW_SCREEN,
    DUE,
    FIRST_WRITE,
    GRAY,
    GRAY_BYTES,
    GRAY_HEIGHT,
    GRAY_WIDTH,
    HIT_POSITION,
    HIT_UNKNOWN,
    INCREMENT,
    MEMORY_BYTES,
    NAME_TABLES,
    PC,
    PICTURE,
    PICTURE_DOTS,
    PICTURE_GRAY,
    PICTURE_NONE,
    PICTURE_UNDRAWN,
    POSITION,
    SAVED,
    SCREEN_HEIGHT,
    SCREEN_WIDTH,
    SHOW_BACKGROUND,
    SHOW_BACKGROUND_EDGE,
    SHOW_SPRITES,
    SHOW_SPRITES_EDGE,
    SP,
    STATE_WORDS,
    STATUS,
    STROBE,
    VERTICAL_MIRRORING,
)
from engine.envs.view import VIEWS, View, reduce_rgb

STATE_FORMAT = 1
_HEADER = struct.Struct("<4sIII")  # magic, format, checksum of the cartridge, checksum of what follows
_MAGIC = b"NESl"


class NesBatch:
    """N lanes of one console; a lane is a game.

    lanes, threads: how many.
    ram: uint8 [lanes, 2048], live: writing to it pokes the games.
    state, memory, rom: what `run_frame` takes, with a row per lane in the first two, for compiled code that
    drives lanes itself; last_state and last_memory, with a row per lane, are what `remember` fills.
    """

    def __init__(self, lanes: int, cartridge: Cartridge, threads: int = 1) -> None:
        """Power on `lanes` consoles, `threads` at a time. ValueError unless both are at least 1."""
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes}")
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self.lanes = lanes
        self.threads = threads
        self.cartridge = cartridge
        self.rom = make_rom(cartridge)
        self.state: NDArray[np.int64] = np.zeros((lanes, STATE_WORDS), np.int64)
        self.memory: NDArray[np.uint8] = np.zeros((lanes, MEMORY_BYTES), np.uint8)
        self.last_state: NDArray[np.int64] = np.zeros((lanes, SAVED), np.int64)
        self.last_memory: NDArray[np.uint8] = np.zeros((lanes, MEMORY_BYTES), np.uint8)
        self.ram: NDArray[np.uint8] = self.memory[:, :NAME_TABLES]
        self._gray: NDArray[np.uint8] = np.zeros((lanes, GRAY_BYTES), np.uint8)
        self._all = np.ones(lanes, np.bool_)
        self._cartridge_sum = zlib.crc32(cartridge.tiles.tobytes(), zlib.crc32(cartridge.program.tobytes()))
        borders = np.linspace(0, lanes, min(threads, lanes) + 1).astype(int).tolist()
        self._slices = list(pairwise(borders))
        self._canvases = [np.zeros(CANVAS_BYTES, np.uint8) for _ in self._slices]
        self._pool = ThreadPoolExecutor(len(self._slices), "nes") if len(self._slices) > 1 else None
        for lane in range(lanes):
            self.power_on(lane)

    def step(
        self,
        buttons: NDArray[np.uint8],
        frames: int = 1,
        active: NDArray[np.bool_] | None = None,
        *,
        draw: bool = True,
    ) -> None:
        """Run `frames` frames with `buttons` (uint8 [lanes]) held; inactive lanes stand still.

        active: bool [lanes], None for all. Buttons: right 0x80, left 0x40, down 0x20, up 0x10, start 0x08,
        select 0x04, B 0x02, A 0x01. `draw` decides only where time is spent: say False when `gray` won't be
        called before the next step. ValueError for a wrong shape.
        """
        held = np.ascontiguousarray(buttons, np.uint8)
        if held.shape != (self.lanes,):
            raise ValueError(f"buttons must have shape ({self.lanes},), not {held.shape}")
        if frames < 1:
            raise ValueError(f"frames must be at least 1, not {frames}")
        chosen = self._chosen(active)
        kind = DRAW_GRAY if draw else DRAW_NOTHING

        def run(first: int, last: int, canvas: NDArray[np.uint8]) -> None:
            run_lanes(
                first,
                last,
                self.state,
                self.memory,
                self.last_state,
                self.last_memory,
                self._gray,
                canvas,
                self.rom,
                held,
                frames,
                chosen,
                kind,
            )

        if self._pool is None:
            run(0, self.lanes, self._canvases[0])
            return
        futures = [
            self._pool.submit(run, first, last, canvas)
            for (first, last), canvas in zip(self._slices, self._canvases, strict=True)
        ]
        for future in futures:
            future.result()

    def screen(self, lane: int) -> NDArray[np.uint8]:
        """The picture after the last frame: RGB uint8 [240, 256, 3] in nes-py's colours; black at first."""
        return RGB[self._colors(lane)]

    def gray(self, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the active lanes' pictures after their last frame to `out` (uint8 [lanes, 50, 60]).

        Rows 32..231 and columns 8..247; a value is the mean of 0.299 R + 0.587 G + 0.114 B over 4x4 pixels,
        computed exactly and rounded once, halves up. ValueError for a wrong shape or dtype.
        """
        if out.shape != (self.lanes, GRAY_HEIGHT, GRAY_WIDTH) or out.dtype != np.uint8:
            expected = f"uint8 ({self.lanes}, {GRAY_HEIGHT}, {GRAY_WIDTH})"
            raise ValueError(f"out must be {expected}, not {out.dtype} {out.shape}")
        chosen = self._chosen(active)
        for lane in np.flatnonzero(chosen & (self.state[:, PICTURE] == PICTURE_UNDRAWN)).tolist():
            self._gray[lane] = self._replayed(lane, DRAW_GRAY)[GRAY:]
            self.state[lane, PICTURE] = PICTURE_GRAY
        pictures = self._gray.reshape(out.shape)
        np.copyto(out, pictures, where=chosen[:, None, None])

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the active lanes' pictures as `view` has them to `out` (uint8 [lanes, height, width])."""
        if view == VIEWS["50x60"]:
            self.gray(out, active)
            return
        spans = view.spans()
        for lane in np.flatnonzero(self._chosen(active)).tolist():
            reduce_rgb(self.screen(lane), *spans, out[lane].reshape(-1))

    def poke(self, lane: int, address: int, value: int) -> None:
        """Write a byte of work RAM."""
        self.ram[lane, address] = value

    def save(self, lane: int) -> bytes:
        """Everything about a lane, its picture included, for `load` into any lane with the same cartridge."""
        body = b"".join(part[lane].tobytes() for part in self._saved_parts())
        return _HEADER.pack(_MAGIC, STATE_FORMAT, self._cartridge_sum, zlib.crc32(body)) + body

    def load(self, lane: int, state: bytes) -> None:
        """Continue in `lane` where `save` was called; ValueError if the state is foreign or damaged."""
        parts = self._saved_parts()
        size = _HEADER.size + sum(part[lane].nbytes for part in parts)
        if len(state) != size or state[:4] != _MAGIC:
            raise ValueError("not a saved state of this console")
        _, version, cartridge_sum, body_sum = _HEADER.unpack_from(state)
        if version != STATE_FORMAT:
            raise ValueError(f"the saved state has format {version}, this console reads format {STATE_FORMAT}")
        if cartridge_sum != self._cartridge_sum:
            raise ValueError("the saved state belongs to another cartridge")
        if body_sum != zlib.crc32(memoryview(state)[_HEADER.size :]):
            raise ValueError("the saved state is damaged (its checksum differs)")
        offset = _HEADER.size
        for part in parts:
            row = part[lane]
            row[:] = np.frombuffer(state, row.dtype, row.size, offset)
            offset += row.nbytes

    def power_on(self, lane: int) -> None:
        """Clear everything and start the program anew."""
        for part in self._saved_parts():
            part[lane] = 0
        state = self.state[lane]
        state[PC] = int(self.cartridge.program[0x7FFC]) | int(self.cartridge.program[0x7FFD]) << 8
        state[SP] = 0xFD
        state[STATUS] = 0x34
        state[DUE] = 1
        # nes-py begins with a dot that does nothing; so does the last dot of a picture, and it makes the next
        # one even
        state[POSITION] = PICTURE_DOTS - 1
        state[FIRST_WRITE] = 1
        state[INCREMENT] = 1
        state[STROBE] = 1
        # nes-py's picture is on from the first dot; the console's is off until the program turns it on
        state[[SHOW_BACKGROUND, SHOW_SPRITES, SHOW_BACKGROUND_EDGE, SHOW_SPRITES_EDGE]] = 1
        state[HIT_POSITION] = HIT_UNKNOWN
        state[VERTICAL_MIRRORING] = self.cartridge.vertical_mirroring

    def close(self) -> None:
        """Stop the threads; the arrays stay readable."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _saved_parts(self) -> tuple[NDArray[Any], ...]:
        return (self.state[:, :SAVED], self.memory, self.last_state, self.last_memory, self._gray)

    def _colors(self, lane: int) -> NDArray[np.uint8]:
        """The lane's last frame as NES colours, uint8 [240, 256]; before the first frame the console shows black."""
        if self.state[lane, PICTURE] == PICTURE_NONE:
            return np.full((SCREEN_HEIGHT, SCREEN_WIDTH), BLACK, np.uint8)
        return self._replayed(lane, DRAW_SCREEN)[:GRAY].reshape(SCREEN_HEIGHT, SCREEN_WIDTH)

    def _replayed(self, lane: int, draw: int) -> NDArray[np.uint8]:
        """The canvas with the lane's last frame drawn on it; it stays so until the next drawing."""
        rows = slice(lane, lane + 1)
        state = np.zeros((1, STATE_WORDS), np.int64)
        state[:, :SAVED] = self.last_state[rows]
        memory = self.last_memory[rows].copy()
        aside = (state[:, :SAVED].copy(), memory.copy(), self._gray[rows].copy())
        buttons = self.state[rows, BUTTONS].astype(np.uint8)
        canvas = self._canvases[0]
        run_lanes(0, 1, state, memory, *aside, canvas, self.rom, buttons, 1, self._all[:1], draw)
        return canvas

    def _chosen(self, active: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if active is None:
            return self._all
        if active.shape != (self.lanes,) or active.dtype != np.bool_:
            raise ValueError(f"active must be bool ({self.lanes},), not {active.dtype} {active.shape}")
        return np.ascontiguousarray(active)
