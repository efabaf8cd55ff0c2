"""The record of an episode that ended in a lane. Everything that counts, reports or shows episodes starts from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from engine.config.stages import STAGES
from engine.envs.lanes import VectorStep
from engine.games.mario.rules import TIME
from engine.protocol.messages import Episode


@dataclass(frozen=True)
class EpisodeRecord:
    """All fields are numbers, so that a record fits into shared memory."""

    lane: int
    """Index within the process that played it."""
    episode_return: float
    """As people count it; in Mario the sum of gym-super-mario-bros 7.4 rewards."""
    length: int
    """Environment steps."""
    x_pos: int
    """Furthest x position in Mario; 0 in other games."""
    flag: bool
    """Whether it ended at a flag, or with a full board in Snake."""
    score: int
    """Mario's points, fruits of Snake, lines of Tetris."""
    stage: int
    """Index in `STAGES` of Mario's stage in which it ended; -1 in other games."""
    cleared: int = 0
    """Mario's stages whose flag it reached: bit i stands for `STAGES[i]`."""
    time_left: int = 0
    """Of Mario's clock; 0 in other games."""

    @classmethod
    def from_numbers(cls, numbers: Sequence[float]) -> Self:
        """The record whose `dataclasses.astuple` is `numbers`."""
        lane, episode_return, length, x_pos, flag, score, stage, cleared, time_left = numbers
        whole = (int(each) for each in (score, stage, cleared, time_left))
        return cls(int(lane), episode_return, int(length), int(x_pos), bool(flag), *whole)

    @property
    def stage_name(self) -> str:
        """Mario's stage in which it ended; empty in other games."""
        return "" if self.stage < 0 else STAGES[self.stage]

    @property
    def cleared_stages(self) -> list[str]:
        """Stages whose flag it reached, in the game's order."""
        return [name for index, name in enumerate(STAGES) if self.cleared >> index & 1]

    def message(self, *, actor: int = 0, env_steps: int, episode: int, epsilon: float) -> Episode:
        """The event for clients.

        Args:
            actor: process that played it.
            env_steps: of the run, or of the evaluation, when it ended.
            episode: its number, from 1.
            epsilon: exploration rate of its lane when it ended.
        """
        return Episode(
            actor=actor,
            lane=self.lane,
            env_steps=env_steps,
            episode=episode,
            episode_return=self.episode_return,
            length=self.length,
            x_pos=self.x_pos,
            flag=self.flag,
            score=self.score,
            stage=self.stage_name,
            cleared=self.cleared_stages,
            epsilon=epsilon,
        )


def ended_episodes(step: VectorStep, cleared: NDArray[np.int64] | None = None) -> list[EpisodeRecord]:
    """The episodes that ended in a step, by lane. Those that began at stored states are left out, because their returns
    and clears can't be compared with others.

    Args:
        cleared: [lanes], stages cleared in the current episode, one bit each, where the caller keeps them.
    """
    return [
        EpisodeRecord(
            lane=lane,
            episode_return=float(step.returns[lane]),
            length=int(step.lengths[lane]),
            x_pos=int(step.furthest[lane]),
            flag=bool(step.clears[lane]),
            score=int(step.scores[lane]),
            stage=int(step.stages[lane]),
            cleared=0 if cleared is None else int(cleared[lane]),
            time_left=int(step.info[lane, TIME]) if step.info.size else 0,
        )
        for lane in np.flatnonzero((step.terminated | step.truncated) & step.from_start).tolist()
    ]
