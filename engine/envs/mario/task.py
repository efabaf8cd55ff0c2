"""What playing Super Mario Bros means: stages, action sets, rewards, and how an episode begins and ends."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.joypad import action_buttons, action_names
from engine.config.stages import WHOLE_GAME, stages_of
from engine.envs.emulators.view import VIEWS, View
from engine.errors import UserError

REWARDS = ("progress", "classic")
STALL_STEPS = 300


@dataclass(frozen=True, kw_only=True)
class MarioTask:
    """Options of the environment. Raises `UserError` on construction if a value is not accepted.

    Args:
        stage: `1-1` to `8-4`: one stage, an episode ends with death or flag. `1-1,1-2`: each
            episode one of these. `game`: the whole game with three lives, it ends with the last one. `random`: each
            episode any stage.
        reward: `classic` is gym-super-mario-bros 7.4's, summed over the step's frames. `progress` is what the agent
            learns best from: new furthest x + clock ticks - 25 for death, clipped to +-15 and divided by 15, + 3 for
            the flag.
        actions: `right-only`, `simple`, `complex`, or button combinations of your own: `noop,right,right+A`.
        frame_skip: frames that an action is held.
        sticky: probability that the last action is repeated instead (Machado et al. 2018: 0.25).
        noop_max: an episode begins with 0 to `noop_max` random frames of doing nothing (Mnih et al. 2015: 30).
        stall_steps: environment steps without a new furthest x after which an episode is truncated; 0 for never.
        view: the picture that the agent sees.
    """

    stage: str = "1-1"
    reward: str = "progress"
    actions: str = "right-only"
    frame_skip: int = 4
    sticky: float = 0.0
    noop_max: int = 30
    stall_steps: int = STALL_STEPS
    view: View = VIEWS["50x60"]

    def __post_init__(self) -> None:
        try:
            stages_of(self.stage)
        except UserError as error:
            raise UserError(f"stage: {error}") from None
        if self.reward not in REWARDS:
            raise UserError(f"reward: {self.reward!r} is not accepted; accepted: {', '.join(REWARDS)}")
        if not 1 <= self.frame_skip <= 60 or not 0 <= self.sticky < 1 or self.noop_max < 0 or self.stall_steps < 0:
            raise UserError("frame_skip: 1 to 60, sticky: 0 to below 1, noop_max and stall_steps: 0 or more")
        action_buttons(self.actions)  # complains

    @property
    def stages(self) -> tuple[str, ...]:
        """Stages at which an episode can begin."""
        return stages_of(self.stage)

    @property
    def whole_game(self) -> bool:
        return self.stage == WHOLE_GAME

    @property
    def action_names(self) -> tuple[str, ...]:
        return action_names(self.actions)
