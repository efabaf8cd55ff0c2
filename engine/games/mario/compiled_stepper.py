"""Steps lanes on the native console: one compiled call for an environment step of many lanes, including new episodes.

Does exactly the same as `reference_stepper` does in Python. The picture is drawn during the frame that is expected to
be the last of a step; if the step ends elsewhere (death, skipped scene), its last frame is run again with drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.console.compiler.kernels import bind_last, claim, helper, kernel
from engine.console.nes import (
    CANVAS_SIZE,
    DRAW,
    DRAW_NOTHING,
    FRAME_CYCLES,
    MEMORY_BYTES,
    POSITION,
    ROM,
    STATE_WORDS,
    NesBatch,
    draw_rows,
    frame_function,
    remember,
    shorten_frame,
)
from engine.console.view import reduce_screen
from engine.games.mario import rules
from engine.games.mario.task import MarioTask, StepOutcome, all_starts, sticky_threshold
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import Crew

# Indices of the kernel's options in one int64 array
_FRAME_SKIP, _STROKES, _STALL_STEPS, _NOOP_MIN, _STARTS, _STICKY, _STICKY_FRAMES = range(7)
_WHOLE_GAME, _ENDS_AT_LOOPS, _RESTART, _DRAW, _RANDOM_PHASE, _USUAL_ENDS = range(7, 13)
_LANES_PER_THREAD = 4
"""To wake more threads takes longer than to step so few lanes: on 16 cores, 32 lanes take 0.97 ms with 8 threads and
1.82 ms with 16."""


class CompiledStepper:
    """The `Stepper` of the native console. Each of its threads takes the next lane as soon as it is ready, since some
    lanes take longer, such as those that begin an episode."""

    def __init__(
        self,
        console: NesBatch,
        task: MarioTask,
        book: NDArray[np.int64],
        starts: Sequence[bytes],
        restart: bool,
        draws: bool = True,
    ) -> None:
        self._console, self._book = console, book
        self._options = np.array(
            [
                task.frame_skip,
                task.swim_strokes,
                task.stall_steps,
                task.noop_min,
                task.starts,
                sticky_threshold(task.sticky),
                task.sticky_frames,
                task.whole_game,
                task.ends_at_loops,
                restart,
                draw_rows(DRAW[task.view.brightness], task.view.top, task.view.bottom) if draws else DRAW_NOTHING,
                task.random_phase,
                round(256 * task.usual_ends),
            ],
            np.int64,
        )
        self._spans = task.view.spans()
        self._start_states = np.empty((len(starts), STATE_WORDS), np.int64)
        self._start_memories = np.empty((len(starts), MEMORY_BYTES), np.uint8)
        for index, start in enumerate(starts):
            self.set_start(index, start)
        self.start_choices = all_starts(console.lanes, len(starts))
        self._scratch = [
            (np.zeros(CANVAS_SIZE, np.uint16), np.zeros(STATE_WORDS, np.int64), np.zeros(MEMORY_BYTES, np.uint8))
            for _ in range(max(1, min(console.threads, console.lanes // _LANES_PER_THREAD)))
        ]
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_crew", "_kernels")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called for a copy, whose kernels have to work on the arrays of the copy."""
        vars(self).update(state)
        self._open()

    def _open(self) -> None:
        """Start the threads."""
        self._crew = Crew(len(self._scratch) - 1, "lanes")
        self._bind()

    def reset(self, frames: NDArray[np.uint8], which: NDArray[np.bool_]) -> None:
        unused = np.empty((self._console.lanes, 10), np.int64)
        wanted = which.astype(np.uint8)
        self.step(wanted, StepOutcome(frames, frames, unused, wanted, unused, unused), only_begin=True)

    def set_start(self, start: int, state: bytes) -> None:
        words, memory, _, _ = self._console.read(state)
        if start == len(self._start_states):
            more = max(64, start)
            self._start_states = np.concatenate((self._start_states, np.zeros((more, STATE_WORDS), np.int64)))
            self._start_memories = np.concatenate((self._start_memories, np.zeros((more, MEMORY_BYTES), np.uint8)))
            self._bind()
        self._start_states[start], self._start_memories[start] = words, memory

    def _bind(self) -> None:
        """Fix the arguments of the kernel that stay the same from step to step, for each thread."""
        console = self._console
        self._kernels = [
            bind_last(
                play_lanes,
                console.frame_address,
                self._book,
                console.state,
                console.memory,
                console.last_state,
                console.last_memory,
                self._options,
                console.rom,
                self._start_states,
                self._start_memories,
                self._spans,
                scratch,
            )
            for scratch in self._scratch
        ]

    def step(self, buttons: NDArray[np.uint8], outcome: StepOutcome, *, only_begin: bool = False) -> None:
        lanes = self._console.lanes
        arguments = (  # kept until the end: the words are their addresses
            np.zeros(1, np.int64),
            only_begin,
            buttons,
            outcome.held,
            outcome.frames.reshape(lanes, -1),
            outcome.final_frames.reshape(lanes, -1),
            outcome.ended,
            outcome.episode,
            outcome.info,
            self.start_choices,
        )
        words = self._kernels[0].pack(*arguments)

        def play(thread: int) -> None:
            with stopwatch("emulate"):
                self._kernels[thread].run(words)

        self._crew(play)


@helper
def _next_draw(book: Any) -> Any:
    count = book[rules.DRAWS]
    book[rules.DRAWS] = count + 1
    return rules.draw(book[rules.STREAM], count)


# `machine`: what runs a frame, its canvas, and the cartridge. `game`: a lane's book, its state and memory, and those
# before its last frame.
@helper
def _run(machine: Any, game: Any, held: Any, kind: Any) -> None:
    """Run one frame; save the state before it, so that it can be run again."""
    (run_frame, canvas, rom), (book, state, memory, last_state, last_memory) = machine, game
    remember(state, memory, last_state, last_memory)
    run_frame(state, memory, canvas, rom, held, kind)
    book[rules.FRAMES] += 1


@helper
def _restart(machine: Any, game: Any, starts: Any, start_choices: Any, options: Any, spans: Any, out: Any) -> None:
    """Begin an episode: load a start state, run `noop_min` to `noop_max` no-op frames and one that draws the screen; in
    a random phase also a part of a frame first."""
    (_run_frame, canvas, _rom), (book, state, memory, _last_state, _last_memory) = machine, game
    start_states, start_memories = starts
    start = start_choices[_next_draw(book) % start_choices.shape[0]]
    frames = 1 + options[_NOOP_MIN] + _next_draw(book) % options[_STARTS]
    book[rules.START] = start
    for i in range(STATE_WORDS):
        state[i] = start_states[start, i]
    for i in range(MEMORY_BYTES):
        memory[i] = start_memories[start, i]
    if options[_RANDOM_PHASE]:
        for word in range(rules.PHASE_WORDS):
            memory[rules.phase_address(word)] = rules.phase_value(word, _next_draw(book))
        usual = start_states[0, POSITION] // 3  # that of the state itself, if an earlier episode reached it, is another
        end = rules.phase_end(memory, usual, options[_USUAL_ENDS], _next_draw(book))
        shorten_frame(state, (end - state[POSITION] // 3) % FRAME_CYCLES)
        _run(machine, game, np.int64(0), np.int64(DRAW_NOTHING))
    for frame in range(frames):
        kind = options[_DRAW] if frame == frames - 1 else np.int64(DRAW_NOTHING)
        _run(machine, game, np.int64(0), kind)
    reduce_screen(canvas, spans[0], spans[1], out)
    rules.begin_episode(memory, book)


@helper
def _skip_scenes(machine: Any, game: Any, options: Any) -> Any:
    """Run the frames in which the player has no control; returns their number, MAX_SCENE_FRAMES if it never ends."""
    book, _state, memory, _last_state, _last_memory = game
    book[rules.PHASE] = 0
    for frames in range(rules.MAX_SCENE_FRAMES):
        wanted = rules.next_scene(memory, book, options[_WHOLE_GAME] != 0)
        if wanted & rules.POKE_DEAD:
            memory[rules.PLAYER_STATE] = 6
        if wanted & rules.POKE_AREA_TIMER:
            memory[rules.AREA_TIMER] = 1
        if wanted & rules.POKE_PRELEVEL_TIMER:
            memory[rules.PRELEVEL_TIMER] = 0
        if not wanted & rules.RUN_FRAME:
            return frames
        _run(machine, game, np.int64(0), np.int64(DRAW_NOTHING))
    return rules.MAX_SCENE_FRAMES


@kernel(
    "int64[1], int64, uint8[1], uint8[1], uint8[2], uint8[2], int64[2], int64[2], int64[2], int64[2], int64, "
    f"int64[2], int64[2], uint8[2], int64[2], uint8[2], int64[1], {ROM}, int64[2], uint8[2], (int64[2], int64[2]), "
    "(uint16[1], int64[1], uint8[1])"
)
def play_lanes(
    taken: Any, only_begin: Any, buttons: Any, held_buttons: Any, frames: Any, final_frames: Any, ended: Any,
    episode: Any, infos: Any, start_choices: Any, frame_address: Any, books: Any, states: Any, memories: Any,
    last_states: Any, last_memories: Any, options: Any, rom: Any, start_states: Any, start_memories: Any, spans: Any,
    scratch: Any,
) -> None:  # fmt: skip
    """One environment step of all lanes; or, with `only_begin`, a new episode where `buttons` is not 0.

    Arrays have a row for each lane. Several threads share the lanes: `taken`, int64 [1], has the number that the first
    free one will take, and `scratch` belongs to the calling thread.
    """
    run_frame = frame_function(frame_address)
    canvas, again_state, again_memory = scratch
    machine, starts = (run_frame, canvas, rom), (start_states, start_memories)
    whole_game = options[_WHOLE_GAME] != 0
    for _ in range(frames.shape[0]):
        lane = claim(taken)
        if lane >= frames.shape[0]:
            break
        if only_begin and not buttons[lane]:
            continue
        book, state, memory = books[lane], states[lane], memories[lane]
        last_state, last_memory = last_states[lane], last_memories[lane]
        game = (book, state, memory, last_state, last_memory)
        rules.begin_step(book)
        if only_begin:
            _restart(machine, game, starts, start_choices[lane], options, spans, frames[lane])
            continue
        held = book[rules.BUTTONS]
        drawn = False
        last_buttons = held
        for frame in range(options[_FRAME_SKIP]):
            may_change = frame == 0 or options[_STICKY_FRAMES] != 0
            if may_change and not (options[_STICKY] and _next_draw(book) < options[_STICKY]):
                held = np.int64(buttons[lane])
            drawn = frame == options[_FRAME_SKIP] - 1
            last_buttons = rules.first_buttons(memory, held, options[_STROKES]) if frame == 0 else held
            _run(machine, game, last_buttons, options[_DRAW] if drawn else np.int64(DRAW_NOTHING))
            rules.observe(memory, book, whole_game, options[_ENDS_AT_LOOPS] != 0)
            if drawn or book[rules.DONE]:
                rules.read_info(memory, infos[lane])
            if book[rules.DONE]:
                break
            if book[rules.STALLED] < rules.STUCK:
                skipped = _skip_scenes(machine, game, options)
                if skipped > 0:
                    drawn = False
                    last_buttons = np.int64(0)
                if skipped == rules.MAX_SCENE_FRAMES:
                    book[rules.STALLED] = rules.STUCK
            if book[rules.STALLED] >= rules.STUCK:
                rules.read_info(memory, infos[lane])
                break
        if not drawn:  # run the last frame again, on copies of the state before it
            for i in range(STATE_WORDS):
                again_state[i] = last_state[i]
            for i in range(MEMORY_BYTES):
                again_memory[i] = last_memory[i]
            run_frame(again_state, again_memory, canvas, rom, last_buttons, options[_DRAW])
        book[rules.BUTTONS] = held_buttons[lane] = held
        rules.finish_step(book)
        reduce_screen(canvas, spans[0], spans[1], frames[lane])
        stalled = options[_STALL_STEPS] > 0 and book[rules.STALLED] >= options[_STALL_STEPS]
        truncated = (stalled or book[rules.STALLED] >= rules.STUCK) and not book[rules.DONE]
        ended[lane, 0] = book[rules.DONE]
        ended[lane, 1] = truncated
        episode[lane, 0] = book[rules.RETURN]
        episode[lane, 1] = book[rules.LENGTH]
        episode[lane, 2] = book[rules.FURTHEST]
        if book[rules.DONE] or truncated:
            for i in range(frames.shape[1]):
                final_frames[lane, i] = frames[lane, i]
            if options[_RESTART]:
                _restart(machine, game, starts, start_choices[lane], options, spans, frames[lane])
