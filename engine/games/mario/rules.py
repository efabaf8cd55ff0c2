"""The rules of the game for one lane, computed from its work RAM.

A lane's `book`, int64 [BOOK_WORDS], holds the counters of its current step and episode. The functions are compiled and
the same for every console. Rewards, ends of episodes, info and skipped scenes follow gym-super-mario-bros 7.4 frame by
frame, except for what docs/games.md names. RAM addresses: https://datacrystal.tcrf.net/wiki/Super_Mario_Bros./RAM_map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.capabilities import A
from engine.console.compiler.kernels import helper, kernel

WORLD, STAGE, AREA, HALFWAY_PAGE = 0x075F, 0x075C, 0x0760, 0x075B
PLAYER_STATE, AREA_TIMER, PRELEVEL_TIMER, CLOCK = 0x000E, 0x06DE, 0x07A0, 0x07F8
_VIEWPORT_Y, _SWIMS, _FLOAT_STATE, _X_PAGE, _X_PIXEL, _Y_PIXEL = 0x00B5, 0x0704, 0x001D, 0x006D, 0x0086, 0x03B8
_GAME_MODE, LIVES, _SIZE, _ENEMY_TYPES, _SCORE, _COINS = 0x0770, 0x075A, 0x0756, 0x0016, 0x07DE, 0x07ED
_PLAYER_Y, _RIGHT_TURNS, _TURNS = 0x00CE, 0x06D9, 0x06DA
_AREA_DATA = 0x00E7  # two bytes: where in the cartridge the layout of the current area begins
_FRAME_COUNTER, _INTERVAL, _RANDOM = 0x0009, 0x077F, 0x07A7
_SCREEN_PAGE, _SCREEN_PIXEL = 0x071A, 0x071C  # x of the screen's left edge
_WARP_ZONE = 0x06D6  # 0 until Mario can go past the last pipe; from _PIPES_SHOWN on, the pipes of the zone are in view
_PIPES_SHOWN = 4
_BOWSER, _FLAGPOLE = 0x2D, 0x31
_SLIDES, _DEAD, _PLAYS, _DYING = 0x04, 0x06, 0x08, 0x0B
FASTEST = 5
"""Mario moves by at most so many pixels in a frame; more is a change of place."""
PHASE_WORDS = 9
_INTERVAL_FRAMES = 18
_PER_STAGE, _EARLIEST, _LATEST = 968, -600, 3900
"""CPU cycles by which the end of a frame moves down the picture from one stage of the whole game to the next, on
average; and how far from there it may be, in fast and slow games and after some deaths."""
_LOOP = 1024
"""Pixels by which the mazes of 4-4, 7-4 and 8-4 move Mario back if he took the wrong way."""
_HANGS_FROM, _HANGS_TO = 219, 238
"""A Mario who slides down a flag's pole so many pixels right of the screen's left edge stays on its base for ever: the
right edge stops him before he steps down. From further right he comes through."""
_WRAPPED = 0x8000
"""From here on, x is less than 0: Mario walked left past the start, which he can after a maze has moved him."""

# Columns of a lane's `book`, int64
LAST_X, LAST_CLOCK, BEST_X, FURTHEST, STALLED = range(5)  # FURTHEST: in this stage; BEST_X: in this area
STEP_CLASSIC, STEP_PROGRESS, DONE, CLEARED = range(5, 9)  # of this step
RETURN, LENGTH = 9, 10  # of this episode: sum of classic rewards, environment steps
PHASE, SCENE_CLOCK = 11, 12  # of the scene that is being skipped
DRAWS, STREAM = 13, 14  # number of random numbers drawn so far, and their stream
BUTTONS, FRAMES, START = 15, 16, 17  # last buttons; frames run in this step; start state of this episode
_ATTEMPT, _AREA, _AREAS_LEFT = 18, 19, 20  # stage and lives; current area; number of times that an area was left
_AREAS, _BESTS, _REMEMBERED = 21, 25, 4  # the areas that were left last in this attempt, and BEST_X in each
BOOK_WORDS = 29

# Columns of a lane's info, int64, read after the last frame of a step that the player controlled
COINS, FLAG_GET, LIFE, SCORE, INFO_STAGE, STATUS, TIME, INFO_WORLD, X_POS, Y_POS = range(10)
INFO_NAMES = ("coins", "flag_get", "life", "score", "stage", "status", "time", "world", "x_pos", "y_pos")
STATUS_NAMES = ("small", "tall", "fireball")

# Results of `next_scene`, as bits
RUN_FRAME, POKE_AREA_TIMER, POKE_PRELEVEL_TIMER, POKE_DEAD = 1, 2, 4, 8


@helper
def _number(memory: Any, address: Any, digits: Any) -> Any:
    """A decimal number of the status bar, with one digit per byte."""
    value = 0
    for i in range(digits):
        value = 10 * value + memory[address + i]
    return value


@helper
def _clock(memory: Any) -> Any:
    return _number(memory, CLOCK, 3)


@helper
def _x(memory: Any) -> Any:
    return memory[_X_PAGE] * 256 + memory[_X_PIXEL]


@helper
def _area(memory: Any) -> Any:
    return memory[_AREA_DATA] + 256 * memory[_AREA_DATA + 1]


@helper
def _attempt(memory: Any) -> Any:
    return (memory[WORLD] * 256 + memory[STAGE]) * 256 + memory[LIVES]


@helper
def _is_dying(memory: Any) -> Any:
    return memory[PLAYER_STATE] == _DYING or memory[_VIEWPORT_Y] > 1


@helper
def _flag_reached(memory: Any) -> Any:
    if memory[_GAME_MODE] == 2:
        return True
    for slot in range(5):
        enemy = memory[_ENEMY_TYPES + slot]
        if enemy in (_BOWSER, _FLAGPOLE):
            # 3: Mario slides down the pole. Climbing a vine also sets 3, but without one of these enemies. If frames
            # end within the game's check of what Mario touches, the float state is 2 during the whole slide.
            return memory[_FLOAT_STATE] == 3 or memory[PLAYER_STATE] == _SLIDES
    return False


def where(memories: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Stage (4 * world + stage), area and x of lanes, int64 [lanes] each, from work RAM [lanes, 2048]."""
    memory = memories.T.astype(np.int64)  # a row for each address
    area = memory[_AREA_DATA] + 256 * memory[_AREA_DATA + 1]
    return 4 * memory[WORLD] + memory[STAGE], area, 256 * memory[_X_PAGE] + memory[_X_PIXEL]


def route(memories: NDArray[np.uint8]) -> NDArray[np.int64]:
    """int64 [lanes, 3], from work RAM [lanes, 2048]: 40 pixels of y, and how many of the right turns of a maze were
    passed and taken."""
    return np.stack((memories[:, _PLAYER_Y] // 40, memories[:, _TURNS], memories[:, _RIGHT_TURNS]), 1).astype(np.int64)


def stands(memories: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """bool [lanes]: whether the player has control of a Mario who stands or swims, from work RAM [lanes, 2048]."""
    floats = (memories[:, _FLOAT_STATE] != 0) & (memories[:, _SWIMS] == 0)
    safe: NDArray[np.bool_] = (memories[:, PLAYER_STATE] == _PLAYS) & (memories[:, _VIEWPORT_Y] == 1) & ~floats
    return safe


@kernel("uint8[1], int64, int64")
def first_buttons(memory: Any, held: Any, swim_strokes: bool) -> Any:
    """The buttons in the first frame of a step that holds `held` in the others; see `MarioTask.swim_strokes`."""
    return held & ~np.int64(A) if swim_strokes and memory[_SWIMS] != 0 else held


@kernel("uint8[1]")
def clock(memory: Any) -> int:
    """The time left on the game's clock, from a lane's RAM, uint8 [2048]."""
    return int(_clock(memory))


@helper
def _mixed(value: Any, word: Any) -> Any:
    """A 32-bit hash of both: lowbias32 (https://nullprogram.com/blog/2018/07/31/)."""
    mask = 0xFFFFFFFF
    value = (value ^ word) & mask
    value ^= value >> 16
    value = (value * 0x7FEB352D) & mask
    value ^= value >> 15
    value = (value * 0x846CA68B) & mask
    value ^= value >> 16
    return value


@kernel("int64, int64")
def stream(seed: int, lane: int) -> int:
    """The stream of random numbers of a lane for a seed. Only the low 32 bits of both count."""
    return int(_mixed(_mixed(0x9E3779B9, seed), lane))


@kernel("int64, int64")
def draw(stream: int, count: int) -> int:
    """The `count`-th 32-bit random number of a stream. Counter-based: the counter is the only state."""
    return int(_mixed(stream, count))


@kernel("int64")
def phase_address(word: int) -> int:
    """The address of one of the PHASE_WORDS bytes that tell in which phase the game is: the counter of its frames, that
    of the 18 frames (in other regions 21) between ticks of slow timers, and the seven bytes of its random numbers."""
    return _FRAME_COUNTER if word == 0 else _INTERVAL if word == 1 else _RANDOM + word - 2


@kernel("int64, int64")
def phase_value(word: int, drawn: int) -> int:
    """A value for `phase_address(word)`, from a 32-bit random number. One random bit is set: all 0 would stay so."""
    return drawn % _INTERVAL_FRAMES if word == 1 else (drawn & 0xFF) | 2 * (word == 2)


@kernel("uint8[1], int64, int64, int64")
def phase_end(memory: Any, usual: int, usual_ends: int, drawn: int) -> int:
    """Where in the picture a frame may end at this stage of a whole game, in CPU cycles from the picture's beginning,
    from a 32-bit random number; may be less than 0 or more than a picture has. In `usual_ends` of 256 cases `usual`."""
    if drawn >> 24 < usual_ends:
        return usual
    stage = memory[WORLD] * 4 + memory[STAGE]
    return int(stage * _PER_STAGE + _EARLIEST + drawn % (_LATEST - _EARLIEST + 1))


@kernel("uint8[1], int64[1]")
def begin_episode(memory: Any, book: Any) -> None:
    """Initialise `book` for a new episode, from the RAM at its first frame."""
    book[BEST_X] = book[FURTHEST] = book[LAST_X] = _x(memory)
    book[LAST_CLOCK] = _clock(memory)
    book[RETURN] = book[LENGTH] = book[STALLED] = book[BUTTONS] = book[_AREAS_LEFT] = 0
    book[_ATTEMPT], book[_AREA] = _attempt(memory), _area(memory)


@kernel("int64[1]")
def begin_step(book: Any) -> None:
    """Reset the counters of `book` that count within a step."""
    book[STEP_CLASSIC] = book[STEP_PROGRESS] = book[DONE] = book[CLEARED] = book[PHASE] = book[FRAMES] = 0
    book[STALLED] += 1


@helper
def _change_place(memory: Any, book: Any, x: Any) -> None:
    """Mario is somewhere else: through a pipe, or after a death. Where he has been before in this attempt, only what
    lies beyond the furthest x there is progress."""
    slot = book[_AREAS_LEFT] % _REMEMBERED
    book[_AREAS + slot], book[_BESTS + slot] = book[_AREA], book[BEST_X]
    book[_AREAS_LEFT] += 1
    attempt = _attempt(memory)
    if book[_ATTEMPT] != attempt:
        if book[_ATTEMPT] // 256 != attempt // 256:
            book[FURTHEST] = x
        book[_ATTEMPT], book[_AREAS_LEFT] = attempt, 0
    book[_AREA], book[BEST_X] = _area(memory), x
    for slot in range(min(book[_AREAS_LEFT], _REMEMBERED)):
        if book[_AREAS + slot] == book[_AREA]:
            book[BEST_X] = max(book[BEST_X], book[_BESTS + slot])


@kernel("uint8[1], int64[1], int64, int64")
def observe(memory: Any, book: Any, whole_game: bool, ends_at_loops: bool) -> None:
    """Add one frame to `book`: reward, progress, end of the episode. `ends_at_loops`: a maze that moves Mario back ends
    it like death, as do the pipes of a warp zone, and the way to these is not paid."""
    x, time = _x(memory), _clock(memory)
    moved = x - book[LAST_X]
    looped = ((moved + _LOOP + FASTEST) & 0xFFFF) <= 2 * FASTEST  # x may be less than 0 after it
    if moved < -FASTEST or moved > FASTEST:
        moved = 0
        if not looped and x < _WRAPPED and book[LAST_X] < _WRAPPED:
            _change_place(memory, book, x)
    progress = max(x - book[BEST_X], 0) if x < _WRAPPED else 0
    book[BEST_X] += progress
    if progress > 0:
        book[STALLED] = 0
    if moved != 0 and book[FURTHEST] < x < _WRAPPED:
        book[FURTHEST] = x
    ticked = min(time - book[LAST_CLOCK], 0)
    book[LAST_X], book[LAST_CLOCK] = x, time
    died = _is_dying(memory) or memory[PLAYER_STATE] == _DEAD
    zone = memory[_WARP_ZONE] if ends_at_loops else 0
    lost = died or (looped and ends_at_loops) or zone >= _PIPES_SHOWN
    book[STEP_CLASSIC] += min(max(moved + ticked - 25 * died, -15), 15)
    book[STEP_PROGRESS] += (0 if zone else progress) + ticked - 25 * lost
    over = _flag_reached(memory)
    at_pole = (x - 1) // 16 * 16 + 9  # where the pole puts him, if that has not happened yet
    ahead = (at_pole - memory[_SCREEN_PAGE] * 256 - memory[_SCREEN_PIXEL]) & 0xFFFF
    if over and (memory[_GAME_MODE] == 2 or not _HANGS_FROM <= ahead <= _HANGS_TO):
        book[CLEARED] = 1
    if whole_game:
        # After the last world the game waits for a button, and its clock never moves again.
        book[DONE] = memory[LIVES] == 0xFF or (memory[_GAME_MODE] == 2 and memory[WORLD] == 7)
    else:
        book[DONE] = lost or over


@kernel("int64[1]")
def finish_step(book: Any) -> None:
    """Add the finished step to the counters of the episode."""
    book[RETURN] += book[STEP_CLASSIC]
    book[LENGTH] += 1


@kernel("uint8[1], int64[1]")
def read_info(memory: Any, info: Any) -> None:
    """Write the info of gym-super-mario-bros as numbers to `info`, int64 [10]; see INFO_NAMES."""
    info[COINS] = _number(memory, _COINS, 2)
    info[FLAG_GET] = _flag_reached(memory)
    info[LIFE] = memory[LIVES]
    info[SCORE] = _number(memory, _SCORE, 6)
    info[INFO_STAGE] = memory[STAGE] + 1
    info[STATUS] = min(memory[_SIZE], 2)
    info[TIME] = _clock(memory)
    info[INFO_WORLD] = memory[WORLD] + 1
    info[X_POS] = _x(memory)
    height = 255 - memory[_Y_PIXEL]
    info[Y_POS] = 255 + height if memory[_VIEWPORT_Y] < 1 else height


MAX_SCENE_FRAMES = 5000
"""Maximum number of frames for which a scene without control is skipped. In Super Mario Bros the cut-scene after a
world takes about 1,000; but a Mario who hangs at a flag never gets it back, nor may he with another cartridge."""
STUCK = 1 << 40
"""Steps without progress that a lane is given when a scene never ends: its episode is truncated, and if it is stepped
further, no scene is skipped."""


@kernel("uint8[1], int64[1], int64")
def next_scene(memory: Any, book: Any, whole_game: bool) -> int:
    """Return what to do next until the player has control again: a sum of RUN_FRAME and POKE_... bits; 0 when done.

    Call it repeatedly until it returns 0. Apply the pokes before the frame, which is run without buttons. Death
    animations are cut short, changes of area and black screens are accelerated, and the cut-scene after a world is run
    in full.
    """
    if book[PHASE] == 0:
        book[PHASE] = 1
        if _is_dying(memory):  # only where a death does not end the episode
            return POKE_DEAD | RUN_FRAME
    if book[PHASE] == 1:
        book[PHASE] = 3
        if whole_game and memory[_GAME_MODE] == 2:
            book[PHASE], book[SCENE_CLOCK] = 2, _clock(memory)
    if book[PHASE] == 2:
        if _clock(memory) == book[SCENE_CLOCK]:
            return RUN_FRAME
        book[PHASE] = 3
    poke = 0
    if book[PHASE] == 3:
        book[PHASE] = 4
        if 1 < memory[AREA_TIMER] < 255:
            poke = POKE_AREA_TIMER
    state = memory[PLAYER_STATE]
    if state <= 5 or state == 7 or memory[_GAME_MODE] == 2:
        return poke | POKE_PRELEVEL_TIMER | RUN_FRAME
    return poke
