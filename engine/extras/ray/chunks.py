"""Chunks: what an actor on another machine has played, as bytes, and the orders that it plays by.

A chunk is MessagePack. Frames are compressed lane by lane, since the frames of one game resemble each other (Mario's
shrink to a sixteenth). Whatever does not have the shape, size or range that the run implies is refused before it
reaches the replay.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.buffers.frames import InitialPriorities
from engine.config.game import Spec
from engine.envs.episode import EpisodeRecord
from engine.envs.lanes import PlayedStep
from engine.protocol.commands import bounded
from engine.protocol.messages import SCREEN_SHAPE, Thought
from engine.protocol.outcome import Outcome
from engine.runners.actor import shown_shape
from engine.runners.apex_actor import ActorStep
from engine.runtime.stopwatch import stopwatch
from engine.runtime.stored_arrays import LARGEST_FLOAT, LARGEST_REWARD, check_numbers

MAX_STEPS = 4096
"""Most environment steps per lane in a chunk."""
_LEVEL = 1  # of zlib: higher ones cost several times as much and save little
_MAX_FRAMES = 100_000
"""Most emulated frames for one step of a lane: on nes-py an episode may begin with a long replay of inputs."""
T = TypeVar("T", PlayedStep, InitialPriorities)
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ChunkError(ValueError):
    """Bytes that are no chunk of this run."""


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """What an actor needs to know for its next chunk."""

    steps: int  # to play in each lane, at most
    seconds: float  # after which the chunk ends with the step under way
    env_steps: int  # of the run
    epsilon_scale: float | None
    gamma: float | None  # if it is not the run's own any more
    level: float  # of the curriculum
    updates: int  # that the weights passed with the orders have
    screen: bool  # whether a picture of lane 0 is wanted


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Arrays are little-endian bytes, those of steps in the order [steps, lanes]."""

    steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_STEPS)]
    frames: list[bytes]  # per lane, compressed [steps, *frame_shape]: those acted on
    final_frames: bytes  # compressed [truncations, *frame_shape]: the last ones of truncated episodes
    actions: bytes  # int16
    rewards: bytes  # float32
    ends: bytes  # uint8: bit 0 terminated, bit 1 truncated, bit 2 failed
    masks: bytes | None  # compressed bits [steps, lanes, actions]
    final_masks: bytes | None  # compressed bits [truncations, actions]
    priority_counts: bytes  # uint32 [steps]: priorities that each step completes
    priority_lanes: bytes  # uint16
    priority_ages: bytes  # uint8
    td_errors: bytes  # float32
    emulated: _Count  # frames
    episodes: list[list[float]]
    updates: _Count  # in the weights that it was played with
    times: list[float]  # `Stopwatch.row`
    waited: float  # seconds since the actor's start that it has waited for orders
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e6)]  # that it took to play
    screen: bytes | None  # compressed uint8 `SCREEN_SHAPE`
    thought: Thought | None


_decode_chunk = bounded(msgspec.msgpack.Decoder(Chunk).decode)
_encode = msgspec.msgpack.Encoder().encode
decode_orders = bounded(msgspec.msgpack.Decoder(Orders).decode)


def encode_orders(orders: Orders) -> bytes:
    return _encode(orders)


class ChunkWriter:
    """Collects steps of `lanes` lanes and makes a chunk of them."""

    def __init__(self, spec: Spec, lanes: int) -> None:
        self._spec, self._lanes = spec, lanes
        self._steps: list[ActorStep] = []

    def add(self, step: ActorStep) -> None:
        self._steps.append(step)

    @stopwatch("insert")
    def finish(
        self,
        *,
        updates: int,
        times: list[float],
        waited: float,
        seconds: float,
        screen: NDArray[np.uint8] | None = None,
        thought: Thought | None = None,
    ) -> bytes:
        """The chunk of the steps added since the last one; the arguments are fields of `Chunk`."""
        taken, self._steps = self._steps, []
        steps = [each.played for each in taken]
        frames = np.stack([step.frames for step in steps], axis=1)  # [lanes, steps, *frame_shape]
        terminated = np.stack([step.terminated for step in steps])
        truncated = np.stack([step.truncated for step in steps])
        failed = np.stack([np.zeros(self._lanes, np.bool_) if step.failed is None else step.failed for step in steps])
        cut = [np.flatnonzero(step.truncated & ~step.terminated) for step in steps]
        priorities = [each.priorities for each in taken]
        masks = final_masks = None
        if self._spec.masked:
            masks = _packed(np.packbits(np.stack([step.masks for step in steps])))
            final = [step.final_masks[lanes] for step, lanes in zip(steps, cut, strict=True)]
            final_masks = _packed(np.packbits(np.concatenate(final)))
        return _encode(
            Chunk(
                steps=len(steps),
                frames=[_packed(lane) for lane in frames],
                final_frames=_packed(
                    np.concatenate([step.final_frames[lanes] for step, lanes in zip(steps, cut, strict=True)])
                ),
                actions=np.stack([step.actions for step in steps]).astype("<i2").tobytes(),
                rewards=np.stack([step.rewards for step in steps]).astype("<f4").tobytes(),
                ends=(terminated + 2 * truncated + 4 * failed).astype(np.uint8).tobytes(),
                masks=masks,
                final_masks=final_masks,
                priority_counts=np.array([each.lanes.size for each in priorities], "<u4").tobytes(),
                priority_lanes=np.concatenate([each.lanes for each in priorities]).astype("<u2").tobytes(),
                priority_ages=np.concatenate([each.ages for each in priorities]).astype(np.uint8).tobytes(),
                td_errors=np.concatenate([each.td_errors for each in priorities]).astype("<f4").tobytes(),
                emulated=sum(each.game_frames for each in taken),
                episodes=[episode.numbers() for each in taken for episode in each.episodes],
                updates=updates,
                times=times,
                waited=waited,
                seconds=seconds,
                screen=None if screen is None else _packed(screen),
                thought=thought,
            )
        )


class ChunkReader:
    """Decodes and checks the chunks of a run.

    Args:
        spec, outcome: of the game.
        lanes: of each actor.
        n_step: of the return, the largest age of a priority.
        times: length of a stopwatch's row.
    """

    def __init__(self, spec: Spec, outcome: Outcome, lanes: int, n_step: int, times: int) -> None:
        self._spec, self._outcome, self._lanes, self._n_step, self._times = spec, outcome, lanes, n_step, times

    def decode(self, data: bytes, steps: int, screen: bool = False) -> CheckedChunk:
        """The chunk of at most `steps` steps, with a picture if one was ordered.

        Raises `ChunkError` if the bytes are not that of this run.
        """
        try:
            chunk = _decode_chunk(data)
            if chunk.steps > steps:
                raise ValueError(f"{chunk.steps} steps instead of {steps}")
            if not screen and (chunk.screen is not None or chunk.thought is not None):
                raise ValueError("a picture that was not ordered")
            return self._checked(chunk)
        except (ValueError, OverflowError, zlib.error) as error:
            raise ChunkError(f"not a chunk of this run ({error})") from None

    def _checked(self, chunk: Chunk) -> CheckedChunk:
        spec, lanes, steps = self._spec, self._lanes, chunk.steps
        ends = _array(chunk.ends, np.uint8, (steps, lanes))
        actions = _array(chunk.actions, "<i2", (steps, lanes)).astype(np.int64)
        rewards = _array(chunk.rewards, "<f4", (steps, lanes))
        counts = _array(chunk.priority_counts, "<u4", (steps,)).astype(np.int64)
        n = int(counts.sum())
        if n > steps * lanes * (self._n_step + 1):
            raise ValueError(f"{n:,} priorities for {steps * lanes:,} steps")
        which = _array(chunk.priority_lanes, "<u2", (n,)).astype(np.int64)
        ages = _array(chunk.priority_ages, np.uint8, (n,)).astype(np.int64)
        errors = _array(chunk.td_errors, "<f4", (n,))
        check_numbers("ends", ends, 0, 4)
        check_numbers("actions", actions, 0, spec.actions - 1)
        check_numbers("lanes of priorities", which, 0, lanes - 1)
        check_numbers("ages of priorities", ages, 0, self._n_step)
        check_numbers("rewards", rewards, -LARGEST_REWARD, LARGEST_REWARD)
        check_numbers("TD errors", errors, 0, LARGEST_FLOAT)
        if len(chunk.frames) != lanes:
            raise ValueError(f"{len(chunk.frames)} lanes instead of {lanes}")
        frames = np.stack([_frames(lane, (steps, *spec.frame_shape), spec) for lane in chunk.frames], axis=1)
        cut = (ends & 2 > 0) & (ends & 1 == 0)
        final_frames = np.zeros((steps, lanes, *spec.frame_shape), spec.frame_dtype) if cut.any() else frames
        if cut.any():
            final_frames[cut] = _frames(chunk.final_frames, (int(cut.sum()), *spec.frame_shape), spec)
        masks = final_masks = None
        if spec.masked:
            masks = _bits(chunk.masks, (steps, lanes, spec.actions))
            final_masks = masks.copy()
            final_masks[cut] = _bits(chunk.final_masks, (int(cut.sum()), spec.actions))
        if len(chunk.times) != self._times or not all(map(math.isfinite, [*chunk.times, chunk.waited])):
            raise ValueError(f"times must be {self._times} finite numbers")
        if len(chunk.episodes) > int((ends > 0).sum()):  # those that began late in a game are not counted
            raise ValueError(f"{len(chunk.episodes)} episodes, but only {int((ends > 0).sum())} ends")
        if chunk.emulated > _MAX_FRAMES * steps * lanes:
            raise ValueError(f"{chunk.emulated:,} frames for {steps * lanes:,} steps")
        if chunk.thought is not None:
            self._check_thought(chunk.thought)
        return CheckedChunk(
            chunk=chunk,
            episodes=[self._episode(numbers) for numbers in chunk.episodes],
            screen=None if chunk.screen is None else _unpacked(chunk.screen, SCREEN_SHAPE),
            played=PlayedStep(
                frames=frames,
                actions=actions,
                rewards=rewards,
                terminated=ends & 1 > 0,
                truncated=ends & 2 > 0,
                final_frames=final_frames,
                masks=masks,
                final_masks=final_masks,
                failed=ends == 4,
            ),
            priorities=InitialPriorities(which, ages, errors),
            bounds=np.concatenate([[0], counts.cumsum()]),
        )

    def _check_thought(self, thought: Thought) -> None:
        shape = shown_shape((self._spec.stack, *self._spec.frame_shape))
        expected = (self._spec.actions, shape, math.prod(shape))
        if (len(thought.q_values), tuple(thought.shape), len(thought.seen)) != expected:
            raise ValueError("what the agent saw does not have the shape of the run")

    def _episode(self, numbers: Sequence[float]) -> EpisodeRecord:
        if len(numbers) != EpisodeRecord.NUMBERS or not all(abs(number) < 2**53 for number in numbers):
            raise ValueError(f"an episode must be {EpisodeRecord.NUMBERS} finite numbers")
        episode = EpisodeRecord.from_numbers(numbers)
        check_numbers("the lane of an episode", np.array([episode.lane]), 0, self._lanes - 1)
        check_numbers("the task of an episode", np.array([episode.task]), -1, len(self._outcome.tasks) - 1)
        if len(episode.results) != len(self._outcome.results):
            raise ValueError(f"an episode must have {len(self._outcome.results)} results, got {len(episode.results)}")
        return episode


@dataclasses.dataclass(frozen=True)
class CheckedChunk:
    """A chunk whose arrays have the shapes and ranges of the run."""

    chunk: Chunk
    episodes: list[EpisodeRecord]
    screen: NDArray[np.uint8] | None
    played: PlayedStep
    """All steps: each array has one more axis, [steps, ...]."""
    priorities: InitialPriorities
    """Those that all steps complete, in their order."""
    bounds: NDArray[np.int64]
    """[steps + 1]: step i completes priorities `bounds[i]` to `bounds[i + 1]`."""

    def steps(self) -> Iterator[tuple[PlayedStep, InitialPriorities]]:
        """Its steps, in order."""
        for step in range(self.chunk.steps):
            part = slice(self.bounds[step], self.bounds[step + 1])
            yield _at(self.played, step), _at(self.priorities, part)


def _at(stacked: T, index: int | slice) -> T:
    """A dataclass of the same type with that part of each array; what is None stays None."""
    parts: dict[str, Any] = {}
    for field in dataclasses.fields(stacked):
        array = getattr(stacked, field.name)
        parts[field.name] = None if array is None else array[index]
    return type(stacked)(**parts)


def _frames(data: bytes, shape: tuple[int, ...], spec: Spec) -> NDArray[Any]:
    """Frames of the game; `ValueError` for elements that are not finite."""
    frames = _unpacked(data, (math.prod(shape[: -len(spec.frame_shape)]), spec.frame_bytes))
    frames = frames.reshape(-1).view(spec.frame_dtype).reshape(shape)
    if not np.isfinite(frames).all():
        raise ValueError("a frame is not finite")
    return frames


def _packed(array: NDArray[Any]) -> bytes:
    return zlib.compress(np.ascontiguousarray(array).data, _LEVEL)


def _unpacked(data: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    size = math.prod(shape)
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data, size + 1)  # never more memory than it may need
    if len(content) != size:
        raise ValueError(f"{len(content):,} bytes instead of {size:,}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _bits(data: bytes | None, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    size = math.prod(shape)
    bits = np.unpackbits(_unpacked(data or b"", ((size + 7) // 8,)), count=size)
    return bits.astype(np.bool_).reshape(shape)


def _array(data: bytes, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    array = np.frombuffer(data, dtype)
    if array.size != math.prod(shape):
        raise ValueError(f"{array.size:,} numbers instead of {math.prod(shape):,}")
    return array.reshape(shape)
