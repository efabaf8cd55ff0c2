"""Finds one way to the flag that works from as many starts of a stage as possible: one answer for all of them is what a
network learns easily.

A way is explored from one start (`engine.games.mario.search.archive`) and then changed wherever it fails from another.
Pauses that it does not need are removed. While this goes on, standing still for a few environment steps is a mistake
like death: how long Mario has stood still can't be seen, so it can't be learned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.games.mario.lanes import LaneState
from engine.games.mario.search.archive import Archive
from engine.games.mario.search.plan_search import PLANS, PlanSearch, Way
from engine.games.mario.stages import STAGES

_STILL_STEPS = (8, 20)
"""Environment steps without progress that are a mistake. 20 is tried where 8 are not enough to find a good way."""
_WAYS, _ENOUGH = 2, 0.95
"""Ways that are searched with each limit, and the share of the starts from which a way must lead to the flag to end the
search at once. Otherwise the one that leads there from most starts is used."""
_WORTH_A_WAIT = 0.1
"""Share of the starts by which a way with the higher limit must be better than one with the lower limit."""
_BACK, _AHEAD, _SAMPLED_STARTS = (12, 24, 48, 96), 30, 12
"""Environment steps before a mistake at which a way is changed, that must be survived after it, and from how many
starts changes are tried."""
_CHANGES = 100
"""Changes after which a way is used as it is."""
_PAUSE = 4
"""Environment steps between one advance and the next that may stay in a way."""
_CUTS = 8
"""Ways to shorten a pause that are tried from all starts."""


def find_way(
    search: PlanSearch, stage: str, starts: Sequence[LaneState], stopped: Callable[[], bool] = lambda: False
) -> Way | None:
    """A way to the flag from as many starts of a stage as possible: the best so far if the search was stopped, None if
    there is none. It is the same for the same seed of `search`, whatever was searched before."""
    best, highest = None, 0.0
    for still_steps, handicap in zip(_STILL_STEPS, (0.0, _WORTH_A_WAIT), strict=True):
        adaptation = WayAdaptation(search, starts, still_steps, stopped)
        for number in range(_WAYS):
            search.on_progress("looking for a way")
            random = np.random.default_rng((search.seed, STAGES.index(stage), number))
            exploration = Archive(starts[len(starts) // 2], search.trials(PLANS, still_steps), search.plans, random)
            actions = exploration.search(stopped)
            if actions is None:
                break  # a second exploration would hardly reach the flag either
            actions = adaptation.without_pauses(adaptation.adapted(actions))
            share = float(adaptation.clears(actions).mean())
            if share >= _ENOUGH:
                return search.way_of(actions, starts)
            if best is None or share - handicap > highest:
                best, highest = actions, share - handicap
        if stopped():
            break
    return None if best is None else search.way_of(best, starts)


class WayAdaptation:
    """Changes actions so that they lead to the flag from other starts too.

    Args:
        search: tries the changes.
        starts: where the actions are to begin.
        still_steps: environment steps without progress that are a mistake.
        stopped: asked before every change. What was reached until then is the result.
    """

    def __init__(
        self, search: PlanSearch, starts: Sequence[LaneState], still_steps: int, stopped: Callable[[], bool]
    ) -> None:
        self._search, self._starts, self._still_steps, self._stopped = search, starts, still_steps, stopped
        self._all = search.trials(len(starts), still_steps)

    def clears(self, actions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[starts]: whether actions [steps] lead to the flag from there."""
        return self._all.run_from_each(self._starts, actions).clears

    def adapted(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Actions [steps] to the flag, changed so that they lead there from as many of the starts as possible."""
        random = np.random.default_rng((self._search.seed, actions.size))
        best, most, length = actions, 0, actions.size
        lost = np.zeros(len(self._starts), np.bool_)  # starts for which no change was found
        for _ in range(_CHANGES):
            if self._stopped():
                break
            tried = self._all.run_from_each(self._starts, actions)
            if tried.clears.sum() > most:
                best, most = actions[: tried.lengths[tried.clears].max()], int(tried.clears.sum())
            failed = ~tried.clears & ~lost
            if not failed.any():
                break
            end = int(tried.lengths[failed].min())
            self._search.on_progress(f"adapting a way, step {end} of {length}")
            for back in _BACK:
                if self._stopped():
                    return best
                changed = self._changed(actions, max(0, end - back), end, failed, random)
                if changed is not None:
                    actions = changed
                    break
            else:
                lost |= failed & (tried.lengths == end)
        return best

    def without_pauses(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Actions [steps] without steps during which Mario stands still, wherever they can be left out and as many of
        the starts still lead to the flag. A student that learns to stand still can't see when to go on."""
        clears = self.clears(actions)
        first, at = self._starts[int(clears.argmax())], 0
        while (pause := self._pause(actions, first, at)) is not None and not self._stopped():
            for shorter in itertools.islice(self._shortened(actions, first, *pause), _CUTS):
                if self.clears(shorter).sum() >= clears.sum():
                    actions = shorter
                    break
            else:
                at = pause[0]
        return actions

    def _changed(
        self,
        actions: NDArray[np.int64],
        at: int,
        end: int,
        failed: NDArray[np.bool_],
        random: np.random.Generator,
    ) -> NDArray[np.int64] | None:
        """Actions changed from step `at` on, after which Mario survives step `end` from more of the starts; None if no
        change was found."""
        alive = self._all.run_from_each(self._starts, actions[:at]).alive
        states = [self._all.env.lane_state(lane) for lane in range(len(self._starts))]
        groups = [np.flatnonzero(alive & which) for which in (failed, ~failed)]
        sizes = [group.size for group in groups]
        picked = [random.permutation(group)[: _SAMPLED_STARTS // 2] for group in groups]
        drawn = np.concatenate(picked)
        if not picked[0].size:
            return None
        steps = end - at + _AHEAD
        plans = self._search.variants(actions[at:], 0, steps, random)
        tried = self._search.trials(len(plans) * drawn.size, self._still_steps).run(
            [states[index] for _ in plans for index in drawn.tolist()], np.repeat(plans[:, :steps], drawn.size, axis=0)
        )
        survive = (tried.alive & (tried.gains > 0)) | tried.clears
        shares = np.split(survive.reshape(len(plans), -1), [picked[0].size], axis=1)
        expected = sum(
            share.mean(1) * size for share, size in zip(shares, sizes, strict=True) if share.shape[1]
        )  # starts from which Mario survives
        gains = np.where(survive, tried.gains, 0).reshape(len(plans), -1).mean(1)
        chosen = int(np.lexsort((gains, expected))[-1])  # the fastest: how long Mario has waited can't be seen
        return np.concatenate((actions[:at], plans[chosen])) if expected[chosen] > expected[0] else None

    def _shortened(
        self, actions: NDArray[np.int64], start: LaneState, begin: int, end: int
    ) -> Iterator[NDArray[np.int64]]:
        """Actions without some of their steps from `begin` to `end`, the most first, that lead to the flag from a
        start. Ends when stopped."""
        trials = self._search.trials(1, self._still_steps)
        for size in range(end - begin, 0, -1):
            for at in range(begin, end - size + 1):
                if self._stopped():
                    return
                shorter = np.delete(actions, slice(at, at + size))
                if trials.run_from_each([start], shorter).clears[0]:
                    yield shorter

    def _pause(self, actions: NDArray[np.int64], start: LaneState, after: int) -> tuple[int, int] | None:
        """Where Mario first needs more than `_PAUSE` steps to get further on the way from a start, after step `after`:
        the steps that follow the last one that began further than before, from begin to end. None if he never does."""
        way = self._search.way_of(actions, [start])
        if way is None:
            return None
        for begin, end in itertools.pairwise([*np.flatnonzero(way.advances()).tolist(), way.xs.size]):
            if begin >= after and end - begin > _PAUSE:
                return begin + 1, end
        return None
