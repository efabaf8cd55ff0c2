"""Options that were given and change nothing, because of what the other options are."""

from __future__ import annotations

from collections.abc import Callable, Collection

from engine.config.fields import flag
from engine.config.run_config import RunConfig

_Condition = tuple[Callable[[RunConfig], bool], str]
"""Whether an option has an effect, and what it needs for one."""
_PRIORITIES: _Condition = (lambda config: config.prioritized_replay, "--prioritized-replay")
_CURRICULUM: _Condition = (lambda config: bool(config.value("curriculum")), "--curriculum")
_EVALUATIONS: _Condition = (lambda config: config.eval_every > 0, "--eval-every above 0")
_LOWER_RATE: _Condition = (
    lambda config: config.learning_rate_schedule != "constant",
    "--learning-rate-schedule plateau or decay",
)
_ADVANTAGE: _Condition = (lambda config: config.advantage_learning > 0, "--advantage-learning above 0")
_NEEDS: dict[str, tuple[_Condition, ...]] = {
    "alpha": (_PRIORITIES,),
    "beta": (_PRIORITIES,),
    "beta_annealing": (_PRIORITIES,),
    "curriculum_rate": (_CURRICULUM,),
    "curriculum_episodes": (_CURRICULUM,),
    "curriculum_steps": (_CURRICULUM,),
    "final_gamma": (_LOWER_RATE, _EVALUATIONS),
    "final_advantage_learning": (_LOWER_RATE, _EVALUATIONS, _ADVANTAGE),
    "learning_rate_schedule": (_EVALUATIONS,),
}
_OFF = {"final_gamma": None, "final_advantage_learning": None, "learning_rate_schedule": "constant"}
"""Values with which an option asks for nothing."""


def without_effect(given: Collection[str], config: RunConfig) -> list[str]:
    """A line for each of the given options that has no effect: `--alpha has no effect without --prioritized-replay`."""
    return [
        f"{flag(name)} has no effect without {' and '.join(missing)}"
        for name in given
        if not (name in _OFF and config.value(name) == _OFF[name])
        and (missing := [need for holds, need in _NEEDS.get(name, ()) if not holds(config)])
    ]
