"""Under which conditions a policy plays the episodes that judge it.

A greedy policy always plays the same episode from the same start. What an evaluation says about it depends on the
starts, which it may or may not have trained with, and on actions that it did not choose.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_Noops = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Starts and random decisions of an evaluation.

    `noop_min`, `noop_max`: range of the number of no-op frames before an episode. `epsilon`: probability of a random
    action. `sticky_actions`: probability that the previous action is repeated instead. The last two are drawn at each
    environment step.
    """

    noop_min: _Noops = 0
    noop_max: _Noops = 30
    epsilon: _Probability = 0.0
    sticky_actions: _Probability = 0.0
