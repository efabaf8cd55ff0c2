"""The record of every lane: what the table of actors shows."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.messages import Lane
from engine.runners.ledger import EndedEpisode

_SHOWN_RETURNS = 20


@dataclass
class _Record:
    episodes: int = 0
    best: float = float("-inf")
    best_x: int = 0
    best_score: int = 0
    clears: int = 0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=_SHOWN_RETURNS))


class Scoreboard:
    """Records of `members` processes with `lanes` games each."""

    def __init__(self, members: int, lanes: int) -> None:
        self._lanes = lanes
        self._records = [_Record() for _ in range(members * lanes)]

    def book(self, member: int, episode: EndedEpisode) -> None:
        record = self._records[member * self._lanes + episode.lane]
        record.episodes += 1
        record.returns.append(episode.episode_return)
        record.best = max(record.best, episode.episode_return)
        record.best_x = max(record.best_x, episode.x_pos)
        record.best_score = max(record.best_score, episode.score)
        record.clears += episode.flag

    def lanes(self, epsilons: NDArray[np.float64]) -> list[Lane]:
        """Every lane with its epsilon [members x lanes]."""
        return [
            Lane(
                actor=place // self._lanes,
                lane=place % self._lanes,
                epsilon=float(epsilons[place]),
                episodes=record.episodes,
                last_return=record.returns[-1] if record.returns else math.nan,
                mean_return=sum(record.returns) / len(record.returns) if record.returns else math.nan,
                best_return=record.best if record.returns else math.nan,
                best_x=record.best_x,
                best_score=record.best_score,
                clears=record.clears,
                returns=list(record.returns),
            )
            for place, record in enumerate(self._records)
        ]

    def state(self) -> list[dict[str, Any]]:
        """For a checkpoint."""
        return [{**vars(record), "returns": list(record.returns)} for record in self._records]

    def load_state(self, state: list[dict[str, Any]]) -> None:
        """Go on from a `state`; other numbers of lanes begin with empty records."""
        if len(state) == len(self._records):
            for record, kept in zip(self._records, state, strict=True):
                vars(record).update(kept, returns=deque(kept["returns"], maxlen=_SHOWN_RETURNS))
