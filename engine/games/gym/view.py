"""How a run sees its environment: what the options make of an observation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from engine.config.fields import ConfigError
from engine.games.gym.options import GymOptions
from engine.games.gym.spaces import SMALL, parsed

_VIEW = re.compile(r"(\d{1,4})x(\d{1,4})(?:-(gray|color))?")
_LARGEST = 512
"""Pixels of a side of a resized image."""
_STACK = 4
"""Frames per observation of a resized image (Mnih et al. 2015)."""
_COLORS = 3


@dataclass(frozen=True)
class View:
    """What becomes of an observation."""

    frame_shape: tuple[int, ...]
    """Of a frame: the numbers of a vector, (planes, height, width), or (height, width) in gray."""
    dtype: Literal["uint8", "float32"]
    stack: int
    size: tuple[int, int] | None = None
    """Height and width of an image that is resized."""


def view_of(options: GymOptions) -> View:
    """The view that the options choose. Raises `ConfigError` if the environment's observations can't be seen so."""
    spaces, wanted = parsed(options.spaces), options.observation
    if spaces.kind != "image":
        if wanted not in ("auto", "raw"):
            raise ConfigError("observation", f"must be auto or raw, got {wanted!r}: {options.env} has no images")
        return View(spaces.shape[:1], "float32", options.frame_stack or 1)
    height, width, planes = spaces.shape
    if wanted == "raw" or (wanted == "auto" and (spaces.is_board or planes not in (1, _COLORS))):
        shape = (height, width) if planes == 1 else (planes, height, width)
        return View(shape, "uint8", options.frame_stack or 1)
    found = _VIEW.fullmatch("84x84-gray" if wanted == "auto" else wanted)
    sides = tuple(int(side) for side in found.groups()[:2]) if found else ()
    if found is None or not all(SMALL // 2 <= side <= _LARGEST for side in sides):
        accepted = f"auto, raw, or WxH-gray or WxH-color with {SMALL // 2} to {_LARGEST} pixels a side"
        raise ConfigError("observation", f"must be {accepted}, got {wanted!r}")
    size = (sides[1], sides[0])
    is_color = found[3] == "color"
    if planes != _COLORS and (is_color or planes != 1):
        raise ConfigError("observation", f"must be raw, got {wanted!r}: images of {options.env} have no colors")
    return View((_COLORS, *size) if is_color else size, "uint8", options.frame_stack or _STACK, size)
