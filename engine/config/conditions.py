"""Under which conditions a policy plays the episodes that judge it.

A greedy policy always plays the same episode from the same start. What an evaluation says about it depends on the
starts, which it may or may not have trained with, and on actions that it did not choose.
"""

from __future__ import annotations

import msgspec


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Starts and random decisions of an evaluation.

    `noop_min`, `noop_max`: range of the number of no-op frames before an episode. `epsilon`: probability of a random
    action. `sticky_actions`: probability that the previous action is repeated instead. The last two are drawn at each
    environment step.
    """

    noop_min: int = 0
    noop_max: int = 30
    epsilon: float = 0.0
    sticky_actions: float = 0.0
