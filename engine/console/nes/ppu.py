"""The PPU (picture processor): timing, scrolling, sprite 0, and the registers visible to the CPU.

It is advanced only on demand, to the dot that the CPU has reached: at a register access, at the vertical blank and at
the end of a frame. Its registers can't change in between, so whole lines are advanced arithmetically, and the dot of
the sprite-0 hit is predicted. Drawing (picture.py) is optional and does not affect the state.

It follows nes-py dot for dot, including its differences from the real console: the sprites of a line are chosen at the
end of the previous line (those of line 0 at the end of line 239 of the previous picture), and lines have no dot 0.

The other devices on the CPU's bus follow: sprite DMA and controllers. An access to any of them takes effect in the
first cycle of its instruction (nes-py's rule); the PPU is advanced to that cycle first.
"""

import numpy as np

from engine.console.compiler.kernels import helper
from engine.console.nes.layout import (
    ADDRESS,
    BACKGROUND_TABLE,
    BUTTON_BITS,
    BUTTONS,
    CYCLE_PARITY,
    DOTS_DONE,
    EVEN,
    FINE_X,
    FIRST_WRITE,
    HIT_NEVER,
    HIT_POSITION,
    HIT_UNKNOWN,
    HORIZONTAL_BITS,
    INCREMENT,
    LINE_DOTS,
    NEXT_ADDRESS,
    NMI_ENABLED,
    NMI_PENDING,
    NMI_POSITION,
    PICTURE_DOTS,
    POSITION,
    RAM,
    READ_BUFFER,
    SHOW_BACKGROUND,
    SHOW_BACKGROUND_EDGE,
    SHOW_SPRITES,
    SHOW_SPRITES_EDGE,
    SPRITE_ADDRESS,
    SPRITE_COUNT,
    SPRITE_LIST,
    SPRITE_TABLE,
    SPRITE_ZERO_HIT,
    SPRITES,
    STROBE,
    TALL_SPRITES,
    VBLANK,
    VERTICAL_BITS,
    VISIBLE_END,
    choose_sprites,
    next_row,
    read_video,
    skip_columns,
    sprite_row,
    sprite_row_address,
    write_video,
)
from engine.console.nes.picture import draw_lines, lines_together


@helper
def hit_on_line(state, memory, tiles, line, first_x, address):
    """First x >= first_x on `line` where opaque pixels of sprite 0 and background meet, or -1.

    `address` is the video address at pixel first_x.
    """
    sprite_x = np.int64(memory[SPRITES + 3])
    attributes = np.int64(memory[SPRITES + 2])
    row = sprite_row(state, line, np.int64(memory[SPRITES]))
    source = sprite_row_address(state, np.int64(memory[SPRITES + 1]), attributes, row)
    opaque = read_video(state, memory, tiles, source) | read_video(state, memory, tiles, (source + 8) & 0xFFFF)
    start = max(first_x, sprite_x)
    if not (state[SHOW_SPRITES_EDGE] and state[SHOW_BACKGROUND_EDGE]):
        start = max(start, 8)
    fine_x = state[FINE_X]
    for x in range(start, min(sprite_x + 8, 256)):
        shift = x - sprite_x
        if not attributes & 0x40:
            shift ^= 7
        if not (opaque >> shift) & 1:
            continue
        here = skip_columns(address, ((fine_x + x) >> 3) - ((fine_x + first_x) >> 3))
        tile = read_video(state, memory, tiles, 0x2000 | (here & 0x0FFF))
        source = tile * 16 + ((here >> 12) & 7) | state[BACKGROUND_TABLE]
        bit = 7 ^ ((fine_x + x) & 7)
        if ((np.int64(tiles[source]) | np.int64(tiles[source + 8])) >> bit) & 1:
            return x
    return -1


@helper
def predict_hit(state, memory, tiles):
    """Set HIT_POSITION to where sprite 0 will hit in this picture if no register is written before."""
    state[HIT_POSITION] = HIT_NEVER
    position = state[POSITION]
    if not (state[SHOW_BACKGROUND] and state[SHOW_SPRITES]) or position >= VISIBLE_END:
        return
    address = state[ADDRESS]
    line = position // LINE_DOTS - 1
    dot = position % LINE_DOTS
    if line >= 0:
        # the rest of the line that is being drawn
        if dot < 256 and state[SPRITE_COUNT] > 0 and state[SPRITE_LIST] == 0:
            x = hit_on_line(state, memory, tiles, line, dot, address)
            if x >= 0:
                state[HIT_POSITION] = (line + 1) * LINE_DOTS + x
                return
        if dot <= 256:
            address = next_row(address)
        if dot <= 257:
            address = (address & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
    else:
        if dot <= 257:
            address = (address & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
        if dot <= 303:
            address = (address & ~VERTICAL_BITS) | (state[NEXT_ADDRESS] & VERTICAL_BITS)
        if state[SPRITE_COUNT] > 0 and state[SPRITE_LIST] == 0:
            x = hit_on_line(state, memory, tiles, np.int64(0), np.int64(0), address)
            if x >= 0:
                state[HIT_POSITION] = LINE_DOTS + x
                return
        line = 0
        address = next_row(address)
        address = (address & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
    if state[SPRITE_ADDRESS] >= 4:
        return
    sprite_y = np.int64(memory[SPRITES])
    last = sprite_y + (16 if state[TALL_SPRITES] else 8)
    for later in range(line + 1, min(last, 239) + 1):
        if later > sprite_y:
            x = hit_on_line(state, memory, tiles, later, np.int64(0), address)
            if x >= 0:
                state[HIT_POSITION] = (later + 1) * LINE_DOTS + x
                return
        address = next_row(address)
        address = (address & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)


@helper
def advance_pre_render(state, stop):
    """Process the dots POSITION..stop-1 of the pre-render line; returns whether an odd picture loses its last dot."""
    position = state[POSITION]
    showing = state[SHOW_BACKGROUND] and state[SHOW_SPRITES]
    if position == 0 and stop > 0:
        state[VBLANK] = 0
        state[SPRITE_ZERO_HIT] = 0
        state[HIT_POSITION] = HIT_UNKNOWN
    if showing:
        if position <= 257 < stop:
            state[ADDRESS] = (state[ADDRESS] & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
        if position <= 303 and stop > 280:
            state[ADDRESS] = (state[ADDRESS] & ~VERTICAL_BITS) | (state[NEXT_ADDRESS] & VERTICAL_BITS)
    return showing and not state[EVEN] and position <= 339 < stop


@helper
def advance_line(state, memory, line, start, stop):
    """Process the dots start..stop-1 (0..340) of a visible line; dots 0..255 are its pixels."""
    if state[SHOW_BACKGROUND]:
        if start < 256:
            fine_x = state[FINE_X]
            columns = ((fine_x + min(stop, 256)) >> 3) - ((fine_x + start) >> 3)
            state[ADDRESS] = skip_columns(state[ADDRESS], columns)
        if start <= 256 < stop:
            state[ADDRESS] = next_row(state[ADDRESS])
        if state[SHOW_SPRITES] and start <= 257 < stop:
            state[ADDRESS] = (state[ADDRESS] & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
    if stop == LINE_DOTS:
        choose_sprites(state, memory, line)


@helper
def skip_lines(state, memory, first, count):
    """Process `count` whole visible lines, starting with `first`."""
    if state[SHOW_BACKGROUND]:
        address = state[ADDRESS]
        for _ in range(count):
            address = next_row(address)
        if state[SHOW_SPRITES]:
            address = (address & ~HORIZONTAL_BITS) | (state[NEXT_ADDRESS] & HORIZONTAL_BITS)
        elif count & 1:
            address ^= 0x0400
        state[ADDRESS] = address
    choose_sprites(state, memory, first + count - 1)


@helper
def advance(state, memory, canvas, tiles, masks, until, draw):
    """Process dots until `until` dots of this frame are done; sets NMI_PENDING if an interrupt is due."""
    position = state[POSITION]
    end = position + until - state[DOTS_DONE]
    state[DOTS_DONE] = until
    top, bottom = (draw >> 8) & 0xFF, draw >> 16
    while position < end:
        if position >= VISIBLE_END:
            # below the picture, the only event is the start of the vertical blank
            if position <= NMI_POSITION < end:
                state[VBLANK] = 1
                if state[NMI_ENABLED]:
                    state[NMI_PENDING] = 1
            position = end
            if end >= PICTURE_DOTS:
                position = 0
                end -= PICTURE_DOTS
                state[EVEN] ^= 1
            state[POSITION] = position
            continue
        if position < LINE_DOTS:
            stop = min(end, LINE_DOTS)
            if advance_pre_render(state, stop):
                end += 1
                stop = min(end, LINE_DOTS)
        else:
            stop = end
        if not state[SPRITE_ZERO_HIT] and state[HIT_POSITION] == HIT_UNKNOWN:
            predict_hit(state, memory, tiles)
        if position >= LINE_DOTS:
            line = position // LINE_DOTS - 1
            start = position - (line + 1) * LINE_DOTS
            whole = min((end - position) // LINE_DOTS, 240 - line) if start == 0 else 0
            if line < top:
                whole = min(whole, top - line)
            elif line < bottom and start < 256:
                whole = min(whole, lines_together(state))
                until = 256 if whole > 0 else min(end - position + start, 256)
                draw_lines(state, memory, canvas, tiles, masks, line, max(whole, 1), start, until, draw & 0xFF)
            if whole > 0:
                stop = position + whole * LINE_DOTS
                skip_lines(state, memory, line, whole)
            else:
                stop = min(end, (line + 2) * LINE_DOTS)
                advance_line(state, memory, line, start, stop - position + start)
        if state[HIT_POSITION] < stop and state[HIT_POSITION] >= 0:
            state[SPRITE_ZERO_HIT] = 1
        position = stop
        state[POSITION] = position


@helper
def cycle_of_dot(state, dots):
    """The CPU cycle of this frame before which the PPU processes the dot that is `dots` ahead."""
    return (state[DOTS_DONE] + dots) // 3 + 1


@helper
def next_nmi_cycle(state):
    """The earliest CPU cycle of this frame at which the vertical blank can begin; it may be one cycle later."""
    position = state[POSITION]
    dots = NMI_POSITION - position
    odd = not state[EVEN]
    if dots < 0:
        dots += PICTURE_DOTS
        odd = not odd
        position = 0
    if odd and position <= 339:
        dots -= 1
    return cycle_of_dot(state, dots)


@helper
def hit_stable_until(state):
    """The CPU cycle of this frame before which the sprite-0 flag can't change unless a register is written."""
    position = state[POSITION]
    if position == 0:
        return 0  # the next dot clears the flag
    if not state[SPRITE_ZERO_HIT]:
        if state[HIT_POSITION] == HIT_UNKNOWN and position < VISIBLE_END:
            return 0
        if 0 <= state[HIT_POSITION] < HIT_NEVER:
            # one dot early, because an odd picture may lose a dot before
            return cycle_of_dot(state, state[HIT_POSITION] - position - 1)
    return cycle_of_dot(state, PICTURE_DOTS - position - 1)


@helper
def read_register(state, memory, tiles, register):
    """The byte that the CPU reads from $2000 + register; the PPU must have been advanced to that cycle."""
    if register == 2:
        status = state[SPRITE_ZERO_HIT] << 6 | state[VBLANK] << 7
        state[VBLANK] = 0
        state[FIRST_WRITE] = 1
        return status
    if register == 4:
        return np.int64(memory[SPRITES + state[SPRITE_ADDRESS]])
    if register == 7:
        value = read_video(state, memory, tiles, state[ADDRESS])
        state[ADDRESS] = (state[ADDRESS] + state[INCREMENT]) & 0xFFFF
        state[HIT_POSITION] = HIT_UNKNOWN
        if state[ADDRESS] < 0x3F00:
            late = state[READ_BUFFER]
            state[READ_BUFFER] = value
            return late
        return value
    return 0


@helper
def write_register(state, memory, register, value):
    """A write of the CPU to $2000 + register; the PPU must have been advanced to that cycle."""
    state[HIT_POSITION] = HIT_UNKNOWN
    if register == 0:
        state[NMI_ENABLED] = value >> 7
        state[TALL_SPRITES] = value >> 5 & 1
        state[BACKGROUND_TABLE] = (value & 0x10) << 8
        state[SPRITE_TABLE] = (value & 0x08) << 9
        state[INCREMENT] = 32 if value & 0x04 else 1
        state[NEXT_ADDRESS] = (state[NEXT_ADDRESS] & ~0x0C00) | (value & 3) << 10
    elif register == 1:
        state[SHOW_BACKGROUND_EDGE] = value >> 1 & 1
        state[SHOW_SPRITES_EDGE] = value >> 2 & 1
        state[SHOW_BACKGROUND] = value >> 3 & 1
        state[SHOW_SPRITES] = value >> 4 & 1
    elif register == 3:
        state[SPRITE_ADDRESS] = value
    elif register == 4:
        memory[SPRITES + state[SPRITE_ADDRESS]] = value
        state[SPRITE_ADDRESS] = (state[SPRITE_ADDRESS] + 1) & 0xFF
    elif register == 5:
        if state[FIRST_WRITE]:
            state[NEXT_ADDRESS] = (state[NEXT_ADDRESS] & ~0x001F) | value >> 3
            state[FINE_X] = value & 7
        else:
            state[NEXT_ADDRESS] = (state[NEXT_ADDRESS] & ~0x73E0) | (value & 7) << 12 | (value & 0xF8) << 2
        state[FIRST_WRITE] ^= 1
    elif register == 6:
        if state[FIRST_WRITE]:
            state[NEXT_ADDRESS] = (state[NEXT_ADDRESS] & 0x00FF) | (value & 0x3F) << 8
        else:
            state[NEXT_ADDRESS] = (state[NEXT_ADDRESS] & ~0x00FF) | value
            state[ADDRESS] = state[NEXT_ADDRESS]
        state[FIRST_WRITE] ^= 1
    elif register == 7:
        write_video(state, memory, state[ADDRESS], value)
        state[ADDRESS] = (state[ADDRESS] + state[INCREMENT]) & 0xFFFF


@helper
def copy_sprites(state, memory, program, source):
    """Copy the 256 bytes at `source` to the sprites, starting at SPRITE_ADDRESS; registers are skipped."""
    state[HIT_POSITION] = HIT_UNKNOWN
    for i in range(256):
        address = source + i
        if address < 0x2000:
            value = memory[RAM + (address & 0x7FF)]
        elif address >= 0x8000:
            value = program[address & 0x7FFF]
        else:
            continue
        memory[SPRITES + ((state[SPRITE_ADDRESS] + i) & 0xFF)] = value


@helper
def access_io(state, memory, canvas, program, tiles, masks, address, write, value, cycle, draw):
    """An access of the CPU to `address` 0x2000..0x7FFF. Unconnected addresses read as 0.

    Returns the byte read; for a `write` of `value`, the number of cycles for which the CPU is halted. Reading and
    writing share a function because LLVM may copy `advance` into every caller.
    """
    if address < 0x4000 or (address == 0x4014 and write):
        advance(state, memory, canvas, tiles, masks, 3 * cycle, draw)
    if not write:
        if address < 0x4000:
            return read_register(state, memory, tiles, address & 7)
        if address == 0x4016:
            return read_controller(state)
        # no buttons on the second controller
        return np.int64(0x40 if address == 0x4017 else 0)
    if address < 0x4000:
        write_register(state, memory, address & 7, value)
    elif address == 0x4014:
        copy_sprites(state, memory, program, value << 8)
        return 513 + ((cycle + state[CYCLE_PARITY]) & 1)
    elif address == 0x4016:
        state[STROBE] = value & 1
        if not value & 1:
            state[BUTTON_BITS] = state[BUTTONS]
    return np.int64(0)


@helper
def read_controller(state):
    """Read the next button of the first controller, starting with A, in bit 0."""
    if state[STROBE]:
        return 0x40 | (state[BUTTONS] & 1)
    bit = state[BUTTON_BITS] & 1
    state[BUTTON_BITS] >>= 1
    return 0x40 | bit
