"""What is known of a run that a training loop outside the program reports (`engine.reporting`)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec

from engine.config.fields import LARGEST, NONE
from engine.config.run_config import RunConfig
from engine.protocol.outcome import Outcome
from engine.runtime.text import printable

NOT_TRAINED = "is reported by a training loop outside mario-tui, which can't resume, evaluate or play it"


def what_it_obeys(commands: list[str]) -> str:
    """Says that such a loop obeys only these commands; see `Hello.obeys`."""
    obeyed = ", ".join(commands).lower()
    return f"is trained by a loop of its own, which obeys {f'only {obeyed}' if obeyed else 'no command'}"


class ReportedLoop(msgspec.Struct, frozen=True, kw_only=True):
    """Has what host and clients ask of a `RunConfig`, for a loop that has options of its own."""

    game: str
    steps: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    """Environment steps of the whole run; 0 if that is unknown."""
    outcome: Outcome = Outcome()
    action_names: list[str] = []
    loop_options: dict[str, bool | int | float | str] = {}
    sinks: str = NONE
    run_dir: str = RunConfig.run_dir
    runner: ClassVar[str] = "external"
    task_label: ClassVar[str] = ""
    render: ClassVar[bool] = False
    restarts: ClassVar[int] = 0
    keep: ClassVar[int] = 0
    """It has no checkpoints."""

    def options(self) -> dict[str, Any]:
        """The game, and the options of the loop, as they can be shown."""
        options = {"game": self.game, **self.loop_options}
        return {printable(name): printable(it) if isinstance(it, str) else it for name, it in options.items()}


Description: TypeAlias = RunConfig | ReportedLoop
