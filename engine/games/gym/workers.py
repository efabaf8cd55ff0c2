"""Where the lanes of an environment are stepped: in this thread, in threads of their own, or in worker processes.

Each place has some of the lanes, makes them, and is the only one that ever calls them. Frames lie in memory that all
places share; the rest of a step is a few numbers per lane. Gymnasium's own vector environments don't fit: in these, an
environment that fails ends all others, and each has a process of its own.

A worker imports no PyTorch of its own. It ends with the process that has started it and belongs to its session, so that
this one's keeper ends what a user's code has left.
"""

from __future__ import annotations

import logging
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from numpy.typing import NDArray

from engine.config.fields import ConfigError
from engine.config.game import Spec
from engine.config.user_code import described_error
from engine.games.gym.environment import make_environment, torch_settings_kept
from engine.games.gym.lane import Lane
from engine.games.gym.observations import Observations
from engine.games.gym.options import FALLBACK_STEPS, GymOptions, view_of
from engine.games.gym.spaces import label, parsed, speed_of
from engine.protocol.framing import HopelessError
from engine.runtime.processes import ENDING, disregard, held, how_it_ended, killed_with_parent, start_keeper
from engine.runtime.stored_arrays import seed_global_random
from engine.runtime.threads import GraceTime, user_calls

_LOG = logging.getLogger(__name__)
_SLOW_S = 10.0
"""Seconds after which a call is said to be slow, the first time; then those that take twice as long."""
_LATE_S = 5.0
"""Seconds beyond the limit of a call after which a worker that says nothing counts as hung."""
_WORTH_S = 0.01
"""Seconds that a step of all lanes takes from which other places than this thread can pay."""
_MOST_THREADS = 64


class Way(NamedTuple):
    """How lanes are stepped."""

    kind: str
    """`none` (this thread), `threads`, or `processes`."""
    places: int

    def __str__(self) -> str:
        return "this thread" if self.kind == "none" else f"{self.places} {self.kind}"


HERE = Way("none", 1)


def chosen_way(options: GymOptions, lanes: int, cores: int) -> Way:
    """The way that the options choose; `auto` by the speed that was measured, for a process with so many `cores`."""
    wanted = options.env_workers
    if wanted.isdecimal():
        return Way("processes", min(int(wanted), lanes))
    speed = speed_of(options.env_speed)
    threads = Way("threads", min(lanes, _MOST_THREADS))
    if wanted != "auto" or lanes == 1 or speed.draws or speed.step_s * lanes < _WORTH_S:
        return threads if wanted == "threads" else HERE
    if speed.waits:
        return threads if speed.threads else Way("processes", min(lanes, 4 * cores))
    return Way("processes", min(lanes, cores)) if cores > 1 else HERE


def maker(options: GymOptions) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Makes the environment that the options name."""
    others: dict[str, Any] = {}
    if parsed(options.spaces).renders:
        others["render_mode"] = "rgb_array"
    if limit := options.max_episode_steps or (None if parsed(options.spaces).step_limit else FALLBACK_STEPS):
        others["max_episode_steps"] = limit
    return lambda: make_environment(options.env, options.env_args, options.env_import, **others)


class _Results:
    """What steps yield, of all lanes."""

    def __init__(self, spec: Spec, lanes: int, memory: mmap.mmap | None = None) -> None:
        shape = (lanes, *spec.frame_shape)
        frames, masks = lanes * spec.frame_bytes, lanes * spec.mask_actions
        self.size = 2 * (frames + masks)
        buffer = np.zeros(self.size, np.uint8) if memory is None else np.frombuffer(memory, np.uint8)
        first, final, *of_masks = np.split(buffer, [frames, 2 * frames, 2 * frames + masks])
        self.frames, self.final_frames = (each.view(spec.frame_dtype).reshape(shape) for each in (first, final))
        self.masks, self.final_masks = (each.view(np.bool_).reshape(lanes, -1) for each in of_masks)


class Part:
    """Some of the lanes, in one place."""

    def __init__(self, options: GymOptions, spec: Spec, numbers: Sequence[int], seed: int, results: _Results) -> None:
        spaces, self._results, self._numbers, self._masked = parsed(options.spaces), results, numbers, spec.masked
        self._name, make = label(options.env), maker(options)
        observations = Observations(spaces, view_of(options))
        self.lanes = [Lane(number, make, options, spaces, observations, seed) for number in numbers]
        self._watch = _Watch(self._name, self.lanes)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method, and undo what an environment sets for all of PyTorch."""
        with torch_settings_kept(self._name):
            return getattr(self, name)(*arguments)

    def make(self) -> None:
        for lane in self.lanes:
            lane.make()

    def reset(self) -> None:
        for number, lane in zip(self._numbers, self.lanes, strict=True):
            self._begin(number, lane)

    def _begin(self, number: int, lane: Lane) -> None:
        self._results.frames[number], mask = lane.begin()
        if self._masked:
            self._results.masks[number] = mask

    def step(self, actions: list[int], rests: list[bool], last: list[bool]) -> list[tuple[Any, ...]]:
        """A step of each lane that does not rest; a new episode begins where it has ended one that is not the last.
        Returns what `Moved` has behind frame and mask."""
        results, found = self._results, []
        for number, lane, action, rest, is_last in zip(self._numbers, self.lanes, actions, rests, last, strict=True):
            moved = lane.rest() if rest else lane.step(action)
            results.frames[number] = results.final_frames[number] = moved.frame
            if self._masked:
                results.masks[number] = results.final_masks[number] = moved.mask
            if (moved.terminated or moved.truncated) and not (is_last and not moved.failed):
                self._begin(number, lane)
            found.append(moved[2:])
        return found

    def picture(self, place: int, largest: NDArray[np.float32] | None) -> NDArray[np.uint8]:
        return self.lanes[place].picture(largest)

    def rewind(self) -> None:
        for lane in self.lanes:
            lane.rewind()

    def episodes(self) -> list[int]:
        return [lane.episode for lane in self.lanes]

    def load(self, episodes: list[int]) -> None:
        for lane, episode in zip(self.lanes, episodes, strict=True):
            lane.episode = episode

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        self._watch.close()


class _Watch:
    """Says in which lane and call an environment is slow, and reports a call beyond the limit."""

    def __init__(self, name: str, lanes: list[Lane]) -> None:
        self._name, self._lanes, self._closed = name, lanes, threading.Event()
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def _look(self) -> None:
        slow_s, limit_s = _SLOW_S, user_calls.limit_s
        grace = GraceTime(limit_s)
        while not self._closed.wait(min(1.0, limit_s / 8)):
            now, spared = grace.look()
            for lane in self._lanes:
                call, since = lane.call or f"step {lane.steps + 1:,}", lane.since
                if not since or (silent_s := now - since) < min(slow_s, limit_s) or spared:
                    continue
                where = f"{self._name}: lane {lane.number}, episode {lane.episode:,}, {call}"
                said = f"{where}: no answer for {silent_s:.0f} s"
                if silent_s < limit_s:
                    slow_s = 2 * silent_s
                    _LOG.warning(said)
                else:
                    user_calls.fail(f"{said} (--step-timeout {limit_s:g})")

    def close(self) -> None:
        self._closed.set()


class Here:
    """This thread. In every place, `send` begins a call of one of the part's methods, and `receive` returns its result,
    or raises what it has raised. Calls of several places last at the same time, if the way permits it."""

    def __init__(self, part: Part) -> None:
        self._part, self._answer = part, None

    def send(self, name: str, *arguments: Any) -> None:
        self._answer = self._part.call(name, *arguments)

    def receive(self) -> Any:
        return self._answer

    def close(self) -> None:
        self._part.call("close")


class InThread:
    """A thread of its own, which makes, steps and closes its environments."""

    def __init__(self, part: Part) -> None:
        self._calls, self._answers = SimpleQueue[tuple[str, Any] | None](), SimpleQueue[tuple[Any, Any]]()
        threading.Thread(target=self._work, args=(part,), name="lanes", daemon=True).start()

    def _work(self, part: Part) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._answers.put((part.call(call[0], *call[1]), None))
            except BaseException as error:
                self._answers.put((None, error))

    def send(self, name: str, *arguments: Any) -> None:
        self._calls.put((name, arguments))

    def receive(self) -> Any:
        answer, error = self._answers.get()
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        self.send("close")
        self._calls.put(None)
        self.receive()


class InProcess:
    """A worker process. Raises `RuntimeError` if it is lost."""

    def __init__(self, index: int, memory: int, *arguments: Any) -> None:
        self._index, (self._pipe, theirs) = index, Pipe()
        start_keeper()
        program = f"from {__name__} import main; main()"  # as `__main__`, its classes would be others
        command = [sys.executable, "-P", "-c", program, str(theirs.fileno()), str(memory)]
        with held():
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno(), memory])
        theirs.close()
        self._pipe.send(arguments)

    def send(self, name: str, *arguments: Any) -> None:
        try:
            self._pipe.send((name, arguments))
        except OSError:
            self._lost()

    def receive(self) -> Any:
        heard_at = time.monotonic()
        grace = GraceTime(user_calls.limit_s + _LATE_S)
        while True:
            try:
                if not self._pipe.poll(1.0):
                    now, spared = grace.look()
                    if now - heard_at > user_calls.limit_s + _LATE_S and not spared:
                        user_calls.fail(f"environment worker {self._index}: no answer (--step-timeout)")
                    continue
                kind, *said = self._pipe.recv()
            except (EOFError, OSError):
                self._lost()
            heard_at = time.monotonic()
            match kind:
                case "answer":
                    return said[0]
                case "begins":
                    user_calls.begin(heard_at)
                case "warning":
                    _LOG.warning(said[0])
                case "hangs":
                    user_calls.fail(said[0])
                case "refused":
                    raise ConfigError(*said)
                case _:
                    raise (HopelessError if kind == "hopeless" else RuntimeError)(said[0])

    def _lost(self) -> NoReturn:
        code = self._process.wait()
        raise RuntimeError(f"environment worker {self._index} was lost ({how_it_ended(code)})") from None

    def close(self) -> None:
        try:
            self.send("close")
            self.receive()
        finally:
            self._pipe.close()
            self._process.kill()
            self._process.wait()


Place = Here | InThread | InProcess


def places(
    options: GymOptions, spec: Spec, lanes: int, seed: int, way: Way
) -> tuple[list[Place], list[list[int]], _Results, list[Lane]]:
    """The places, the numbers of the lanes in each, the memory that they share, and the lanes of this process."""
    numbers = [list(range(place, lanes, way.places)) for place in range(way.places)]
    if way.kind != "processes":
        results = _Results(spec, lanes)
        parts = [Part(options, spec, each, seed, results) for each in numbers]
        kind: Callable[[Part], Place] = Here if way.kind == "none" else InThread
        mine = sorted((lane for part in parts for lane in part.lanes), key=lambda lane: lane.number)
        return [kind(part) for part in parts], numbers, results, mine
    size = _Results(spec, lanes).size
    with tempfile.TemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:  # noqa: PTH112
        file.truncate(size)
        results = _Results(spec, lanes, mmap.mmap(file.fileno(), size))
        workers = [
            InProcess(index, file.fileno(), options, spec, lanes, each, seed, index)
            for index, each in enumerate(numbers)
        ]
    return [*workers], numbers, results, []


class _Telling(logging.Handler):
    def __init__(self, tell: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell("warning", record.getMessage())


def main() -> None:
    disregard(*ENDING)  # who plays decides when to stop
    killed_with_parent()
    pipe, memory = Connection(int(sys.argv[1])), int(sys.argv[2])
    os.set_inheritable(pipe.fileno(), False)
    telling = threading.Lock()

    def tell(*said: Any) -> None:
        with telling:
            pipe.send(said)

    options, spec, lanes, numbers, seed, index = pipe.recv()
    results = _Results(spec, lanes, mmap.mmap(memory, os.fstat(memory).st_size))
    os.close(memory)
    logging.getLogger("engine").addHandler(_Telling(tell))
    seed_global_random(seed + index)
    user_calls.limit_s = options.step_timeout
    user_calls.beat, user_calls.fail = lambda: tell("begins"), lambda text: tell("hangs", text)
    part = Part(options, spec, numbers, seed, results)
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)  # who plays is gone
        try:
            tell("answer", part.call(name, *arguments))
        except ConfigError as error:
            tell("refused", error.field, error.reason)
        except HopelessError as error:
            tell("hopeless", str(error))
        except BaseException as error:
            tell("raised", described_error(error))
        if name == "close":
            os._exit(0)
