"""The tasks of a distillation: lanes in which the student acts, and an expert that labels what it sees.

The expert is another policy in a `TaughtTask`, and in a `SearchedTask` a search that the game brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.agents.exploration import epsilon_ladder
from engine.config.game import game_of
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import lanes_of_policy
from engine.envs.lanes import Frames, Lanes, VectorStep
from engine.evaluation.policy import Act, play_episodes
from engine.extras.distillation.student import LabelledReplay, Student
from engine.extras.distillation.teachers import Teacher
from engine.protocol.outcome import Conditions
from engine.runners.actor import Actor

CONDITIONS = Conditions()
"""Of evaluations, unless others are given; training episodes begin in the same way."""
REPLAY_RATIO = 6.0
"""States learned per environment step."""
_EPSILON = 0.1
"""Of the most exploratory lane: random actions, held for a while, lead to states that neither network would visit."""
_EVALUATION_SEED = 20_000
"""The same starts in every evaluation of every distillation."""


class Task(Protocol):
    """A stage or a board to learn."""

    name: str
    replay: LabelledReplay
    replay_ratio: float
    """States to learn per environment step."""

    @property
    def lanes(self) -> int:
        """Games that are played at once."""

    def begin(self, student: Student, led: int) -> float:
        """Begin a step in the background; the student does not act in the first `led` lanes.

        Returns the share of lanes in which it prefers what is to be learned.
        """

    def finish(self) -> None:
        """Wait for the step and store what has been learned from it."""

    def evaluate(self, act: Act, episodes: int) -> list[EpisodeRecord]:
        """Play episodes that judge the student, always from the same starts."""

    def close(self) -> None:
        """Release resources."""


class Evaluations:
    """Episodes of a student in one task, which always begin at the same starts.

    Args:
        name: the stage or the board.
        student: metadata of the student; see `describe_student`.
        threads: threads that step the lanes.
        options: of the lanes; see `Distiller`.
        epsilon: probability of a random action; otherwise the student plays greedily.
    """

    def __init__(
        self,
        name: str,
        student: Mapping[str, Any],
        *,
        threads: int,
        options: Mapping[str, Any] = {},
        epsilon: float = CONDITIONS.epsilon,
    ) -> None:
        self._name, self._student, self._threads, self._epsilon = name, student, threads, epsilon
        self._options = {**options, "noop_max": CONDITIONS.noop_max}
        self._lanes: Lanes | None = None

    def play(self, act: Act, episodes: int) -> list[EpisodeRecord]:
        if self._lanes is None:
            self._lanes = task_lanes(
                self._name, self._student, episodes, seed=_EVALUATION_SEED, threads=self._threads, restart=False,
                **self._options,
            )  # fmt: skip
            self._lanes.spread_starts()
        self._lanes.rewind()
        return play_episodes(self._lanes, act, episodes, epsilon=self._epsilon)

    def close(self) -> None:
        if self._lanes is not None:
            self._lanes.close()


class TaughtTask:
    """A stage or a board, and the policy that teaches it.

    Args:
        name: the stage or the board.
        teacher: labels the states.
        student: metadata of the student; see `describe_student`.
        evaluations: plays the student's episodes.
        lanes: games that are played at once.
        capacity: environment steps that the replay holds.
        seed: seed of the games and of exploration.
        threads: threads that step the lanes.
        options: of the lanes; see `Distiller`.
    """

    replay_ratio = REPLAY_RATIO

    def __init__(
        self,
        name: str,
        teacher: Teacher,
        student: Mapping[str, Any],
        evaluations: Evaluations,
        *,
        lanes: int,
        capacity: int,
        seed: int,
        threads: int,
        options: Mapping[str, Any],
    ) -> None:
        self.name, self.teacher, self._evaluations = name, teacher, evaluations
        env = task_lanes(
            name, student, lanes, seed=seed, threads=threads, restart=True,
            **options,
        )  # fmt: skip
        self.replay = LabelledReplay(env.lanes, capacity // env.lanes, env.spec)
        self._actor = Actor(env, ladder=epsilon_ladder(env.lanes, _EPSILON), epsilon_steps=1, seed=seed)
        self._labels = torch.empty(0)
        self._acted: tuple[Frames, NDArray[np.int64]]
        self._pending: Future[VectorStep]

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

    def finish(self) -> None:
        """Wait for the step; store it with the teacher's Q-values."""
        step, _ = self._actor.finish(self._pending)
        self.replay.append(step.played(*self._acted, None), self._labels.numpy())

    def evaluate(self, act: Act, episodes: int) -> list[EpisodeRecord]:
        return self._evaluations.play(act, episodes)

    def close(self) -> None:
        self._actor.close()
        self._evaluations.close()


def task_lanes(
    name: str,
    student: Mapping[str, Any],
    lanes: int,
    *,
    seed: int,
    threads: int,
    restart: bool,
    noop_max: int = CONDITIONS.noop_max,
    **options: Any,
) -> Lanes:
    """Lanes of a stage or a board that show what the student sees."""
    task, conditions = {**student, game_of(student["game"]).tasks: name}, Conditions(noop_max=noop_max)
    return lanes_of_policy(task, lanes, threads=threads, seed=seed, conditions=conditions, restart=restart, **options)


class SearchedTask(Task, Protocol):
    """A task whose expert is a search."""

    def prepare(
        self, *, stopped: Callable[[], bool], late: Callable[[], bool], on_progress: Callable[[str], object]
    ) -> None:
        """Search before the first step, until it is `stopped`. `on_progress` is told how far the search is. Raises
        `UserError` if it finds nothing, or not before it is `late`."""


class Search(Protocol):
    """Teaches tasks of a student."""

    def task(self, name: str, *, lanes: int, capacity: int, seed: int, evaluations: Evaluations) -> SearchedTask:
        """One of `engine.extras.distillation.contract.Distillation.searched`.

        Args:
            name: the task.
            lanes: games that are played at once.
            capacity: environment steps that the replay holds.
            seed: seed of the games and of exploration.
            evaluations: plays the student's episodes.
        """

    def close(self) -> None:
        """Release resources."""
