"""What the learner knows about one actor on a cluster: how far its start is, its calls in flight, its speed, and when
it is late."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from engine.extras.ray.chunks import MAX_STEPS
from engine.runners.links import START_LIMIT_S
from engine.runners.processes import FailedStarts
from engine.runners.shared_state import FIRST_S

_CHUNK_S = 0.25
"""Time to play a chunk; longer with many actors, see `_CALLS_PER_S`."""
_CALLS_PER_S = 400
"""Calls that the learner's process can make beside learning."""
_FIRST_CHUNK = 512
"""Most steps, of all lanes, of an actor's first chunk, when its speed is not known yet."""
_SILENT_S = 2.0
"""Seconds without an answer after which an actor is asked whether its environment takes that long."""
_LATE_FACTOR = 4.0
"""How many times longer than expected a chunk may take, besides the time for a heartbeat."""
_NEWEST = 0.3
"""Weight of the newest chunk in an actor's speed."""
_SHORTEST_S = 1e-4


@dataclass
class Call:
    """A chunk that was asked for."""

    reply: Any  # reference to the bytes that will come
    steps: int  # per lane
    screen: bool  # whether a picture was ordered
    sent_at: float  # CLOCK_MONOTONIC


@dataclass
class RemoteSlot:
    """One actor: its current process, wherever it is."""

    index: int
    handle: Any = None
    greeting: Any = None
    """Reference to the greeting that will come; None once it has."""
    building: Any = None
    """Reference to the end of `build`; None before and after."""
    calls: deque[Call] = field(default_factory=deque)
    machine: str = ""
    node: str = ""
    since: float = field(default_factory=time.monotonic)
    """CLOCK_MONOTONIC when it began what it does now."""
    seconds_per_step: float = 0.0
    """Of all its lanes; 0 while unknown."""
    restarts: int = 0
    failed_starts: FailedStarts = field(default_factory=FailedStarts)
    pulse: Any = None
    """Reference to what `RemoteActor.pulse` will say; None if it was not asked."""
    waited: float = 0.0
    """Seconds that its process has waited for calls so far."""

    @property
    def awaited(self) -> Any:
        """Reference to what comes next; None if nothing was asked for."""
        return self.greeting or self.building or (self.calls[0].reply if self.calls else None)

    @property
    def plays(self) -> bool:
        """Return whether it can be asked for chunks."""
        return self.greeting is None and self.building is None

    def begin(self, handle: Any, greeting: Any) -> None:
        """A new process starts."""
        self.handle, self.greeting, self.building, self.since = handle, greeting, None, time.monotonic()
        self.pulse = None
        self.calls.clear()
        self.machine = self.node = ""
        self.seconds_per_step = self.waited = 0.0

    def greeted(self, machine: str, node: str) -> None:
        """Its process runs, on that machine."""
        self.greeting, self.machine, self.node, self.since = None, machine, node, time.monotonic()

    def builds(self, building: Any) -> None:
        """It was told to make its network and games."""
        self.building, self.since = building, time.monotonic()

    def built(self) -> None:
        """It can play."""
        self.building, self.since = None, time.monotonic()

    def called(self, call: Call) -> None:
        """A chunk was asked for."""
        if not self.calls:
            self.since = call.sent_at
        self.calls.append(call)

    def replied(self, now: float) -> Call:
        """The oldest call was answered. Returns it."""
        self.since = now
        return self.calls.popleft()

    def played_in(self, seconds: float, steps: int) -> None:
        """Learn the actor's speed from a chunk: it played `steps` steps in `seconds`, by its own clock."""
        newest = max(seconds, _SHORTEST_S) / steps
        self.seconds_per_step += (newest - self.seconds_per_step) * (_NEWEST if self.seconds_per_step else 1.0)

    def chunk(self, lanes: int, actors: int, picture_fps: float) -> tuple[int, float]:
        """Most steps per lane, and seconds, of its next chunk. With `picture_fps` (0: none), each chunk brings a
        picture."""
        seconds = max(_CHUNK_S, actors / _CALLS_PER_S)
        if picture_fps:
            seconds = min(seconds, 1 / picture_fps)
        if not self.seconds_per_step:
            return max(1, _FIRST_CHUNK // lanes), seconds
        return min(MAX_STEPS, max(1, round(seconds / self.seconds_per_step))), seconds

    def is_silent(self, now: float) -> bool:
        """Return whether it is to be asked for a pulse."""
        return self.greeting is None and self.pulse is None and now - self.since > _SILENT_S

    def is_late(self, now: float, heartbeat_s: float) -> bool:
        """Return whether it should have answered by now. `heartbeat_s`: the longest time between two steps."""
        if not self.plays:
            return now - self.since > START_LIMIT_S
        known = self.seconds_per_step > 0
        patience = heartbeat_s if known else max(FIRST_S, heartbeat_s)
        return now - self.since > patience + _LATE_FACTOR * self.calls[0].steps * self.seconds_per_step
