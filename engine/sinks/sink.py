"""What sinks are made of: the base class, a writer that never makes the host wait, and one that makes scalars."""

from __future__ import annotations

import errno
import math
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import Protocol

from engine.protocol.messages import Episode, Evaluation, Failed, FinalEvaluation, Finished, Mean, Progress
from engine.protocol.metrics import scalars_of
from engine.protocol.outcome import Outcome, mean_keys
from engine.protocol.sinks import Begin, Restart, SinkEvent


class Sink:
    """Takes the metrics of one run.

    Each host of the run makes one, without arguments if it comes from another package: after a resume, another sink
    goes on. `begin` comes first, then `restart`. `end` is missing if the host was killed.
    """

    def begin(self, run: Begin) -> None:
        """Open what the sink writes to, and write down the run's hyperparameters (`run.options`)."""

    def restart(self, env_steps: int) -> None:
        """The run starts, or goes on from a checkpoint, at `env_steps`: what was said of later steps is void."""

    def progress(self, progress: Progress) -> None:
        """Once a second while the run trains, and at its end."""

    def episode(self, episode: Episode) -> None:
        """An episode has ended. There may be hundreds per second."""

    def evaluation(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def final_evaluation(self, final: FinalEvaluation) -> None:
        """The run's result is known: its chosen policy over fresh episodes. Only of a run that was not stopped."""

    def end(self, end: Finished | Failed) -> None:
        """The run is over."""

    def close(self) -> None:
        """Write what is left."""

    def take(self, event: SinkEvent) -> None:
        """Call the method for an event."""
        match event:
            case Begin():
                self.begin(event)
            case Restart():
                self.restart(event.env_steps)
            case Progress():
                self.progress(event)
            case Episode():
                self.episode(event)
            case Evaluation():
                self.evaluation(event)
            case FinalEvaluation():
                self.final_evaluation(event)
            case Finished() | Failed():
                self.end(event)


MOST = 2**14
"""Chunks that may wait. Those beyond are dropped and counted."""


class Stream(Protocol):
    """What is written to; only the thread touches it."""

    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...
    def close(self) -> object: ...


class QueuedWriter:
    """Writes chunks of bytes to a stream, which it closes at the end. Whoever reads the stream sees them at once.

    What the stream raises ends the writing; `put` and `close` raise it from then on.
    """

    def __init__(self, stream: Stream, name: str) -> None:
        self._stream = stream
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._error: Exception | None = None
        self.dropped = 0
        """Chunks that found no room."""
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)
        self._thread.start()

    def put(self, chunk: bytes, *, droppable: bool = True) -> None:
        with self._changed:
            if self._error is not None:
                raise self._error
            if droppable and len(self._waiting) >= MOST:
                self.dropped += 1
            else:
                self._waiting.append(chunk)
                self._changed.notify()

    def close(self, timeout_s: float) -> None:
        """Write what is left. Raises `TimeoutError` if that takes longer than `timeout_s` seconds; it goes on then."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(errno.ETIMEDOUT, f"not written within {timeout_s:.0f} s")
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            try:
                while chunks := self._take():
                    for chunk in chunks:
                        self._stream.write(chunk)
                    self._stream.flush()
            finally:
                self._stream.close()
        except Exception as error:  # told by the next `put`
            self._error = error

    def _take(self) -> list[bytes]:
        """The chunks that wait, as soon as there are any; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            chunks = list(self._waiting)
            self._waiting.clear()
            return chunks


class QueuedSink(Sink):
    """A sink in the host's process."""

    _writer: QueuedWriter | None = None
    """Since `begin`."""

    @property
    def dropped(self) -> int:
        """Messages that were dropped, because the sink is too slow."""
        return 0 if self._writer is None else self._writer.dropped


EPISODE_POINTS = 4096
"""Number of points after which the number of episodes per point, initially 1, doubles. Charts in the dashboard show no
more points than that."""


class Thinning:
    """Counts episodes. The first `EPISODE_POINTS` points stand for single episodes, the next for 2, then for 4, …"""

    def __init__(self) -> None:
        self._each, self._points = 1, 0  # episodes per point; points with that many
        self._counted = 0  # since the last point

    def is_due(self) -> bool:
        """Count an episode. Whether it completes a point."""
        self._counted += 1
        if self._counted < self._each:
            return False
        self._counted = 0
        self._points += 1
        if self._points == EPISODE_POINTS:
            self._points, self._each = 0, 2 * self._each
        return True

    def restart(self) -> None:
        """Forget the episodes of an incomplete point."""
        self._counted = 0


class ScalarSink(Sink, ABC):
    """Makes scalars of progress, episodes and evaluations; `write_scalars` writes them."""

    def __init__(self) -> None:
        self._thinning, self._outcome = Thinning(), Outcome()
        self._sums: dict[str, float] = {}  # of the finite values in the episodes of the next point
        self._finite = Counter[str]()  # number of these
        self._summed = self._summed_to = 0  # number of those episodes; environment steps at the last one

    @abstractmethod
    def write_scalars(self, env_steps: int, scalars: dict[str, float]) -> None:
        """Write values by their tags; NaN for one that is known not to be finite."""

    def begin(self, run: Begin) -> None:
        self._outcome = run.outcome

    def restart(self, env_steps: int) -> None:
        self._begin_point()
        self._thinning.restart()

    def progress(self, progress: Progress) -> None:
        self._write(progress.env_steps, scalars_of(progress))

    def episode(self, episode: Episode) -> None:
        results = self._outcome.named(episode.results)
        scalars = {f"charts/episodic_{name}": value for name, value in results.items()}
        scalars |= {"charts/episodic_return": episode.episode_return, "charts/episodic_length": episode.length}
        if self._outcome.goal is not None:
            scalars["charts/episodic_clear"] = float(episode.success)
        for tag, value in scalars.items():
            is_finite = math.isfinite(value)
            self._sums[tag] = self._sums.get(tag, 0.0) + (value if is_finite else 0.0)
            self._finite[tag] += is_finite
        self._summed, self._summed_to = self._summed + 1, episode.env_steps
        if self._thinning.is_due():
            self._write_episodes()

    def evaluation(self, evaluation: Evaluation) -> None:
        means = {"return": evaluation.mean_return, **self._outcome.named(evaluation.results)}
        scalars = {f"eval/{key}": value for key, value in mean_keys(means).items()}
        if self._outcome.goal is not None:
            scalars["eval/clear_rate"] = evaluation.clears / evaluation.episodes
        self._write(evaluation.env_steps, scalars)

    def final_evaluation(self, final: FinalEvaluation) -> None:
        """As `result/…`, with both ends of the interval of each mean and rate, as far as there are enough episodes."""
        means = {"mean_return": final.mean_return, **mean_keys(self._outcome.named(final.results))}
        if self._outcome.goal is not None and final.episodes:
            means["clear_rate"] = Mean(final.clears / final.episodes, final.clear_rate_low, final.clear_rate_high)
        bounds = {
            f"result/{key}{end}": value
            for key, mean in means.items()
            for end, value in (("", mean.mean), ("_low", mean.low), ("_high", mean.high))
        }
        known = {tag: value for tag, value in bounds.items() if not math.isnan(value)}
        self._write(final.env_steps, {**known, "result/episodes": final.episodes})

    def close(self) -> None:
        self._write_episodes()

    def _write_episodes(self) -> None:
        """Write a point with the means of the episodes since the last one."""
        if self._summed:
            finite = self._finite
            means = {tag: total / finite[tag] if finite[tag] else math.nan for tag, total in self._sums.items()}
            self._begin_point()
            self._write(self._summed_to, means)

    def _begin_point(self) -> None:
        self._sums, self._finite, self._summed = {}, Counter(), 0

    def _write(self, env_steps: int, scalars: dict[str, float]) -> None:
        told = {tag: value if math.isfinite(value) else math.nan for tag, value in scalars.items()}
        self.write_scalars(env_steps, told)
