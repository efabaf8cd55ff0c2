"""One task of a distillation: its lanes, in which the student acts and the task's teacher labels what it sees."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.agents.exploration import epsilon_ladder
from engine.config.conditions import Conditions
from engine.distillation.student import Student
from engine.distillation.teachers import Teacher
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import lanes_of_policy
from engine.envs.vec_env import Frames, Lanes, PlayedStep, Spec, VectorStep
from engine.evaluation.episodes import play_episodes
from engine.evaluation.policy import Act
from engine.runners.actor import Actor

LANES = {"mario": 8, "snake": 32}
"""Of each task. A step of boards takes about as long for one lane as for 32."""
CONDITIONS = Conditions()
"""Of evaluations; training episodes begin in the same way."""
_EPSILON = 0.1
"""Of the most exploratory lane: random actions, held for a while, lead to states that neither network would visit."""
_EVALUATION_SEED = 20_000
"""The same starts in every evaluation of every distillation."""


class Task:
    """A stage or a board, and its teacher.

    Args:
        name: the stage or the board.
        teacher: labels the states.
        student: metadata of the student; see `describe_student`.
        seed: seed of the games and of exploration.
        threads: threads that step Mario's lanes.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(
        self,
        name: str,
        teacher: Teacher,
        student: Mapping[str, Any],
        *,
        seed: int,
        threads: int,
        rom: Path | None = None,
    ) -> None:
        self.name, self.teacher = name, teacher
        self._student, self._threads, self._rom = student, threads, rom
        self._evaluated: Lanes | None = None
        env = self._lanes(LANES[student["game"]], seed, restart=True)
        self._actor = Actor(env, ladder=epsilon_ladder(env.lanes, _EPSILON), epsilon_steps=1, seed=seed)
        self._labels = torch.empty(0)
        self._acted: tuple[Frames, NDArray[np.int64]]
        self._pending: Future[VectorStep]

    @property
    def spec(self) -> Spec:
        return self._actor.env.spec

    @property
    def lanes(self) -> int:
        return self._actor.env.lanes

    def begin(self, student: Student, led: int) -> float:
        """Begin a step in the background. The teacher acts in the first `led` lanes, the student in the others.

        Returns the share of lanes in which both prefer the same action.
        """
        agreement = 0.0

        def q_values(obs: Frames) -> Tensor:
            nonlocal agreement
            self._labels, ours = self.teacher.q_values(obs), student.q_values(obs)
            agreement = float((self._labels.argmax(1) == ours.argmax(1)).float().mean())
            return torch.cat((self._labels[:led], ours[led:]))

        actions = self._actor.choose(q_values, 1)
        self._acted = self._actor.frames, actions
        self._pending = self._actor.begin(actions)
        return agreement

    def finish(self) -> tuple[PlayedStep, NDArray[np.float32]]:
        """Wait for the step. Returns it, and the teacher's Q-values [lanes, actions] in the states acted on."""
        step, _ = self._actor.finish(self._pending)
        return step.played(*self._acted, None), self._labels.numpy()

    def evaluate(self, act: Act, episodes: int) -> list[EpisodeRecord]:
        """Play greedy episodes, always from the same starts."""
        if self._evaluated is None:
            self._evaluated = self._lanes(episodes, _EVALUATION_SEED, restart=False)
            self._evaluated.spread_starts()
        self._evaluated.rewind()
        return play_episodes(self._evaluated, act, episodes)

    def close(self) -> None:
        self._actor.close()
        if self._evaluated is not None:
            self._evaluated.close()

    def _lanes(self, lanes: int, seed: int, *, restart: bool) -> Lanes:
        where = "stage" if self._student["game"] == "mario" else "board"
        return lanes_of_policy(
            {**self._student, where: self.name}, lanes, threads=self._threads, seed=seed, noop_max=CONDITIONS.noop_max,
            restart=restart, rom=self._rom,
        )  # fmt: skip


def joined(steps: list[PlayedStep]) -> PlayedStep:
    """The step of several tasks' lanes as one; without masks."""
    names = ("frames", "actions", "rewards", "terminated", "truncated", "final_frames")
    return PlayedStep(**{name: np.concatenate([getattr(step, name) for step in steps]) for name in names})
