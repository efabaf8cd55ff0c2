"""The numbers of a run's progress, and the table that says where each is shown.

Charts of the dashboard and of comparisons, their help, scalars of TensorBoard and trackers, and chart samples follow
from `METRICS`. A number that is not in it stands in JSON lines and panels alone; but one that a training loop outside
the program has named (`Progress.numbers`) has a chart and a tag.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from engine.protocol.commands import Message
from engine.protocol.outcome import Name

State = Literal[
    "starting", "running", "paused", "judging", "stopping", "silent", "finished", "failed", "lost", "damaged"
]
"""`judging`: training is done, and the final evaluation plays."""
MOST_NUMBERS = 32
"""That a loop may name itself."""
OwnNumbers = Annotated[dict[Name, float], msgspec.Meta(max_length=MOST_NUMBERS)]
"""By the names that the loop gave them."""


class Progress(Message, frozen=True):
    """Progress of the run. Rates and losses are means over the last report interval. Losses are those of the
    coordinator's process. Where others learn too, replay and burn-in are its own times their number.

    A measured number is NaN while it is unknown, as losses are before learning, and infinite if it is known not to be
    finite: the loop has diverged. Points have the same."""

    at: float  # unix time
    state: State
    env_steps: int
    frames: int
    updates: int
    episodes: int
    wall_s: float  # training time without pauses, earlier sessions included
    remaining_s: float | None
    env_steps_per_s: float
    frames_per_s: float
    updates_per_s: float
    mean_return: float  # over the last 100 episodes
    best_return: float
    loss: float
    q_mean: float
    epsilon: float  # mean over lanes
    learning_rate: float
    replay_size: int
    replay_capacity: int
    beta: float
    burnin_left: int  # environment steps until learning starts
    random_share: float  # expected share of steps with a random action
    replay: ReplayContents | None = None  # None before anything can be drawn
    wants: Literal["running", "paused", ""] = ""  # what clients asked for last; "" if the host is of an earlier version
    not_finite: dict[str, int] = {}  # environment steps since when the number of that name is known not to be finite
    judged: int = 0  # episodes that the final evaluation has played
    to_judge: int = 0  # episodes that it will play
    numbers: OwnNumbers = {}


class Distribution(msgspec.Struct, frozen=True):
    """A histogram of values between `low` and `high`, the smallest and the largest."""

    low: float
    high: float
    median: float
    shares: Annotated[list[Annotated[float, msgspec.Meta(ge=0, le=1)]], msgspec.Meta(min_length=1, max_length=64)]
    """Of bins of equal width; the sum is 1."""


class ReplayContents(msgspec.Struct, frozen=True):
    """What the replay of the coordinator's process held at some time within the last seconds."""

    ages: Distribution  # of a draw: environment steps stored since; from 0 to the oldest entry
    oldest_share: float  # share of draws from the oldest tenth; uniform draws give 0.1
    priorities: Distribution | None = None  # |TD error| of entries, bins equal on a log scale; None: draws are uniform
    zero_share: float = 0.0  # share of entries with a TD error of zero, which `priorities` leaves out


class Point(Message, frozen=True):
    """One chart sample: numbers of `Progress`."""

    env_steps: int
    wall_s: float
    mean_return: float
    loss: float
    q_mean: float
    env_steps_per_s: float
    beta: float
    numbers: OwnNumbers = {}

    def value(self, name: str) -> float:
        """The number of this name; NaN if it is unknown."""
        return float(getattr(self, name)) if name in self.__struct_fields__ else self.numbers.get(name, math.nan)


def point_of(progress: Progress) -> Point:
    """Return the chart sample of a progress."""
    return Point(**{name: getattr(progress, name) for name in Point.__struct_fields__})


@dataclass(frozen=True)
class Metric:
    """Where a number of the progress is shown and recorded."""

    name: str
    """The field of `Progress`, of `Point` too if there is a chart."""
    tag: str
    """In TensorBoard and trackers."""
    counted_by: str = ""
    """The field that is 0 as long as the number says nothing."""
    lasts: bool = False
    """It is NaN in intervals without an update; the last one known is shown then."""
    title: str = ""
    """Of its charts."""
    short: str = ""
    """The title where there is no room for that."""
    key: str = ""
    """Selects its chart in the dashboard; empty: it has none there."""
    best: Literal["high", "low", ""] = "high"
    """Which of its values the chart marks; empty: none."""
    evaluated: bool = False
    """The chart also shows evaluations."""
    about: str = ""
    """What the chart shows, for the help."""
    compared: bool = False
    """Comparisons have a chart of it."""


METRICS = (
    Metric("loss", "losses/td_loss", lasts=True, title="TD loss", short="Loss", key="5", best="low", compared=True,
           about="how far the agent's predictions are off"),
    Metric("q_mean", "losses/q_values", lasts=True, title="Q estimate", short="Q", key="6", compared=True,
           about="the return that it expects"),
    Metric("learning_rate", "charts/learning_rate"),
    Metric("epsilon", "charts/epsilon"),
    Metric("random_share", "charts/random_share"),
    Metric("mean_return", "charts/mean_return", title="Mean return", short="Return", key="4", compared=True,
           evaluated=True, about="of episodes with random actions; rises with learning"),
    Metric("env_steps_per_s", "charts/env_steps_per_s", title="Environment steps/s", short="Steps/s", compared=True),
    Metric("frames_per_s", "charts/frames_per_s", counted_by="frames"),
    Metric("updates_per_s", "charts/updates_per_s", counted_by="updates"),
    Metric("replay_size", "replay/size", counted_by="replay_capacity"),
    Metric("beta", "replay/beta"),
)  # fmt: skip
"""In the order of the scalars."""
CHARTS = tuple(sorted((metric for metric in METRICS if metric.key), key=lambda metric: metric.key))
"""Of the dashboard, in the order of their keys."""
COMPARED = tuple(sorted((metric for metric in METRICS if metric.compared), key=lambda metric: metric.key or "~"))
"""In comparisons, those of the dashboard first."""


def own_metric(name: str) -> Metric:
    """Where a number is shown that a loop outside the program has named."""
    return Metric(name, f"loop/{name}", title=name, short=name, best="")


def scalars_of(progress: Progress) -> dict[str, float]:
    """Return the numbers that are known, by their tags. A loop outside the program may never tell of frames, updates
    or a replay."""
    found = {each.tag: getattr(progress, each.name) for each in METRICS if getattr(progress, each.counted_by, True)}
    found |= {own_metric(name).tag: value for name, value in progress.numbers.items()}
    return {tag: value for tag, value in found.items() if not math.isnan(value)}
