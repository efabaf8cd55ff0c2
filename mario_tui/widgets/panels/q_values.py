"""The agent's decision: Q-values as bars with the chosen action marked, and its observation as an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from engine.protocol.messages import Thought
from mario_tui.data.format import number
from mario_tui.widgets.base.panel import bar

CHOSEN, AT_RANDOM = "▶", "?"
_MOST_ROWS = 12
LEAST_ROWS = 3
_NUMBER = 6
_GAP_COLOUR, _NEWEST_COLOUR = (64, 80, 128), (240, 192, 64)
_LEAST_SCALE = 0.5


def chosen(thought: Thought, names: Sequence[str]) -> str:
    """The action in a few words: `right+A`, `left (random)`."""
    return _name(names, thought.action) + (" (random)" if thought.random else "")


def most_rows(thought: Thought) -> int:
    """Lines that `describe` can fill."""
    return min(len(thought.q_values) + bool(thought.facts), _MOST_ROWS)


def describe(thought: Thought, names: Sequence[str], width: int, rows: int) -> Text:
    """Values of the game in a line, if there are any, then one line per action, in their order.

    If there are more than `rows` lines, only the best actions and the chosen one. Those with exactly the same value,
    which fill the same cells of Tetris, then count once. The bar is empty for the worst legal action and full for the
    best.
    """
    values = thought.q_values
    legal = [action for action, value in enumerate(values) if math.isfinite(value)]
    best_first = sorted(legal, key=lambda action: -values[action])
    rows -= bool(thought.facts)
    if len(legal) <= rows:
        shown = legal
    else:
        shown = [action for action in best_first if action == thought.action or not _repeated(action, thought)][:rows]
    if thought.action not in shown:
        shown = [*shown[: rows - 1], thought.action]
    low, high = (values[best_first[-1]], values[best_first[0]]) if legal else (0.0, 0.0)
    wide = max(len(_name(names, action)) for action in range(len(values)))
    room = max(2, width - wide - _NUMBER - 5)
    facts = "  ".join(f"{name} {value:,}" for name, value in thought.facts.items())
    text = Text(f"  {facts}" if facts else "", no_wrap=True, overflow="ellipsis")
    for action in shown:
        is_chosen = action == thought.action
        mark = (AT_RANDOM if thought.random else CHOSEN) if is_chosen else " "
        text.append("\n" if text else "").append(
            f"{mark} {_name(names, action):<{wide}} ", style="bold" if is_chosen else ""
        )
        share = (values[action] - low) / (high - low) if high > low and action in legal else 0.0
        text.append(bar(share, room), style="blue").append(f" {number(values[action]):>{_NUMBER}}")
    return text


def observation_image(thought: Thought, width: int, height: int) -> Any:
    """The agent's observation, uint8 [height, width, 3], for `width` x `height` square pixels.

    It shows all frames side by side, the newest one in a frame, if that keeps at least half their size; otherwise only
    the newest one.
    """
    import numpy as np  # here, so that a dashboard without a game starts without it

    frames, planes, high, wide = thought.shape
    gap = max(1, high // 25)

    def extent(count: int, columns: int) -> tuple[int, int]:
        rows = math.ceil(count / columns)
        edge = 2 * gap if count > planes else 0  # room for the frame
        return rows * (high + gap) - gap + edge, columns * (wide + gap) - gap + edge

    def arranged(count: int) -> tuple[float, int]:
        """The largest scale for `count` planes, and the number of columns that gives it."""
        extents = {columns: extent(count, columns) for columns in range(1, count + 1)}
        return max((min(height / tall, width / broad), columns) for columns, (tall, broad) in extents.items())

    count = frames * planes
    scale, columns = arranged(count)
    if frames > 1 and scale < _LEAST_SCALE:
        count = planes
        scale, columns = arranged(count)
    rgb = np.full((*extent(count, columns), 3), _GAP_COLOUR, np.uint8)
    for index, plane in enumerate(np.frombuffer(thought.seen, np.uint8).reshape(-1, high, wide)[-count:]):
        edge = gap if count > planes else 0
        top, left = edge + (index // columns) * (high + gap), edge + (index % columns) * (wide + gap)
        if index >= count - planes:
            rgb[top - edge : top + high + edge, left - edge : left + wide + edge] = _NEWEST_COLOUR
        rgb[top : top + high, left : left + wide] = plane[..., None]
    return rgb


def _repeated(action: int, thought: Thought) -> bool:
    """Whether the chosen action, or one before this one, has exactly its value."""
    values = thought.q_values
    return values[action] in (values[thought.action], *values[:action])


def _name(names: Sequence[str], action: int) -> str:
    return names[action] if action < len(names) else f"action {action}"
