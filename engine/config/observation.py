"""The shapes of what an agent sees, from the options alone."""

from __future__ import annotations

from engine.config.run_config import RunConfig


def observation_layout(config: RunConfig) -> tuple[tuple[int, ...], int, int]:
    """Shape of a frame, frames per observation and actions per mask, computed from the options alone.

    They equal those of the game's `Spec` (tested in `tests/mario_tui/data/test_form.py`), without building the
    game.
    """
    if config.game == "mario":
        height, width = (int(side) for side in config.observation.removesuffix("-red").split("x"))
        return (height, width), 4, 0
    width, height = (int(side) for side in (config.board or "").split("x"))
    return (
        ((4 + config.next_piece, height, width), 1, 4 * width)
        if config.game == "tetris"
        else ((5, height, width), 1, 0)
    )
