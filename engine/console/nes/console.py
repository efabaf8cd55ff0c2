"""`NesBatch`: N consoles with the same cartridge, stepped together.

A step is one call of compiled code per thread for a slice of lanes. It draws nothing: each lane keeps its state before
the last frame, and `screen` and `picture` run that frame again. A task that needs a picture in every step draws it
during the frame, with its own kernel.

As in nes-py, a frame ends after 29,781 CPU cycles, which is not exactly one picture: the border moves down the picture
by 1.5 dots per frame, and the lines above it already belong to the next picture.

The kernel of a task (which reads RAM after every frame) is written like `run_lanes`: it takes the address of
`run_frame` as an argument. It calls `remember` before the last frame of a step and runs that frame with drawing; then
the picture is on the canvas.
"""

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.console.cartridge import Cartridge
from engine.console.compiler.kernels import helper, kernel
from engine.console.nes.cpu import frame_function, run_frame
from engine.console.nes.decode import MACHINE_CODE, decode_program, opcode_words
from engine.console.nes.layout import (
    BUTTONS,
    CANVAS_SIZE,
    CYCLE_PARITY,
    DOTS_DONE,
    DRAW,
    DRAW_COLORS,
    DRAW_NOTHING,
    DUE,
    FIRST_WRITE,
    FRAME_CYCLES,
    HIT_POSITION,
    HIT_UNKNOWN,
    INCREMENT,
    MEMORY_BYTES,
    NAME_TABLES,
    PC,
    PICTURE,
    PICTURE_DOTS,
    POSITION,
    ROM,
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
from engine.console.nes.machine_code import machine_code_of
from engine.console.nes.picture import BLACK, PIXELS, RGB, tile_masks
from engine.console.protocol import with_states
from engine.console.view import View, reduce_screen

Words: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Rom: TypeAlias = tuple[Bytes, NDArray[np.int32], NDArray[np.int32], Bytes, Words, int]


def make_rom(cartridge: Cartridge) -> Rom:
    """The data of a cartridge for kernels. It is always an argument, so that the cache on disk never contains a game.

    program uint8 [32768], decoded int32 [65536], opcode words int32 [256], tiles uint8 [8192], masks int64 [4096, 4],
    address of the machine code, in the order in which `run_frame` unpacks them.
    """
    program, tiles = cartridge.program.copy(), cartridge.tiles.copy()  # the arrays of the cartridge are read-only
    decoded = decode_program(program)
    machine_code = machine_code_of(program)
    decoded[machine_code.blocks] |= MACHINE_CODE
    return program, decoded, opcode_words(), tiles, tile_masks(tiles), machine_code.address


@helper
def remember(state, memory, last_state, last_memory):
    """Save the state of a lane before a frame, so that the frame can be drawn later."""
    for i in range(STATE_WORDS):
        last_state[i] = state[i]
    last_state[PICTURE] = 0  # so that lanes do not differ by what was drawn before
    for i in range(MEMORY_BYTES):
        last_memory[i] = memory[i]


@kernel(
    f"int64, int64, int64, int64[2], uint8[2], int64[2], uint8[2], uint16[1], {ROM}, uint8[1], int64, bool[1], int64"
)
def run_lanes(
    first: int,
    last: int,
    frame_address: int,
    state: Words,
    memory: Bytes,
    last_state: Words,
    last_memory: Bytes,
    canvas: NDArray[np.uint16],
    rom: Rom,
    buttons: Bytes,
    frames: int,
    active: NDArray[np.bool_],
    draw: int,
) -> None:
    """Run `frames` frames in the active lanes of first..last-1; `draw` is what to draw in the last one.

    Arrays have a row for each lane, except for the canvas, which all lanes use one after the other.
    """
    run_frame = frame_function(frame_address)
    for lane in range(first, last):
        if not active[lane]:
            continue
        held = np.int64(buttons[lane])
        for frame in range(frames):
            kind = DRAW_NOTHING
            if frame == frames - 1:
                remember(state[lane], memory[lane], last_state[lane], last_memory[lane])
                kind = draw
            run_frame(state[lane], memory[lane], canvas, rom, held, np.int64(kind))


@helper
def shorten_frame(state: Words, cycles: int) -> None:
    """Let the next frame of a lane take only so many CPU cycles, 0 to FRAME_CYCLES - 1, so that all later ones end so
    much later in the picture. In a long game this happens by itself: the end of a frame drifts through the whole
    picture. Only once before a frame; a state can be saved again when a whole frame has run."""
    left_out = FRAME_CYCLES - cycles
    state[DUE] += left_out
    state[DOTS_DONE] = 3 * left_out
    state[CYCLE_PARITY] ^= left_out & 1


STATE_FORMAT = 2
_HEADER = struct.Struct("<4sIII")  # magic, format, checksum of the cartridge, checksum of the body
_MAGIC = b"NESl"


class NesBatch:
    """N consoles with the same cartridge; each lane is one game.

    lanes, threads: number of lanes and of threads.
    ram: uint8 [lanes, 2048], a live view: writing to it changes the games.
    frame_address: of the compiled `run_frame` (see cpu.py), for kernels that step lanes themselves. state,
    memory, rom: its arguments; the first two have a row for each lane. last_state and last_memory, also with a row for
    each lane, are filled by `remember`.
    """

    def __init__(self, lanes: int, cartridge: Cartridge, threads: int = 1) -> None:
        """Power on `lanes` consoles, stepped by `threads` threads. Raises `ValueError` unless both are at least 1."""
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, got {lanes}")
        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        self.lanes = lanes
        self.threads = threads
        self.cartridge = cartridge
        self.rom = make_rom(cartridge)
        self.frame_address = run_frame()
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

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has arrays and threads of its own; in another process also another address of `run_frame`."""
        states = [self.save(lane) for lane in range(self.lanes)]
        return with_states, (NesBatch, (self.lanes, self.cartridge, self.threads), states)

    def step(self, buttons: NDArray[np.uint8], frames: int = 1, active: NDArray[np.bool_] | None = None) -> None:
        """Run `frames` frames in the active lanes, with `buttons` (uint8 [lanes]) held.

        active: bool [lanes], None for all. Buttons: right 0x80, left 0x40, down 0x20, up 0x10, start 0x08,
        select 0x04, B 0x02, A 0x01. Raises `ValueError` for a wrong shape.
        """
        held = np.ascontiguousarray(buttons, np.uint8)
        if held.shape != (self.lanes,):
            raise ValueError(f"buttons must have shape ({self.lanes},), got {held.shape}")
        if frames < 1:
            raise ValueError(f"frames must be at least 1, got {frames}")
        chosen = self._chosen(active)

        def run(first: int, last: int, canvas: NDArray[np.uint16]) -> None:
            run_lanes(
                first,
                last,
                self.frame_address,
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
        """The last frame in RGB, uint8 [240, 256, 3], in nes-py's colours; black before the first frame."""
        return RGB[self._drawn(lane, DRAW_COLORS).reshape(SCREEN_HEIGHT, SCREEN_WIDTH)]

    def picture(self, view: View, out: NDArray[np.uint8], active: NDArray[np.bool_] | None = None) -> None:
        """Write the last frames of the active lanes, reduced by `view`, to `out` (uint8 [lanes, height, width]).

        Raises `ValueError` for a wrong shape or dtype.
        """
        if out.shape != (self.lanes, *view.shape) or out.dtype != np.uint8:
            expected = f"uint8 {(self.lanes, *view.shape)}"
            raise ValueError(f"out must be {expected}, got {out.dtype} {out.shape}")
        spans = view.spans()
        for lane in np.flatnonzero(self._chosen(active)).tolist():
            reduce_screen(self._drawn(lane, DRAW[view.brightness]), *spans, out[lane].reshape(-1))

    def poke(self, lane: int, address: int, value: int) -> None:
        """Write a byte of work RAM."""
        self.ram[lane, address] = value

    def save(self, lane: int) -> bytes:
        """The complete state of a lane, including its picture, for `load` into any lane with the same cartridge."""
        body = b"".join(part[lane].tobytes() for part in self._saved_parts())
        return _HEADER.pack(_MAGIC, STATE_FORMAT, self._cartridge_sum, zlib.crc32(body)) + body

    def load(self, lane: int, state: bytes) -> None:
        """Load a state from `save` into `lane`. Raises `ValueError` if it is foreign, damaged or impossible."""
        for part, row in zip(self._saved_parts(), self.read(state), strict=True):
            part[lane] = row

    def read(self, state: bytes) -> list[NDArray[Any]]:
        """Return what `load` writes to a lane's rows of `state`, `memory`, `last_state` and `last_memory`."""
        parts = self._saved_parts()
        size = _HEADER.size + sum(part[0].nbytes for part in parts)
        if len(state) != size or state[:4] != _MAGIC:
            raise ValueError("not a saved state of this console")
        _, version, cartridge_sum, body_sum = _HEADER.unpack_from(state)
        if version != STATE_FORMAT:
            raise ValueError(f"the saved state has format {version}, this console reads format {STATE_FORMAT}")
        if cartridge_sum != self._cartridge_sum:
            raise ValueError("the saved state is of another cartridge")
        if body_sum != zlib.crc32(memoryview(state)[_HEADER.size :]):
            raise ValueError("the saved state is damaged (its checksum differs)")
        rows, offset = [], _HEADER.size
        for part in parts:
            rows.append(np.frombuffer(state, part.dtype, part[0].size, offset))
            offset += part[0].nbytes
        words, _, last_words, _ = rows
        check_words(words.tolist())
        if words[PICTURE]:  # otherwise there is no last frame to draw
            check_words(last_words.tolist())
        return rows

    def power_on(self, lane: int) -> None:
        """Clear the lane's state and start the program."""
        for part in self._saved_parts():
            part[lane] = 0
        state = self.state[lane]
        state[PC] = int(self.cartridge.program[0x7FFC]) | int(self.cartridge.program[0x7FFD]) << 8
        state[SP] = 0xFD
        state[STATUS] = 0x34
        state[DUE] = 1
        # nes-py starts with a dot that does nothing. The last dot of a picture also does nothing, and makes the next
        # picture even.
        state[POSITION] = PICTURE_DOTS - 1
        state[FIRST_WRITE] = 1
        state[INCREMENT] = 1
        state[STROBE] = 1
        # In nes-py rendering is on from the first dot; on the real console it is off until the program turns it on.
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
        """Draw the lane's last frame, uint16 [240 * 256], valid until the next call; black before the first frame."""
        canvas = self._canvases[0]
        if not self.state[lane, PICTURE]:
            canvas[:] = PIXELS[draw, BLACK]
            return canvas[:SCRATCH]
        lanes = slice(lane, lane + 1)
        state, memory = self.last_state[lanes].copy(), self.last_memory[lanes].copy()
        aside = (state.copy(), memory.copy())
        buttons = self.state[lanes, BUTTONS].astype(np.uint8)
        rows = draw_rows(draw, 0, SCREEN_HEIGHT)
        run_lanes(0, 1, self.frame_address, state, memory, *aside, canvas, self.rom, buttons, 1, self._all[:1], rows)
        return canvas[:SCRATCH]

    def _chosen(self, active: NDArray[np.bool_] | None) -> NDArray[np.bool_]:
        if active is None:
            return self._all
        if active.shape != (self.lanes,) or active.dtype != np.bool_:
            raise ValueError(f"active must be bool ({self.lanes},), got {active.dtype} {active.shape}")
        return np.ascontiguousarray(active)
