"""How policies of the program's own games are distilled. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.config.capabilities import CommandOption
from engine.extras.distillation.contract import Distillation
from engine.games.mario.actions import ACTION_SETS, STAGES, WHOLE_GAME
from engine.games.mario.game import Mario
from engine.games.mario.options import MarioOptions
from engine.protocol.outcome import Conditions

if TYPE_CHECKING:
    from engine.extras.distillation.tasks import Search

_SEEN = ("observation", "frame_skip", "swim_strokes")


class MarioDistillation:
    """See `engine.extras.distillation.contract`."""

    distillation = Distillation(
        network="nature",  # cleared 96 % of 600 episodes of six stages after 11 minutes, `small` after 26
        lanes=8,
        must_agree=("actions", *_SEEN),
        copied=("reward", "emulator", "actions", *_SEEN),
        searched=STAGES,
        untaught=(WHOLE_GAME,),
        options={
            "network": CommandOption(
                "Mario's network, as in training; small takes 0.7 times as long per update, but needs more of them "
                "(default: nature)",
                "{small,nature}",
            ),
            "actions": CommandOption(
                "actions of Mario's stages without a policy, as in training: right-only, simple, complex, or a list "
                f"(default: {MarioOptions.actions})",
                "SET",
            ),
            "noop_max": CommandOption(
                "maximum number of no-op frames at the start of Mario's training episodes; evaluations keep "
                f"{Conditions().noop_max} (default: {MarioOptions.noop_max})"
            ),
            "rom": Mario.played_options["rom"],
        },
        search_options=("actions",),
        told=("noop_max",),
    )

    def described_for_search(self, task: str, like: Mapping[str, Any], **others: Any) -> dict[str, Any]:
        from engine.extras.distillation.mario.searched_task import described

        return described(task, {name: like[name] for name in _SEEN if name in like}, **others)

    def search_options_of(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        chosen = tuple(metadata["actions"])
        return {"actions": next((name for name, each in ACTION_SETS.items() if each == chosen), ",".join(chosen))}

    def make_search(self, student: Mapping[str, Any], *, seed: int, threads: int, **others: Any) -> Search:
        from engine.extras.distillation.mario.searched_task import StageSearch

        return StageSearch(student, seed=seed, threads=threads, **others)


class SnakeDistillation:
    """See `engine.extras.distillation.contract`."""

    distillation = Distillation(network="grid", lanes=32, copied=("reward", "death_penalty"))  # 32 take as long as one
