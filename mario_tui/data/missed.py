"""What a client has missed: a host greets one that reads too slowly again, instead of sending all events."""

from __future__ import annotations

from collections import Counter, deque

from engine.host.run_state import MAX_LOGS
from engine.protocol.messages import Episode, Event, Failed, Finished, Hello, KeptEvent, Log


class Received:
    """Counts the lasting events of a connection, and remembers those that a later greeting may repeat.

    Args:
        hello: the first greeting; its events are from before this client, but for an end.
    """

    def __init__(self, hello: Hello) -> None:
        self._counts = Counter(hello.published)
        self._marks: set[KeptEvent] = set()
        self._logs = deque[KeptEvent](maxlen=MAX_LOGS)  # a greeting has no older ones
        for event in hello.events:
            self._remember(event)

    def add(self, event: Event) -> None:
        """Count an event that is not a greeting."""
        if isinstance(event, KeptEvent):
            self._counts[type(event).__name__] += 1
            self._remember(event)

    def catch_up(self, hello: Hello) -> tuple[dict[str, int], list[KeptEvent]]:
        """The number of events that are lost, by the name of their class, and the missed events that `hello` knows:
        all but episodes, in order."""
        known = [event for event in hello.events if not self._has(event)]
        for event in known:
            self.add(event)
        lost = {kind: count - self._counts[kind] for kind, count in hello.published.items()}
        self._counts = Counter(hello.published)
        return {kind: count for kind, count in lost.items() if count > 0}, known

    def _remember(self, event: KeptEvent) -> None:
        if isinstance(event, Log):
            self._logs.append(event)
        elif not isinstance(event, Episode | Finished | Failed):
            self._marks.add(event)

    def _has(self, event: KeptEvent) -> bool:
        return isinstance(event, Episode) or event in (self._logs if isinstance(event, Log) else self._marks)
