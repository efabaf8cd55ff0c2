"""What is known of a run, folded from its events: the same fold on the host (for who attaches later) and in clients.

History is bounded: charts keep every point of a short run and thin out evenly on a long one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.messages import (
    Changed,
    Episode,
    Evaluation,
    Event,
    Failed,
    Finished,
    Frame,
    Hello,
    Lanes,
    Log,
    Members,
    Noted,
    Point,
    Progress,
    Ready,
    Saved,
    System,
)

MAX_POINTS = 2048
MAX_EVENTS = 512


class Points:
    """Chart samples, at most `MAX_POINTS`: when full, every second one is dropped and the stride doubles."""

    def __init__(self) -> None:
        self.items: list[Point] = []
        self._stride = 1
        self._skipped = 0

    def add(self, point: Point) -> None:
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.items.append(point)
        if len(self.items) >= MAX_POINTS:
            del self.items[::2]
            self._stride *= 2


@dataclass
class RunView:
    """The newest of everything, and the bounded past."""

    hello: Hello | None = None
    ready: Ready | None = None
    progress: Progress | None = None
    lanes: Lanes | None = None
    members: Members | None = None
    system: System | None = None
    frame: Frame | None = None
    end: Finished | Failed | None = None
    points: Points = field(default_factory=Points)
    events: deque[Noted] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))

    def apply(self, event: Event) -> None:
        """Fold one event in."""
        match event:
            case Hello():
                self.hello = event
                self.points = Points()
                self.events.clear()
                for past in (*event.points, *event.events):
                    self.apply(past)
            case Ready():
                self.ready = event
                self.events.append(event)
            case Progress():
                self.progress = event
            case Lanes():
                self.lanes = event
            case Members():
                self.members = event
            case System():
                self.system = event
            case Frame():
                self.frame = event
            case Point():
                self.points.add(event)
            case Finished() | Failed():
                self.end = event
                self.events.append(event)
            case Episode() | Evaluation() | Changed() | Saved() | Log():
                self.events.append(event)

    def go_back(self, env_steps: int) -> None:
        """The run begins again at `env_steps`: forget the points and events behind; log lines stay."""
        self.points.items = [point for point in self.points.items if point.env_steps <= env_steps]
        kept = [event for event in self.events if getattr(event, "env_steps", 0) <= env_steps]
        self.events.clear()
        self.events.extend(kept)
