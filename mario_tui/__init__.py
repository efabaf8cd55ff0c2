"""The terminal UI: command line, headless display and Textual application. Never imports torch.

`mario_tui.Reporter` is for training loops outside the program, and is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.extras.reporting import Reporter

__all__ = ["Reporter"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from engine.config.features import feature

    return feature(name, f"{__name__}.{name}")
