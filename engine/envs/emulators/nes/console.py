"""`NesBatch`: N consoles with the same cartridge, stepped together.

A step is one call of compiled code per thread over a slice of lanes. It draws nothing: a lane remembers how it
stood before its last frame, and `screen` and `picture` play that frame again. A task that wants a picture at every
step draws it along with the frame in a kernel of its own.

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

from engine.envs.emulators.cartridge import Cartridge
from engine.envs.emulators.nes.colors import BLACK, RGB
from engine.envs.emulators.nes.cpu import run_frame
from engine.envs.emulators.nes.lanes import make_rom, run_lanes
from engine.envs.emulators.nes.layout import (
    BUTTONS,
    CANVAS_SIZE,
    DRAW_COLORS,
    DRAW_LIGHT,
    DRAW_NOTHING,
    DUE,
    FIRST_WRITE,
    HIT_POSITION,
    HIT_UNKNOWN,
    INCREMENT,
    MEMORY_BYTES,
    NAME_TABLES,
    PC,
    PICTURE,
    PICTURE_DOTS,
    POSITION,
    SCRATCH,
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
    check_words,
    draw_rows,
)
from engine.envs.emulators.nes.picture import PIXELS
from engine.envs.emulators.view import View, reduce_screen

STATE_FORMAT = 2
_HEADER = struct.Struct("<4sIII")  # magic, format, checksum of the cartridge, checksum of what follows
_MAGIC = b"NESl"


class NesBatch:
    """N lanes of one console; a lane is a game.

    lanes, threads: how many.
    ram: uint8 [lanes, 2048], live: writing to it pokes the games.
    run_frame: the console for one frame, see cpu.py, for compiled code that drives lanes itself. state, memory, rom:
    what it takes, with a row per lane in the first two; last_state and last_memory, with a row per lane, are what
    `remember` fills.
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
        self.run_frame = run_frame()
        self.state: NDArray[np.int64] = np.zeros((lanes, STATE_WORDS), np.int64)
        self.memory: NDArray[np.uint8] = np.zeros((lanes, MEMORY_BYTES), np.uint8)
        self.last_state: NDArray[np.int64] = np.zeros((lanes, STATE_WORDS), np.int64)
        self.last_memory: NDArray[np.uint8] = np.zeros((lanes, MEMORY_BYTES), np.uint8)
        self.ram: NDArray[np.uint8] = self.memory[:, :NAME_TABLES]
        self._all = np.ones(lanes, np.bool_)
        self._cartridge_sum = zlib.crc32(cartridge.tiles.tobytes(), zlib.crc32(cartridge.program.tobytes()))
        borders = np.linspace(0, lanes, min(threads, lanes) + 1).astype(int).tolist()
        self._slices = list(pairwise(borders))
        self._canvases = [np.zeros(CANVAS_SIZE, np.uint16) for _ in self._slices]
        self._pool = ThreadPoolExecutor(len(self._slices), "nes") if len(self._slices) > 1 else None
        for lane in range(lanes):
            self.power_on(lane)

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        """Run `frames` frames with `buttons` (uint8 [lanes]) held; inactive lanes stand still.

        active: bool [lanes], None for all. Buttons: right 0x80, left 0x40, down 0x20, up 0x10, start 0x08,
        select 0x04, B 0x02, A 0x01. ValueError for a wrong shape.
        """
        held = np.ascontiguousarray(buttons, np.uint8)
        if held.shape != (self.lanes,):
            raise ValueError(f"buttons must have shape ({self.lanes},), not {held.shape}")
        if frames < 1:
            raise ValueError(f"frames must be at least 1, not {frames}")
        chosen = self._chosen(active)

        def run(first: int, last: int, canvas: NDArray[np.uint16]) -> None:
            run_lanes(
                first,
                last,
                self.run_frame,
                self.state,
                self.memory,
                self.last_state,
                self.last_memory,
                canvas,
                self.rom,
                held,
                frames,
                chosen,
                DRAW_NOTHING,
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
        return RGB[self._drawn(lane, DRAW_COLORS).reshape(SCREEN_HEIGHT, SCREEN_WIDTH)]

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the active lanes' pictures as `view` has them to `out` (uint8 [lanes, height, width]).

        ValueError for a wrong shape or dtype.
        """
        if out.shape != (self.lanes, *view.shape) or out.dtype != np.uint8:
            expected = f"uint8 {(self.lanes, *view.shape)}"
            raise ValueError(f"out must be {expected}, not {out.dtype} {out.shape}")
        spans = view.spans()
        for lane in np.flatnonzero(self._chosen(active)).tolist():
            reduce_screen(self._drawn(lane, DRAW_LIGHT), *spans, out[lane].reshape(-1))

    def poke(self, lane: int, address: int, value: int) -> None:
        """Write a byte of work RAM."""
        self.ram[lane, address] = value

    def save(self, lane: int) -> bytes:
        """Everything about a lane, its picture included, for `load` into any lane with the same cartridge."""
        body = b"".join(part[lane].tobytes() for part in self._saved_parts())
        return _HEADER.pack(_MAGIC, STATE_FORMAT, self._cartridge_sum, zlib.crc32(body)) + body

    def load(self, lane: int, state: bytes) -> None:
        """Continue in `lane` where `save` was called; ValueError if the state is foreign, damaged or impossible."""
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
        rows, offset = [], _HEADER.size
        for part in parts:
            rows.append(np.frombuffer(state, part.dtype, part[lane].size, offset))
            offset += part[lane].nbytes
        words, _, last_words, _ = rows
        check_words(words.tolist())
        if words[PICTURE]:  # else there is no last frame to draw
            check_words(last_words.tolist())
        for part, row in zip(parts, rows, strict=True):
            part[lane] = row

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
        return (self.state, self.memory, self.last_state, self.last_memory)

    def _drawn(self, lane: int, draw: int) -> NDArray[np.uint16]:
        """The lane's last frame, uint16 [240 * 256], until the next drawing; before the first frame it is black."""
        canvas = self._canvases[0]
        if not self.state[lane, PICTURE]:
            canvas[:] = PIXELS[draw, BLACK]
            return canvas[:SCRATCH]
        lanes = slice(lane, lane + 1)
        state, memory = self.last_state[lanes].copy(), self.last_memory[lanes].copy()
        aside = (state.copy(), memory.copy())
        buttons = self.state[lanes, BUTTONS].astype(np.uint8)
        rows = draw_rows(draw, 0, SCREEN_HEIGHT)
        run_lanes(0, 1, self.run_frame, state, memory, *aside, canvas, self.rom, buttons, 1, self._all[:1], rows)
        return canvas[:SCRATCH]

    def _chosen(self, active: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if active is None:
            return self._all
        if active.shape != (self.lanes,) or active.dtype != np.bool_:
            raise ValueError(f"active must be bool ({self.lanes},), not {active.dtype} {active.shape}")
        return np.ascontiguousarray(active)
