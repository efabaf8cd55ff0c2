"""The loop of a distillation: act, label, learn, and now and then evaluate the student and keep the best.

The student acts and its teachers label what it sees, so it learns what to do in the states to which its own mistakes
lead (DAgger, Ross et al. 2011, arXiv:1011.0686). At the beginning the teachers act.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from engine.agents.networks import make_network
from engine.config.game import game_of
from engine.envs.lanes import Frames
from engine.errors import UserError
from engine.evaluation.policy import Act, greedy_act, score_of
from engine.extras.distillation.contract import Searchable, adapter_of, distillation_of
from engine.extras.distillation.student import Student
from engine.extras.distillation.tasks import CONDITIONS, Evaluations, Search, SearchedTask, Task, TaughtTask
from engine.extras.distillation.teachers import SearchTeacher, Teacher
from engine.protocol.results import DistillationProgress, StudentEvaluation
from engine.runtime.threads import has_native_bf16, thread_budget

BATCH_SIZE = 128
LEARNING_RATE = 5e-4
_CAPACITY, _TASK_CAPACITY = 100_000, 10_000
"""Environment steps that all replays hold, 300 MB of Mario's frames, but at least those of each task."""
_LED_STEPS = 1_500
"""Environment steps of each lane over which the student takes over from the teachers, lane by lane."""
_REPORT_EVERY_S = 0.5


class _Stopped(Exception):
    """An evaluation is abandoned."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to learn, and how often to evaluate."""

    steps: int
    seconds: float  # infinity for no limit
    eval_every: int  # environment steps
    eval_episodes: int  # of each task


class Distiller:
    """Teaches a student.

    Args:
        teachers: from `load_teachers`.
        student: metadata of the student; see `describe_student`.
        seed: seed of all random decisions.
        threads: threads that step the lanes of a task. Learning and searching use all cores.
        options: those of the game's `Distillation.options` that are for lanes.
        eval_epsilon: probability of a random action in evaluations.
    """

    def __init__(
        self,
        teachers: Sequence[Teacher | SearchTeacher],
        student: dict[str, Any],
        *,
        seed: int,
        threads: int,
        options: Mapping[str, Any] = {},
        eval_epsilon: float = CONDITIONS.epsilon,
    ) -> None:
        torch.manual_seed(seed)
        shape = tuple(student["frame_shape"])
        game = game_of(student["game"])
        self.outcome = game.outcome
        network = make_network(student["network"], student["stack"], shape, student["outputs"], own=game.own_networks)
        learn_threads = thread_budget(1, BATCH_SIZE).learn_threads
        self.student = Student(
            network,
            learning_rate=LEARNING_RATE,
            threads=learn_threads,
            precision="bfloat16" if has_native_bf16() else "float32",
        )
        self._threads, self._options, self._eval_epsilon = threads, options, eval_epsilon
        self._search: Search | None = None
        if any(isinstance(teacher, SearchTeacher) for teacher in teachers):
            searcher = adapter_of(game.name)
            assert isinstance(searcher, Searchable)
            self._search = searcher.make_search(student, seed=seed, threads=threads, **options)
        self._searched: list[SearchedTask] = []
        pairs = [(task, teacher) for teacher in teachers for task in teacher.tasks]
        capacity = max(_CAPACITY // len(pairs), _TASK_CAPACITY)
        self.tasks: list[Task] = [
            self._task(task, teacher, student, capacity=capacity, seed=(seed + index) % 2**32)
            for index, (task, teacher) in enumerate(pairs)
        ]
        self.env_steps = 0
        self._random = np.random.default_rng(seed)
        self._lanes = sum(task.lanes for task in self.tasks)
        self._samples_per_step = np.array([task.replay_ratio * task.lanes for task in self.tasks])
        self._credit = 0.0
        self._loss, self._agreement = 0.0, 0.0
        self._searching = ""
        self._started = time.monotonic()

    def _task(
        self, name: str, teacher: Teacher | SearchTeacher, student: dict[str, Any], *, capacity: int, seed: int
    ) -> Task:
        evaluations = Evaluations(
            name, student, threads=self._threads, options=self._options, epsilon=self._eval_epsilon
        )
        lanes = distillation_of(student["game"]).lanes
        if isinstance(teacher, Teacher):
            return TaughtTask(
                name, teacher, student, evaluations, lanes=lanes, capacity=capacity, seed=seed, threads=self._threads,
                options=self._options,
            )  # fmt: skip
        assert self._search is not None
        task = self._search.task(name, lanes=lanes, capacity=capacity, seed=seed, evaluations=evaluations)
        self._searched.append(task)
        return task

    def learn(
        self,
        budget: Budget,
        stopped: Callable[[], bool],
        on_progress: Callable[[DistillationProgress], None],
        on_evaluation: Callable[[StudentEvaluation], None],
    ) -> None:
        """Learn until the budget is used up or `stopped`. Each evaluation that is the best so far says so; the
        student's average is then what was evaluated. The last evaluation follows the last step.

        Searches get half of the seconds, and then use what is best so far. Raises `UserError` if one finds nothing.
        """

        def act(obs: Frames, masks: NDArray[np.bool_] | None) -> NDArray[np.int64]:
            if stopped():
                raise _Stopped
            return greedy(obs, masks)

        def after(seconds: float) -> Callable[[], bool]:
            return lambda: self.seconds >= seconds

        def show_search(text: str) -> None:
            self._searching = text
            on_progress(self.progress())

        greedy = greedy_act(self.student.average)
        for number, task in enumerate(self._searched, 1):
            late = after(budget.seconds / 2 * number / len(self._searched))
            task.prepare(stopped=stopped, late=late, on_progress=show_search)
        self._searching = ""
        best: tuple[float, ...] = ()
        next_report = 0.0
        evaluate_at = budget.eval_every
        while not stopped():
            self.student.set_learning_rate(LEARNING_RATE * max(0.0, 1 - self.env_steps / budget.steps))
            self.step()
            over = self.env_steps >= budget.steps or self.seconds >= budget.seconds
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + _REPORT_EVERY_S
                on_progress(self.progress())
            if over or self.env_steps >= evaluate_at:
                evaluate_at += budget.eval_every
                try:
                    evaluation, score = self._evaluate(act, budget.eval_episodes, best)
                except _Stopped:
                    return
                best = max(best, score)
                on_evaluation(evaluation)
            if over:
                return

    def step(self) -> None:
        """One environment step of all lanes, and the updates that are due, while they emulate."""
        led = max(0.0, 1 - self.env_steps / (_LED_STEPS * self._lanes))
        agreement = np.mean([task.begin(self.student, round(led * task.lanes)) for task in self.tasks])
        self._agreement += 0.02 * (float(agreement) - self._agreement)
        while self._credit >= BATCH_SIZE:
            self._credit -= BATCH_SIZE
            fit = self.student.update(*self._sample())
            if not math.isfinite(fit.loss):
                raise UserError(f"the loss is {fit.loss} at update {self.student.updates:,}: Q-values are too large")
            self._loss += (fit.loss - self._loss) / min(self.student.updates, 100)
        for task in self.tasks:
            task.finish()
        self.env_steps += self._lanes
        if all(task.replay.size > BATCH_SIZE for task in self.tasks):
            self._credit += float(self._samples_per_step.sum())

    def _sample(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Observations [batch, stack, *frame_shape] and labels [batch, actions] of tasks that are drawn in the ratio of
        what each has to learn."""
        counts = self._random.multinomial(BATCH_SIZE, self._samples_per_step / self._samples_per_step.sum())
        drawn = [
            task.replay.sample(int(count), self._random)
            for task, count in zip(self.tasks, counts, strict=True)
            if count
        ]
        return np.concatenate([obs for obs, _ in drawn]), np.concatenate([labels for _, labels in drawn])

    def _evaluate(
        self, act: Act, episodes: int, best: tuple[float, ...]
    ) -> tuple[StudentEvaluation, tuple[float, ...]]:
        """Play episodes of every task with the student's average (`act`). Returns also the score to compare."""
        tasks = [score_of(task.name, self.outcome, task.evaluate(act, episodes)) for task in self.tasks]
        clear_rate = sum(task.clears for task in tasks) / (episodes * len(tasks))
        mean_return = sum(task.mean_return for task in tasks) / len(tasks)
        score = clear_rate, mean_return
        evaluation = StudentEvaluation(
            env_steps=self.env_steps,
            updates=self.student.updates,
            seconds=self.seconds,
            agreement=self._agreement,
            clear_rate=clear_rate,
            mean_return=mean_return,
            results={name: sum(task.results[name] for task in tasks) / len(tasks) for name in tasks[0].results},
            tasks=tasks,
            best=score > best,
        )
        return evaluation, score

    def progress(self) -> DistillationProgress:
        """Return where it is now. Loss and agreement are moving averages."""
        return DistillationProgress(
            env_steps=self.env_steps,
            updates=self.student.updates,
            seconds=self.seconds,
            loss=self._loss,
            agreement=self._agreement,
            searching=self._searching,
        )

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._started

    def close(self) -> None:
        self.student.close()
        for task in self.tasks:
            task.close()
        if self._search is not None:
            self._search.close()
