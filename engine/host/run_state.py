"""The state of a run, built up from its events: by the host, for clients that attach later, and by each client.

History is bounded. Charts keep every point of a short run and thin out evenly on a long one. Rare events outlive
frequent ones: ten thousand episodes displace neither an evaluation nor the first cleared stage.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from engine.protocol.messages import (
    Alert,
    Changed,
    Curriculum,
    Episode,
    Evaluation,
    Event,
    Failed,
    FinalEvaluation,
    Finished,
    Frame,
    Hello,
    KeptEvent,
    Lanes,
    Log,
    Members,
    Phase,
    Point,
    Progress,
    Ready,
    Saved,
    System,
    TimeSplits,
)

MAX_POINTS = 2048
MAX_EPISODES = 512
_MAX_STRIDE = 2**20
MAX_LOGS = 256
MAX_MARKS = 1024
LANE_EPISODES = 20
_NEWEST: Mapping[type[Event], str] = {
    Progress: "progress", Lanes: "lanes", Members: "members", TimeSplits: "time_splits", Curriculum: "curriculum",
    System: "system", Frame: "frame",
}  # fmt: skip
"""The fields of `RunState` that hold the newest event of a current kind."""


class Points:
    """Chart samples, at most `MAX_POINTS`. When full, every second one is dropped and the stride doubles.

    Args:
        points: earlier ones.
        stride: number of samples for which each of them stands.
    """

    def __init__(self, points: Iterable[Point] = (), stride: int = 1) -> None:
        self.items = list(points)
        self.stride = min(max(1, stride), _MAX_STRIDE)  # a recording may be foreign
        self.changes = 0
        """Number of changes, so that readers can tell whether anything is new."""
        self._skipped = 0
        self._thin_out()

    def add(self, point: Point) -> None:
        self._skipped += 1
        if self._skipped < self.stride:
            return
        self._skipped = 0
        self.changes += 1
        self.items.append(point)
        self._thin_out()

    def _thin_out(self) -> None:
        while len(self.items) >= MAX_POINTS:
            del self.items[::2]
            self.stride *= 2

    def keep(self, wanted: Callable[[Point], bool]) -> None:
        """Drop points that are not wanted."""
        self.items = [point for point in self.items if wanted(point)]
        self.changes += 1


class EventHistory:
    """Events in order: the newest episodes, the newest log lines, and everything else while there is room.

    When full, every second old evaluation and checkpoint is dropped; a best evaluation, a change or a phase only if
    there are too many of them alone; the first clear never.
    """

    def __init__(self) -> None:
        self._episodes: deque[tuple[int, KeptEvent]] = deque(maxlen=MAX_EPISODES)
        self._logs: deque[tuple[int, KeptEvent]] = deque(maxlen=MAX_LOGS)
        self._marks: list[tuple[int, KeptEvent]] = []
        self.added = 0
        """Number of events ever added."""
        self._cleared = False
        self.changes = 0
        """Number of events added that are not episodes."""

    def append(self, event: KeptEvent) -> None:
        self.added += 1
        numbered = (self.added, event)
        if isinstance(event, Episode) and (self._cleared or not event.success):
            self._episodes.append(numbered)
            return
        self.changes += 1
        if isinstance(event, Log):
            self._logs.append(numbered)
            return
        self._cleared = self._cleared or isinstance(event, Episode)
        self._marks.append(numbered)
        if len(self._marks) >= MAX_MARKS:
            old = self._marks[: MAX_MARKS // 2]
            kept = [mark for i, mark in enumerate(old) if i % 2 or _stays(mark[1])]
            if len(kept) >= len(old) * 3 // 4:
                kept = [mark for i, mark in enumerate(kept) if i % 2 == 0 or isinstance(mark[1], Episode)]
            self._marks[: MAX_MARKS // 2] = kept

    def __iter__(self) -> Iterator[KeptEvent]:
        """All events, oldest first."""
        return (event for _, event in heapq.merge(self._episodes, self._logs, self._marks, key=_number))

    def __len__(self) -> int:
        return len(self._episodes) + len(self._logs) + len(self._marks)

    def others(self) -> list[KeptEvent]:
        """All events but ordinary episodes, oldest first; includes the first clear."""
        return [event for _, event in heapq.merge(self._logs, self._marks, key=_number)]


@dataclass
class RunState:
    """The newest event of each kind, and the bounded history."""

    hello: Hello | None = None
    ready: Ready | None = None
    progress: Progress | None = None
    lanes: Lanes | None = None
    members: Members | None = None
    time_splits: TimeSplits | None = None
    curriculum: Curriculum | None = None
    system: System | None = None
    frame: Frame | None = None
    end: Finished | Failed | None = None
    points: Points = field(default_factory=Points)
    events: EventHistory = field(default_factory=EventHistory)
    lane_episodes: dict[tuple[int, int], deque[Episode]] = field(default_factory=dict)
    """The latest episodes of each (actor, lane), oldest first."""
    published: Counter[str] = field(default_factory=Counter)
    """In the host: how many events of each class of `KeptEvent` were sent to clients; see `Hello.published`."""
    obeys: list[str] | None = None
    """In the host: see `Hello.obeys`."""

    def apply(self, event: Event) -> None:
        """Update the state with one event."""
        match event:
            case Hello():
                self.hello = msgspec.structs.replace(event, points=[], events=[])  # these are below, and may be many
                self.points = Points(event.points, event.points_stride)
                self.events, self.lane_episodes = EventHistory(), {}
                for past in event.events:
                    self.apply(past)
            case Ready():
                self.ready = event
                self.events.append(event)
            case Progress() | Lanes() | Members() | TimeSplits() | Curriculum() | System() | Frame():
                setattr(self, _NEWEST[type(event)], event)
            case Point():
                self.points.add(event)
            case Finished() | Failed():
                self.end = event
                self.events.append(event)
            case Episode():
                self.events.append(event)
                place = event.actor, event.lane
                if place not in self.lane_episodes:
                    self.lane_episodes[place] = deque(maxlen=LANE_EPISODES)
                self.lane_episodes[place].append(event)
            case Evaluation() | FinalEvaluation() | Changed() | Phase() | Saved() | Log() | Alert():
                self.events.append(event)

    def brief(self, most: int) -> RunState:
        """Return what charts of many runs show, and no more: at most so many points and evaluations, evenly spread,
        with the newest and the best."""
        evaluations = [event for event in self.events if isinstance(event, Evaluation)]
        best = [event for event in evaluations if event.best][-1:]
        spread = evaluations[:: -max(1, math.ceil(len(evaluations) / most))][::-1]
        points = self.points.items[:: -max(1, math.ceil(len(self.points.items) / most))][::-1]
        found = RunState(progress=self.progress, end=self.end, points=Points(points))
        if self.hello is not None:
            found.hello = msgspec.structs.replace(self.hello, actions=[], published={}, obeys=self.hello.obeys and [])
        kept = {id(event) for event in (*spread, *best)}
        for event in evaluations:
            if id(event) in kept:
                found.events.append(event)
        return found

    def rewind(self, env_steps: int) -> None:
        """The run restarts at `env_steps`: drop later points and events, but keep log lines."""
        self.points.keep(lambda point: point.env_steps <= env_steps)
        kept = [event for event in self.events if getattr(event, "env_steps", 0) <= env_steps]
        self.events, self.lane_episodes = EventHistory(), {}
        for event in kept:
            self.apply(event)


def _number(numbered: tuple[int, KeptEvent]) -> int:
    return numbered[0]


def _stays(event: KeptEvent) -> bool:
    return isinstance(event, Episode | FinalEvaluation | Changed | Phase | Alert) or (
        isinstance(event, Evaluation) and event.best
    )
