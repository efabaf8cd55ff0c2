"""Turns an environment's observations into frames, and refuses those that are not what its spaces promise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.errors import UserError
from engine.games.gym.spaces import Spaces
from engine.games.gym.view import View
from engine.runtime.stored_arrays import LARGEST_OBSERVATION

_SURELY_FINITE = 1e30
"""Sum of squares below which no number is NaN, infinite, or beyond `LARGEST_OBSERVATION`."""
_ROUNDING = 1e-3
"""How far resizing or smoothing may take a share beyond 0 and 1."""
Raw = NDArray[Any]
"""An observation: a vector [n], or an image [height, width, planes], of any dtype."""


class Observations:
    """Of one environment: frames [*frame_shape] of the view's dtype."""

    def __init__(self, spaces: Spaces, view: View) -> None:
        self._spaces, self._view = spaces, view
        self._shift = np.array(spaces.mean) if spaces.mean else None
        self._divide = np.array(spaces.deviation)
        self._dtype = np.float32 if self._shift is None else np.float64
        """Of vectors; float64 with a shift, since float32 would round away small differences of large numbers."""
        self._raw_shape = spaces.raw_shape
        self._brightest = round(255 / spaces.brightness)
        self._flat = spaces.kind == "image" and spaces.shape[2] == 1

    def checked(self, observation: Any) -> Raw:
        """The observation as an array of the promised shape, planes last. Raises `UserError` if it is not what the
        environment promised."""
        spaces = self._spaces
        if spaces.kind == "one-hot":
            number, first = int(observation), spaces.first_observation
            if number != observation or not 0 <= number - first < spaces.shape[0]:
                last = first + spaces.shape[0] - 1
                raise UserError(f"an observation must be a whole number between {first} and {last}, got {observation}")
            vector = np.zeros(spaces.shape, np.float32)
            vector[number - first] = 1.0
            return vector
        raw = np.array(observation)  # some environments draw the next one into the same memory
        if raw.dtype == np.float32 and raw.shape == spaces.shape and raw.ndim == 1 and raw.dot(raw) < _SURELY_FINITE:
            return raw  # as most vectors are: what follows takes three times as long
        if raw.dtype.kind not in "biuf":
            raise UserError(f"an observation must have numbers, got {raw.dtype}")
        if spaces.kind == "vector":
            raw = raw.astype(self._dtype).reshape(-1) if raw.size == spaces.shape[0] else raw
            if raw.shape != spaces.shape:
                raise UserError(f"an observation must have the shape {spaces.shape}, got {raw.shape}")
        elif raw.shape != self._raw_shape and not (self._flat and raw.shape == self._raw_shape[:2]):
            raise UserError(f"an observation must have the shape {self._raw_shape}, got {raw.shape}")
        if raw.dtype.kind == "f" and not (np.abs(raw) <= LARGEST_OBSERVATION).all():
            what = "NaN" if np.isnan(raw).any() else "a number beyond 1e30"
            raise UserError(f"an observation has {what}")
        if spaces.kind == "vector":
            return raw
        if raw.dtype != np.uint8 or self._brightest != 255:
            self._check_brightness(raw)
        if raw.ndim == 2:
            return raw[:, :, None]
        return raw.transpose(1, 2, 0) if spaces.planes_first else raw

    def frame(self, raw: Raw) -> NDArray[Any]:
        """The frame of a checked observation."""
        spaces, view = self._spaces, self._view
        if spaces.kind != "image":
            if self._shift is None:
                return raw
            return ((raw - self._shift) / self._divide).clip(-spaces.farthest, spaces.farthest).astype(np.float32)
        pixels = raw if raw.dtype == np.uint8 and spaces.brightness == 1 else self._bright(raw)
        if view.size is not None:
            picture = Image.fromarray(pixels[:, :, 0] if self._flat else pixels)
            if len(view.frame_shape) == 2 and not self._flat:
                picture = picture.convert("L")
            elif len(view.frame_shape) == 3 and self._flat:
                picture = picture.convert("RGB")
            pixels = np.asarray(picture.resize(view.size[::-1], Image.Resampling.BOX))
            pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
        return pixels[:, :, 0] if len(view.frame_shape) == 2 else pixels.transpose(2, 0, 1)

    def _check_brightness(self, raw: Raw) -> None:
        """Raise `UserError` for values outside the space's range, or for floats where the space has bytes: shares would
        be all black."""
        high, is_float = self._brightest, raw.dtype.kind == "f"
        if is_float and high > 1:
            raise UserError(f"an image must have whole numbers from 0 to {high}, as its space says, got {raw.dtype}")
        slack = _ROUNDING if is_float else 0
        if raw.dtype.kind != "b" and not (raw.min() >= -slack and raw.max() <= high + slack):
            raise UserError(f"an image must be between 0 and {high}, got {raw.min()} to {raw.max()}")

    def _bright(self, raw: Raw) -> NDArray[np.uint8]:
        if raw.dtype == np.bool_:
            return raw.view(np.uint8) * np.uint8(255)
        return (raw.astype(np.float32) * self._spaces.brightness).round().clip(0, 255).astype(np.uint8)
