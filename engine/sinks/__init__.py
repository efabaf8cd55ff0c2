"""Sinks: where the metrics of a run go. TensorBoard is one, a file of JSON lines another, experiment trackers
have theirs (`engine.extras.trackers`), and packages bring their own (`process`). The host writes to all of them
through a `Dispatcher`.
"""

from engine.sinks.sink import Sink

__all__ = ["Sink"]
