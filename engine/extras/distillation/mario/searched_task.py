"""A stage of Mario without a teacher: a search in the emulator labels what the student sees.

At first the lanes follow a way to the flag that the search has found. Then the student takes over. When Mario dies or
gets stuck, the lane goes back to a state in which he still could be saved, and a continuation is searched from there;
its actions are the labels of its states (DAgger, Ross et al. 2011, with an expert that is asked only after mistakes).
An action of the student that led to no mistake for a while is its own label. States are stored when they are too old
to be taken back, so the replay holds games without mistakes.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config.run_config import RunConfig
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import describe_task
from engine.envs.lanes import FrameStack, PlayedStep, VectorStep
from engine.errors import UserError
from engine.evaluation.policy import Act, play_episodes
from engine.extras.distillation.mario.plan_search import PLANS, STUCK_STEPS, PlanSearch, Way
from engine.extras.distillation.mario.ways import way_to_flag
from engine.extras.distillation.student import LabelledReplay, Student
from engine.extras.distillation.tasks import Evaluations
from engine.games.mario import rules
from engine.games.mario.actions import HOLD, STACK
from engine.games.mario.factory import make_task, task_of_policy
from engine.games.mario.lanes import LaneState, MarioLanes
from engine.games.mario.options import MarioOptions
from engine.games.mario.task import MarioTask
from engine.protocol.outcome import Conditions
from engine.runtime.threads import thread_budget

REPLAY_RATIO = 24.0
"""States learned per environment step. Steps are dear here, because of the search."""
_MARGIN = 0.5
"""By how much the Q-value of the action to learn exceeds that of the others. At the loss's temperature, softmax gives
it 97 %."""
_BACK = (24, 48, 96)
"""Environment steps that a lane goes back after a death, if the search does not succeed with fewer. A jump that was
missed began 10 to 20 steps before."""
_BACK_STUCK = (STUCK_STEPS + 8, 96)
_OLDEST = 96
"""Environment steps after which a state is stored; it can't be taken back then. Later rewards hardly count for its
value."""
_AHEAD = 24
"""Environment steps that Mario must survive after the place of a mistake. The student takes over half-way."""
_LEAST_GAIN = 40
"""Pixels that must be gained where Mario was stuck."""
_SET_FREE, _GETS_ON = (8, 12, 16), 16
"""Environment steps within which Mario must get away from where he is stuck, and the pixels that he must gain. At most
`STUCK_STEPS // 2`, so that the plan differs from what was done in the meantime."""
_CLOSE = 6
"""If the last random action is less than so many environment steps ago, the mistake was its, not the student's."""
_EPSILON = 0.05
"""Share of random actions in the most exploratory lane."""
_HARD = 0.75
"""Share of the student's games that begin where it failed when it last played from each start. Otherwise these starts
are played too rarely to be learned."""


@dataclass
class _Moment:
    """A state of a lane, what was done in it, and what is to be learned."""

    obs: NDArray[np.uint8]  # [stack, height, width]
    state: LaneState
    gained: float  # pixels since the episode's beginning
    action: int
    label: int
    """The action to learn."""
    random: bool
    reward: float = 0.0
    """Of the action."""


@dataclass
class _Lane:
    """The game in a lane, as far as it can be taken back."""

    led: bool
    """Whether the search acts in this episode, not the student."""
    plan: deque[int]
    """Actions to follow."""
    moments: list[_Moment] = field(default_factory=list)
    gained: float = 0.0
    held: int = 0
    hold_left: int = 0
    calm: int = 0
    """Environment steps without random actions, so that the student shows what it would have done."""


def described(stage: str, seen: Mapping[str, Any], *, actions: str = MarioOptions.actions) -> dict[str, Any]:
    """The metadata of a search as the teacher of a stage, with these actions. `seen`: how it sees and swims, where that
    differs from most policies of the package."""
    config = RunConfig.of(game="mario", stage=stage, actions=actions, **{"observation": "50x60", **seen})
    task = make_task(config)
    shapes = {"stack": STACK, "frame_shape": list(task.view.shape), "outputs": len(task.action_names)}
    return describe_task(config) | shapes


class StageSearch:
    """Teaches stages of a student; see `engine.extras.distillation.tasks`.

    Args:
        student: its metadata.
        seed: seed of the search.
        threads: threads that step the lanes of a task.
        noop_max: maximum number of no-op frames at which training episodes begin.
        rom: cartridge file; None for the one in gym-super-mario-bros.
    """

    def __init__(
        self,
        student: Mapping[str, Any],
        *,
        seed: int,
        threads: int,
        noop_max: int = MarioOptions.noop_max,
        rom: str | None = None,
    ) -> None:
        self._student, self._noop_max, self._threads = student, noop_max, threads
        self._seed, self._rom = seed, None if rom is None else Path(rom)
        self._search: PlanSearch | None = None

    def task(self, name: str, *, lanes: int, capacity: int, seed: int, evaluations: Evaluations) -> SearchedTask:
        task = task_of_policy(self._student, stage=name, conditions=Conditions(noop_max=self._noop_max))
        if self._search is None:
            threads = thread_budget(PLANS).lane_threads
            self._search = PlanSearch(task, seed=self._seed, threads=threads, rom=self._rom)
        return SearchedTask(
            name,
            task,
            self._search,
            lanes=lanes,
            capacity=capacity,
            seed=seed,
            threads=self._threads,
            rom=self._rom,
            evaluations=evaluations,
        )

    def close(self) -> None:
        if self._search is not None:
            self._search.close()


class SearchedTask:
    """A stage whose expert is a search; see `engine.extras.distillation.tasks`.

    Args:
        name: the stage.
        task: actions, frame skip and view.
        search: finds ways and continuations; several tasks may share it.
        lanes: games that are played at once.
        capacity: environment steps that the replay holds.
        seed: seed of the games and of exploration.
        threads: threads that step the lanes.
        rom: cartridge file; None for the one in gym-super-mario-bros.
        evaluations: plays the student's episodes.
    """

    replay_ratio = REPLAY_RATIO

    def __init__(
        self,
        name: str,
        task: MarioTask,
        search: PlanSearch,
        *,
        lanes: int,
        capacity: int,
        seed: int,
        threads: int,
        rom: Path | None,
        evaluations: Evaluations,
    ) -> None:
        self.name, self.lanes = name, lanes
        self.mistakes = 0
        self._search, self._evaluations = search, evaluations
        self._training, self._rom = dataclasses.replace(task, stall_steps=STUCK_STEPS, ends_at_loops=True), rom
        self._env = MarioLanes(self._training, lanes, threads=threads, seed=seed, rom=rom)
        self.replay = LabelledReplay(lanes, capacity // lanes, self._env.spec)
        self._random = np.random.default_rng(seed)
        self._epsilons = np.linspace(0, _EPSILON, lanes)
        self._discounts = RunConfig().gamma ** np.arange(_OLDEST + 1)
        self._stack = FrameStack(self._env.reset(), self._env.spec.stack)
        self._thread = ThreadPoolExecutor(1, "searched")
        self._every_start = MarioLanes(self._training, self._training.starts, threads=threads, restart=False, rom=rom)
        self._every_start.spread_starts()
        obs = FrameStack(self._every_start.reset(), self._env.spec.stack).obs
        self._starts = [(self._every_start.lane_state(lane), obs[lane]) for lane in range(len(obs))]
        self._hard: list[int] = []
        """Starts from which the student failed."""
        self._way: Way
        self._lanes: list[_Lane] = []
        self._led = lanes
        self._pending: Future[VectorStep]

    def prepare(
        self, *, stopped: Callable[[], bool], late: Callable[[], bool], on_progress: Callable[[str], object]
    ) -> None:
        """Search a way to the flag, if none is in the user's cache."""

        def ended() -> bool:
            return stopped() or late()

        self._search.on_progress = lambda text: on_progress(f"{self.name}: {text}")
        try:
            way = way_to_flag(self.name, self._training, self._search, rom=self._rom, stopped=ended)
        except UserError as error:
            raise UserError(f"{error}; a policy can be the teacher instead") from None
        if way is not None:
            self._follow(way)
        elif not stopped():
            raise UserError(f"{self.name}: no way to the flag was found within half of --minutes")

    def _follow(self, way: Way) -> None:
        """Begin with a way."""
        self._way = way
        self._lanes = [self._new_game(lane) for lane in range(self.lanes)]

    def begin(self, student: Student, led: int) -> float:
        """Begin a step in the background. Episodes that begin in the first `led` lanes follow the search, those in half
        of the lanes always: the replay must not forget the way.

        Returns the share of lanes in which the student prefers the action that is carried out.
        """
        self._led = max(led, self.lanes // 2)
        obs = self._stack.obs
        q_values = student.q_values(obs).numpy()
        greedy = q_values.argmax(1)
        actions = np.array([self._choose(lane, obs[lane], q_values[lane]) for lane in range(self.lanes)])
        self._pending = self._thread.submit(self._env.step, actions)
        return float((greedy == actions).mean())

    def finish(self) -> None:
        """Wait for the step; store what is old enough, and search where Mario died or got stuck."""
        step = self._pending.result()
        self._stack.push(step.frames, step.terminated | step.truncated)
        for number, lane in enumerate(self._lanes):
            lane.gained += float(self._env.book[number, rules.STEP_PROGRESS])
            lane.moments[-1].reward = float(step.rewards[number])
            if step.success[number]:
                while lane.moments:
                    self._store(number, lane)
                self._lanes[number] = self._new_game(number)
            elif step.terminated[number] or step.truncated[number]:
                self.mistakes += 1
                if not self._mend(number, stalled=bool(step.truncated[number])):
                    self.replay.end_episode(number)
                    self._lanes[number] = self._new_game(number)
            elif len(lane.moments) > _OLDEST:
                self._store(number, lane)

    def evaluate(self, act: Act, episodes: int) -> list[EpisodeRecord]:
        """Play greedy episodes, always from the same starts. Plays also from each start of training episodes, to find
        those from which the student fails."""
        self._every_start.rewind()
        from_each = play_episodes(self._every_start, act, self._every_start.lanes)
        self._hard = [episode.lane for episode in from_each if not episode.success]
        return self._evaluations.play(act, episodes)

    def close(self) -> None:
        self._thread.shutdown()
        self._env.close()
        self._every_start.close()
        self._evaluations.close()

    def _new_game(self, lane: int) -> _Lane:
        led = lane < self._led
        hard = self._hard and not led and self._random.random() < _HARD
        start = self._random.choice(self._hard if hard else len(self._starts))
        state, self._stack.obs[lane] = self._starts[start]
        self._env.load_lane(lane, state)
        return _Lane(led, deque(self._way.actions.tolist() if led else ()))

    def _choose(self, number: int, obs: NDArray[np.uint8], q_values: NDArray[np.float32]) -> int:
        """The next action in a lane, which is remembered with its label: that action, or what the way does at this
        place if the action is random."""
        lane = self._lanes[number]
        random = False
        if lane.led and not lane.plan:
            lane.plan.extend(self._rest_of_way(number))
        if lane.plan:
            action = lane.plan.popleft()
        elif random := self._explores(lane, float(self._epsilons[number])):
            action = lane.held
        else:
            action = int(q_values.argmax())
        lane.calm = max(0, lane.calm - 1)
        label = self._rest_of_way(number)[0] if random else action
        lane.moments.append(_Moment(obs, self._env.lane_state(number), lane.gained, action, label, random))
        return action

    def _explores(self, lane: _Lane, epsilon: float) -> bool:
        """Return whether the lane's next action is random: its `held`."""
        if lane.calm:
            lane.hold_left = 0
        elif lane.hold_left:
            lane.hold_left -= 1
        elif self._random.random() < epsilon * 2 / HOLD:
            lane.held = int(self._random.integers(self._env.actions))
            lane.hold_left = int(self._random.integers(1, HOLD + 1))
        return lane.hold_left > 0

    def _rest_of_way(self, lane: int) -> list[int]:
        """Return what the way does from where Mario is."""
        _, area, x = (int(each[lane]) for each in rules.where(self._env.emulator.ram))
        at = self._way.step_at(area, x)
        rest: list[int] = self._way.actions[at or 0 :].tolist()
        return rest

    def _mend(self, number: int, *, stalled: bool) -> bool:
        """Go back to before a mistake and plan what to do instead. Returns whether that was possible."""
        lane = self._lanes[number]
        moments, gained = lane.moments, lane.moments[-1].gained
        calm_from = 1 + max((at for at, moment in enumerate(moments) if moment.random), default=-1)
        if calm_from and len(moments) - calm_from < _CLOSE:
            return self._go_back_before_random(number, calm_from)
        if stalled and calm_from <= len(moments) - STUCK_STEPS and self._set_free(number):
            return True
        for back in _BACK_STUCK if stalled else _BACK:
            at = max(len(moments) - back, calm_from)
            steps = (STUCK_STEPS if stalled else len(moments) - at) + _AHEAD
            at_least = gained - moments[at].gained + (_LEAST_GAIN if stalled else 0)
            plan = self._search.continuation(moments[at].state, self._way, steps, at_least)
            if plan is not None:
                self._go_back(number, at)
                lane.plan.extend((plan if lane.led else plan[: steps - _AHEAD // 2]).tolist())
                return True
            if at == calm_from:
                break
        return calm_from > 0 and self._go_back_before_random(number, calm_from)

    def _set_free(self, number: int) -> bool:
        """Plan how Mario gets on from where he is stuck, as quickly as possible, and label all moments since he got
        stuck with the first action that makes a difference. He will get stuck there again, and a student that never saw
        what to do then would stay. Returns whether that was possible."""
        lane = self._lanes[number]
        stuck, waited = lane.moments[-STUCK_STEPS:], STUCK_STEPS // 2
        for steps in _SET_FREE:
            plan = self._search.continuation(stuck[waited].state, self._way, steps, _GETS_ON)
            if plan is not None:
                break
        else:
            return False
        same = 0  # actions of the plan that were carried out anyway; with all of them Mario would not be stuck
        while plan[same] == stuck[waited + same].action:
            same += 1
        for moment in stuck[: waited + same]:
            moment.label = int(plan[same])
        self._go_back(number, len(lane.moments) - len(stuck) + waited + same)
        lane.plan.extend(plan[same:steps].tolist())
        return True

    def _go_back_before_random(self, number: int, calm_from: int) -> bool:
        """Go back to before the random actions that ended before moment `calm_from`."""
        lane = self._lanes[number]
        at, steps = calm_from - 1, len(lane.moments)
        while at > 0 and lane.moments[at - 1].random:
            at -= 1
        self._go_back(number, at)
        lane.calm = steps - at + _AHEAD
        return True

    def _go_back(self, number: int, at: int) -> None:
        """Continue a lane from one of its moments; forget what followed."""
        lane = self._lanes[number]
        moment = lane.moments[at]
        self._env.load_lane(number, moment.state)
        self._stack.obs[number] = moment.obs
        lane.gained, lane.hold_left = moment.gained, 0
        lane.plan.clear()
        del lane.moments[at:]

    def _store(self, number: int, lane: _Lane) -> None:
        """Move the oldest moment of a lane to the replay, with the return from there on as its value. The last one that
        is left is the last of its episode."""
        rewards = np.array([moment.reward for moment in lane.moments])
        moment = lane.moments.pop(0)
        q_values = np.full(self._env.actions, rewards @ self._discounts[: rewards.size] - _MARGIN, np.float32)
        q_values[moment.label] += _MARGIN
        step = PlayedStep(
            frames=moment.obs[None, -1],
            actions=np.array([moment.action]),
            rewards=np.zeros(1, np.float32),
            terminated=np.array([not lane.moments]),
            truncated=np.zeros(1, np.bool_),
            final_frames=moment.obs[None, -1],
        )
        self.replay.append_to(number, step, q_values)
