"""The newest frame of the rank-0 game, in memory that runner and host share.

A counter that is odd while the frame is being written lets the reader notice a torn read.
"""

from __future__ import annotations

import ctypes
from multiprocessing.context import BaseContext
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.emulators.protocol import SCREEN_SHAPE
from engine.protocol.message import bounded
from engine.protocol.messages import Thought
from engine.runtime.fence import fence

_THOUGHT_BYTES = 2**16
"""Capacity for an encoded thought: twice four 84x84 frames and a few hundred Q-values."""
_encode_thought = msgspec.msgpack.Encoder().encode
_decode_thought = bounded(msgspec.msgpack.Decoder(Thought).decode)


class FrameMailbox:
    """One frame, uint8 [240, 256, 3], the agent's decision in it, and a counter, in shared memory.

    The memory is multiprocessing's own arena: a file in /dev/shm (or the temporary folder, if that is too small) which
    is unlinked at once, so a killed run leaves nothing behind.
    """

    def __init__(self, context: BaseContext) -> None:
        self._memory: Any = context.RawArray(ctypes.c_uint8, 16 + int(np.prod(SCREEN_SHAPE)) + _THOUGHT_BYTES)

    def _views(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
        """Counter, length of the thought in bytes, frame, thought."""
        raw = np.frombuffer(self._memory, np.uint8)
        head, pixels, thought = np.split(raw, [16, raw.size - _THOUGHT_BYTES])
        counter, length = head.view(np.int64)[:, None]
        return counter, length, pixels.reshape(SCREEN_SHAPE), thought

    def write(self, picture: NDArray[np.uint8], thought: Thought | None = None) -> None:
        counter, length, pixels, room = self._views()
        encoded = b"" if thought is None else _encode_thought(thought)
        if len(encoded) > _THOUGHT_BYTES and thought is not None:  # a huge board: leave out what the agent saw
            encoded = _encode_thought(msgspec.structs.replace(thought, shape=(0, 0, 0, 0), seen=b""))
        counter += 1 + counter % 2  # odd, even if a previous writer was killed in the middle
        fence()
        pixels[:] = picture
        room[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        length[:] = len(encoded)
        fence()
        counter += 1

    def read(self, seen: int) -> tuple[int, bytes, Thought | None] | None:
        """Counter, frame and thought; None if the counter is still `seen` or a write is in progress."""
        counter, length, pixels, room = self._views()
        before = int(counter[0])
        if before == seen or before % 2:
            return None
        fence()
        data, encoded = pixels.tobytes(), room[: int(length[0])].tobytes()
        fence()
        if int(counter[0]) != before:
            return None
        return before, data, _thought(encoded)


def _thought(encoded: bytes) -> Thought | None:
    """The thought; None if there is none, or if it was torn because a member and its replacement wrote at once."""
    try:
        return _decode_thought(encoded) if encoded else None
    except ValueError:
        return None
