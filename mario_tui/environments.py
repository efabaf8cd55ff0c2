"""The games as Gymnasium environments, for your own program.

Importing this registers the ids `mario_tui/...` (docs/library.md) and nothing heavy; the classes are imported on first
use, with PyTorch. An id that names this module needs no import:

    gymnasium.make("mario_tui.environments:mario_tui/SuperMarioBros-1-1-v0", actions="simple")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.config.features import feature

if TYPE_CHECKING:
    from engine.extras.gymnasium_api.boards import SnakeEnv, SnakeVectorEnv, TetrisEnv, TetrisVectorEnv
    from engine.extras.gymnasium_api.mario import GameOptions, MarioEnv, MarioVectorEnv

__all__ = [
    "GameOptions", "MarioEnv", "MarioVectorEnv", "SnakeEnv", "SnakeVectorEnv", "TetrisEnv", "TetrisVectorEnv",
]  # fmt: skip

_ids = feature("gymnasium environments", __name__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    is_board = name.startswith(("Snake", "Tetris"))
    return getattr(import_module(f"{_ids.__name__}.{'boards' if is_board else 'mario'}"), name)
