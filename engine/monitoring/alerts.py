"""The rules of alerts. Each looks at a run's events and says in one line that something is wrong: once, until it is
right again.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from engine.protocol.alerts import AlertLimits
from engine.protocol.messages import Episode, Evaluation, Event, Log, Members, Progress, System
from engine.protocol.outcome import Outcome
from engine.runtime.text import size_text

MADE_ANEW = "it is made anew"
"""The end of the log line of an environment that has failed."""
_WINDOW_S, _SETTLING_S = 60.0, 10.0
"""Over which steps/s are compared; and how long the rate that is reported still has steps of the burn-in in it."""
_FEWEST_STEPS = 100_000
"""Without a better evaluation, where the limit is a share of the run's steps."""
_EPISODES, _FEWEST_EPISODES = 100, 20
_FEWEST_EVALUATIONS = 5
_CLEARED = 0.5
_Found = Iterator[tuple[str, bool | None, str]]
"""Rules, whether they are broken (None: neither clearly broken nor clearly not), and the lines that say so."""


class AlertRules:
    """Sees all events of a run, in order.

    Args:
        steps: of the whole run; 0 if that is unknown.
        folder: the disk that it is on is watched.
    """

    def __init__(self, limits: AlertLimits, steps: int, outcome: Outcome, folder: Path) -> None:
        self._limits, self._outcome, self._folder = limits, outcome, folder
        self._stalled = limits.stalled
        if self._stalled is not None and self._stalled < 1:
            self._stalled = max(self._stalled * steps, _FEWEST_STEPS) if steps else None
        self._broken = set[str]()
        self._scores = 0
        """Number of evaluations so far."""
        self._first = self._best = self._best_return = -math.inf
        """Their scores, and the mean return of the best one; without any, the best mean return of episodes."""
        self._best_at: int | None = None
        """Environment steps at that."""
        self._rates = deque[tuple[float, float]]()
        """Seconds of training and the steps/s then, within the window."""
        self._rated_since: float | None = None
        self._usual_rate = 0.0
        self._restarts = dict[int, int]()
        """Of each actor, how many were told."""
        self._failures = deque[bool](maxlen=_EPISODES)

    def take(self, event: Event) -> list[tuple[str, str]]:
        """Return the rules that are broken since this event, each with its line."""
        found: _Found = iter(())
        match event:
            case Progress():
                found = self._of_progress(event)
            case Evaluation():
                found = self._of_evaluation(event)
            case Members():
                return [*self._of_members(event)]
            case System():
                found = self._of_machine(event)
            case Episode():
                found = self._of_episode(failed=False)
            case Log() if event.text.endswith(MADE_ANEW):
                found = self._of_episode(failed=True)
        return [(rule, text) for rule, is_broken, text in found if self._is_news(rule, is_broken)]

    def _is_news(self, rule: str, is_broken: bool | None) -> bool:
        was_broken = rule in self._broken
        if is_broken:
            self._broken.add(rule)
        elif is_broken is not None:
            self._broken.discard(rule)
        return bool(is_broken) and not was_broken

    def _of_progress(self, now: Progress) -> _Found:
        if self._limits.loss is not None:
            yield "loss", math.isinf(now.loss) or "loss" in now.not_finite, "the loss is not finite"
        if now.state != "running" or now.burnin_left:
            return
        if self._best_at is None or now.env_steps < self._best_at:  # it has begun, or begun again from a checkpoint
            self._best_at = now.env_steps
        if not self._scores and now.mean_return > self._best_return:
            self._best_return, self._best_at = now.mean_return, now.env_steps
        if self._stalled is not None:
            done = self._scores and self._is_judged_by_clears and self._best == 1
            what = "evaluation" if self._scores else "mean return"
            steps = now.env_steps - self._best_at
            yield "stalled", not done and steps > self._stalled, f"no better {what} for {steps:,} environment steps"
        if self._limits.slow is not None and now.updates:
            yield from self._of_rate(now.wall_s, now.env_steps_per_s, self._limits.slow)

    def _of_rate(self, wall_s: float, rate: float, slow: float) -> _Found:
        if self._rated_since is None or (self._rates and wall_s < self._rates[-1][0]):
            self._rated_since = wall_s + _SETTLING_S
            self._rates.clear()
        if wall_s < self._rated_since:
            return
        self._rates.append((wall_s, rate))
        while self._rates[0][0] < wall_s - _WINDOW_S:
            self._rates.popleft()
        if wall_s - self._rated_since >= _WINDOW_S:
            median = statistics.median(each for _, each in self._rates)
            self._usual_rate = max(self._usual_rate, median)
            is_slow = median * slow < self._usual_rate
            text = f"{median:,.0f} steps/s for a minute, {self._usual_rate:,.0f} before"
            yield "slow", is_slow if is_slow or median * slow > 1.2 * self._usual_rate else None, text

    def _of_evaluation(self, now: Evaluation) -> _Found:
        by_clears, limits = self._is_judged_by_clears, self._limits
        score = now.clears / max(1, now.episodes) if by_clears else now.mean_return
        if not math.isfinite(score):
            return
        self._scores += 1
        if self._scores == 1:
            self._first = 0.0 if by_clears else score
            self._best = self._best_return = -math.inf
        if (score, now.mean_return) > (self._best, self._best_return):
            self._best, self._best_return, self._best_at = score, now.mean_return, now.env_steps
        above = _CLEARED if limits.above is None and by_clears else limits.above
        counts = self._scores > _FEWEST_EVALUATIONS if above is None else self._best > above
        if limits.fell is not None and counts and (gained := self._best - self._first) > 0:
            lost = (self._best - score) / gained
            shown = "{:.0%} of its episodes cleared" if by_clears else "a mean return of {:,.6g}"
            text = (
                f"the evaluation at {now.env_steps:,} fell to {shown.format(score)}, after {shown.format(self._best)}"
            )
            yield "fell", True if lost >= limits.fell else False if lost < limits.fell / 2 else None, text

    def _of_members(self, now: Members) -> Iterator[tuple[str, str]]:
        for member in now.members if self._limits.lost is not None else ():
            told = min(self._restarts.get(member.index, 0), member.restarts)  # it is 0 again after a restart of the run
            if member.restarts - told >= (self._limits.lost or 1):
                told = member.restarts
                yield "lost", f"{member.role} {member.index} was lost {told} times"
            self._restarts[member.index] = told

    def _of_machine(self, now: System) -> _Found:
        left, total = now.memory_total_bytes - now.memory_used_bytes, now.memory_total_bytes
        if self._limits.memory is not None:
            yield "memory", *_short(left, self._limits.memory / 100 * total, "memory")
        if self._limits.disk is not None:
            with contextlib.suppress(OSError):  # the folder has been moved: the host finds it again
                yield "disk", *_short(shutil.disk_usage(self._folder).free, self._limits.disk * 2**30, "disk space")

    def _of_episode(self, failed: bool) -> _Found:
        self._failures.append(failed)
        percent = 100 * sum(self._failures) / len(self._failures)
        if self._limits.failing is not None and len(self._failures) >= _FEWEST_EPISODES:
            text = f"the environment has failed in {percent:.0f} % of the last {len(self._failures)} episodes"
            yield "failing", percent > self._limits.failing, text

    @property
    def _is_judged_by_clears(self) -> bool:
        return self._outcome.judged_by == "goal"


def _short(left: float, limit: float, what: str) -> tuple[bool | None, str]:
    text = f"only {size_text(int(left), binary=True)} of {what} left"
    return True if left < limit else False if left > 1.5 * limit else None, text
