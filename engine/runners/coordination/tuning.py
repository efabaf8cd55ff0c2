"""Changes of a run while it runs: settings by the user or the schedule of the learning rate, and the curriculum, which
the coordinator advances and the members follow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.config.capabilities import HasCurriculum
from engine.config.game import options_with
from engine.config.run_config import TUNABLE_BOUNDS, RunConfig
from engine.envs.lanes import Curriculum, curriculum_report
from engine.protocol import messages
from engine.protocol.commands import Set, Tunable
from engine.protocol.messages import Changed, Phase
from engine.runners.coordination.stats import Counters
from engine.runners.learning.checkpoint import refused
from engine.runners.learning.learner import CUT, Learner, Score, make_schedule
from engine.runners.links import ParentLink
from engine.runners.shared_state import SharedState
from engine.runners.start import changed, unchanged
from engine.runs.checkpoint_state import Extra, read_state

_KEPT: dict[Tunable, tuple[str, ...]] = {
    "learning_rate": ("learning_rate",),
    "epsilon_scale": ("epsilon",),
    "replay_ratio": ("replay_ratio",),
    "gamma": ("gamma",),
}
"""Settings changed while running that a resumed run keeps, with the options that override each. Beta is not among them:
it anneals, and the replay restores it."""
_SET_BY_SCHEDULE = ("learning_rate", "gamma")
"""Those that another task overrides as well, because a schedule may have set them for the task."""


class Tuning:
    """The settings of a run's processes. Members read them in `shared_state`."""

    def __init__(
        self, config: RunConfig, link: ParentLink, learner: Learner, shared_state: SharedState, counters: Counters
    ) -> None:
        self._config, self._link, self._learner = config, link, learner
        self._shared_state, self._counters = shared_state, counters
        self._schedule = make_schedule(config.learning_rate_schedule, config.learning_rate)

    def resume(self, checkpoint: Path, extra: Extra, *, same_task: bool) -> None:
        """Change settings again as they were at a checkpoint, unless an option or another task overrides that."""
        config, kept = self._config, set[Tunable]()
        for name, value in extra.tuned.items():
            may_keep = same_task or name not in _SET_BY_SCHEDULE
            if name == "gamma" and config.keeps_gamma:  # an earlier version let it change
                may_keep = False
            if may_keep and unchanged(config, checkpoint, *_KEPT[name]):
                kept.add(name)
                self._tune(name, value)
            else:  # so that the run's history does not suggest that the old value still holds
                self._report(name, before=value, now=self._values[name])
        before = changed(config, checkpoint, "gamma", "final_gamma", "learning_rate")
        set_by_user = "gamma" in kept and self._values["gamma"] != before.get("final_gamma", config.final_gamma)
        if before and not set_by_user and config.learning_rate_schedule != "constant":
            self._follow_rate()
        begin = 0 if same_task else self._counters.env_steps
        self._schedule = make_schedule(config.learning_rate_schedule, config.learning_rate, begin)
        if self._schedule is None or not unchanged(config, checkpoint, "learning_rate_schedule"):
            return
        if extra.schedule is None:  # the user had set the learning rate
            if "learning_rate" in kept:
                self._schedule = None
            return
        if unchanged(config, checkpoint, *schedule_options(config)):
            with refused("schedule"):
                self._schedule.load_state(msgspec.to_builtins(extra.schedule))

    def state(self) -> dict[str, Any]:
        """The fields `tuned` and `schedule` of a checkpoint."""
        return {
            "tuned": {name: value for name in _KEPT if (value := self._shared_state.tuned(name)) is not None},
            "schedule": None if self._schedule is None else self._schedule.state(),
        }

    def set(self, wanted: Set) -> None:
        """Do what the user wants, or say why not."""
        low, high = TUNABLE_BOUNDS[wanted.name]
        if not low <= wanted.value <= high:
            self._link.log(f"{wanted.name}: must be between {low:g} and {high:g}, got {wanted.value:g}", "warning")
            return
        if wanted.name == "beta" and not self._config.prioritized_replay:
            self._link.log("beta: has no effect on uniform replay; needs --prioritized-replay", "warning")
            return
        if wanted.name == "gamma" and self._config.keeps_gamma:
            self._link.log("gamma: can't change with --curriculum, whose rewards contain it", "warning")
            return
        if wanted.name == "learning_rate":
            self._schedule = None  # the user's own value holds
        self._change(wanted.name, wanted.value)

    def follow_schedule(self, score: Score) -> None:
        """Set what the schedule of the learning rate says after an evaluation with `score`."""
        if self._schedule is None:
            return
        config, before = self._config, self._learner.agent.learning_rate
        after = self._schedule.after(score, before, self._counters.env_steps)
        if after != before:
            self._change("learning_rate", after)
        set_by_user = self._values["gamma"] != config.gamma
        if after <= CUT * config.learning_rate < before and not set_by_user:
            self._follow_rate()

    def _follow_rate(self) -> None:
        """Set the discount factor that belongs to the learning rate, if the run has a final one."""
        config = self._config
        is_low = self._learner.agent.learning_rate <= CUT * config.learning_rate
        wanted = config.final_gamma if is_low else config.gamma
        if config.final_gamma is not None and wanted is not None and wanted != self._values["gamma"]:
            self._change("gamma", wanted)

    @property
    def _values(self) -> dict[str, float]:
        """The current value of each setting."""
        epsilon_scale = self._shared_state.tuned("epsilon_scale")
        return {"epsilon_scale": 1.0 if epsilon_scale is None else epsilon_scale, **self._learner.settings.values}

    def _change(self, name: Tunable, value: float) -> None:
        """Change a setting in all processes, and report it."""
        agent = self._learner.agent
        before, gap_before = self._values[name], agent.advantage_learning
        self._tune(name, value)
        self._report(name, before=before, now=value)
        if agent.advantage_learning != gap_before:
            self._link.log(f"advantage learning goes from {gap_before:g} to {agent.advantage_learning:g}")

    def _tune(self, name: Tunable, value: float) -> None:
        self._shared_state.tune(name, value)
        self._learner.settings.follow(self._shared_state)

    def _report(self, name: Tunable, *, before: float, now: float) -> None:
        self._link.send(Changed(name=name, value=now, before=before, env_steps=self._counters.env_steps))


def schedule_options(config: RunConfig) -> tuple[str, ...]:
    """Options with which the schedule of the learning rate starts anew if they have changed."""
    if config.learning_rate_schedule == "decay":  # which does not look at scores
        return config.task_options
    return (*config.task_options, "learning_rate", "eval_episodes", *options_with("evaluation", config.game))


class RunCurriculum:
    """Advances `curriculum`, publishes its level, and tells when a new phase begins.

    `ladder`: final epsilon of each lane of all members. The quarter of the lanes that explores least is judged.
    """

    def __init__(
        self, curriculum: Curriculum, ladder: NDArray[np.float64], link: ParentLink, shared_state: SharedState
    ) -> None:
        self._curriculum, self._link, self._shared_state = curriculum, link, shared_state
        self._phase = int(curriculum.level)
        self._judged = ladder <= np.sort(ladder)[max(1, ladder.size // 4) - 1]

    def record_episode(self, place: int, task: str, success: bool) -> None:
        """Count an episode of the lane at `place` among all members' lanes."""
        if self._judged[place]:
            self._curriculum.record_episode(task, success)

    def advance(self, env_steps: int) -> None:
        """Advance to what the run has reached after `env_steps` environment steps."""
        curriculum = self._curriculum
        curriculum.advance(env_steps)
        self._shared_state.publish_level(curriculum.level)
        names = curriculum.phases
        while self._phase < int(curriculum.level):
            self._phase += 1
            self._link.send(
                Phase(env_steps=env_steps, phase=self._phase + 1, phases=len(names), name=names[self._phase])
            )

    def report(self) -> messages.Curriculum:
        return curriculum_report(self._curriculum)

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return self._curriculum.state()


def curriculum_at(config: RunConfig, extra: Extra) -> Curriculum | None:
    """The run's curriculum with the state from a checkpoint's `extra`; a new one if that has none."""
    env_steps = extra.counters.env_steps
    game = config.game_info
    curriculum = game.make_curriculum(config, env_steps) if isinstance(game, HasCurriculum) else None
    if curriculum is not None and extra.curriculum is not None:
        with refused("curriculum"):
            curriculum.load_state(msgspec.to_builtins(extra.curriculum))
    if curriculum is not None:
        curriculum.advance(env_steps)
    return curriculum


def curriculum_level_at(config: RunConfig, checkpoint: Path | None) -> float:
    """The level of the run's curriculum at a checkpoint; 0 without a curriculum or a checkpoint."""
    curriculum = curriculum_at(config, Extra() if checkpoint is None else read_state(checkpoint).extra)
    return 0.0 if curriculum is None else curriculum.level
