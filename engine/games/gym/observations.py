"""Turns an environment's observations into frames, and refuses those that are not what its spaces promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.errors import UserError
from engine.games.gym.options import View
from engine.games.gym.spaces import Part, Spaces
from engine.runtime.stored_arrays import LARGEST_OBSERVATION

_SURELY_FINITE = 1e30
"""Sum of squares below which no number is NaN, infinite, or beyond `LARGEST_OBSERVATION`."""
_ROUNDING = 1e-3
"""How far resizing or smoothing may take a share beyond 0 and 1."""
Raw = NDArray[Any]
"""A checked part of an observation: a vector [n], or an image [height, width, planes], of any dtype."""


class _Reader:
    """Reads one part of observations. `exact`: whether vectors keep float64."""

    def __init__(self, part: Part, exact: bool = False) -> None:
        self.part, self._raw_shape = part, part.raw_shape
        self._dtype = np.float64 if exact else np.float32
        self._name = f"the observation's {'.'.join(map(str, part.path))}" if part.path else "an observation"
        self._image = self._name if part.path else "an image"
        self._brightest = round(255 / part.brightness)
        self._flat = part.kind == "image" and part.shape[2] == 1
        sizes = part.sizes or part.shape[:1]
        self._firsts = np.array(part.firsts or [part.first_observation])
        self._lasts = self._firsts + sizes - 1
        self._offsets = np.cumsum([0, *sizes[:-1]]) - self._firsts

    def checked(self, given: Any) -> Raw:
        """The part as an array, planes last. Raises `UserError` if it is not what the environment promised."""
        part = self.part
        raw = np.array(given)  # some environments draw the next one into the same memory
        if raw.dtype == np.float32 and raw.shape == part.shape and raw.ndim == 1 and raw.dot(raw) < _SURELY_FINITE:
            return raw  # as most vectors are: what follows takes three times as long
        if raw.dtype.kind not in "biuf":
            raise UserError(f"{self._name} must have numbers, got {raw.dtype}")
        if part.kind == "one-hot":
            return self._one_hot(raw)
        if part.kind == "vector":
            raw = raw.astype(self._dtype).reshape(-1) if raw.size == part.shape[0] else raw
            if raw.shape != part.shape:
                raise UserError(f"{self._name} must have the shape {part.shape}, got {raw.shape}")
        elif raw.shape != self._raw_shape and not (self._flat and raw.shape == self._raw_shape[:2]):
            raise UserError(f"{self._name} must have the shape {self._raw_shape}, got {raw.shape}")
        if raw.dtype.kind == "f" and not (np.abs(raw) <= LARGEST_OBSERVATION).all():
            what = "NaN" if np.isnan(raw).any() else "a number beyond 1e30"
            raise UserError(f"{self._name} has {what}")
        if part.kind == "vector":
            return raw
        if raw.dtype != np.uint8 or self._brightest != 255:
            self._check_brightness(raw)
        if raw.ndim == 2:
            return raw[:, :, None]
        return raw.transpose(1, 2, 0) if part.planes_first else raw

    def _one_hot(self, raw: Raw) -> Raw:
        numbers, first, last = raw.reshape(-1), self._firsts, self._lasts
        if numbers.shape != first.shape or not ((first <= numbers) & (numbers <= last) & (numbers % 1 == 0)).all():
            bounds = f"{first[0]} and {last[0]}" if first.size == 1 else f"{first.tolist()} and {last.tolist()}"
            many = "a whole number" if first.size == 1 else "whole numbers"
            raise UserError(f"{self._name} must be {many} between {bounds}, got {raw.tolist()}")
        vector = np.zeros(self.part.shape, np.float32)
        vector[self._offsets + numbers.astype(np.int64)] = 1.0
        return vector

    def _check_brightness(self, raw: Raw) -> None:
        """Raise `UserError` for values outside the space's range, or for floats where the space has bytes: shares would
        be all black."""
        low, is_float = self.part.darkest, raw.dtype.kind == "f"
        high = low + self._brightest
        if is_float and high > 1 and not self.part.floats:
            wanted = f"whole numbers from 0 to {high:g}, as its space says"
            raise UserError(f"{self._image} must have {wanted}, got {raw.dtype}")
        slack = _ROUNDING * high if is_float else 0
        if raw.dtype.kind != "b" and not (raw.min() >= low - slack and raw.max() <= high + slack):
            raise UserError(f"{self._image} must be between {low:g} and {high:g}, got {raw.min()} to {raw.max()}")

    def planes(self, raw: Raw, view: View) -> Iterator[NDArray[np.uint8]]:
        """The planes [height, width] of a checked image, in the view's size."""
        if raw.dtype == np.bool_:
            pixels = raw.view(np.uint8) * np.uint8(255)
        elif raw.dtype == np.uint8 and self.part.brightness == 1:
            pixels = raw
        else:
            bright = (raw.astype(np.float32) - np.float32(self.part.darkest)) * self.part.brightness
            pixels = bright.round().clip(0, 255).astype(np.uint8)
        if view.size is None:
            yield from pixels.transpose(2, 0, 1)
            return
        gray = view.gray and pixels.shape[2] == 3
        images = [Image.fromarray(pixels).convert("L")] if gray else map(Image.fromarray, pixels.transpose(2, 0, 1))
        for image in images:
            yield np.asarray(image.resize(view.size[::-1], Image.Resampling.BOX))


_Tree: TypeAlias = "_Reader | dict[str | int, _Tree]"


class Observations:
    """Of one environment: frames [*frame_shape] of the view's dtype."""

    def __init__(self, spaces: Spaces, view: View) -> None:
        self._spaces, self._view = spaces, view
        self._shift = np.array(spaces.mean) if spaces.mean else None
        self._divide = np.array(spaces.deviation)
        # float32 would round away small differences of large numbers before the shift
        self._readers = [_Reader(part, self._shift is not None) for part in spaces.parts or (spaces,)]
        self._tree: _Tree = self._readers[0]
        if spaces.parts:
            self._tree = {}
            for reader in self._readers:
                at: Any = self._tree
                for key in reader.part.path[:-1]:
                    at = at.setdefault(key, {})
                at[reader.part.path[-1]] = reader

    def checked(self, observation: Any) -> list[Raw]:
        """The parts of an observation. Raises `UserError` if it is not what the environment promised."""
        if isinstance(self._tree, _Reader):
            return [self._tree.checked(observation)]
        return list(_read(self._tree, observation, "an observation"))

    def brighter(self, one: list[Raw], other: list[Raw]) -> list[Raw]:
        """Of two checked observations: the brighter pixels of images, and the vectors of the second."""
        pairs = zip(self._readers, one, other, strict=True)
        return [np.maximum(*pair) if reader.part.kind == "image" else pair[1] for reader, *pair in pairs]

    def frame(self, raw: list[Raw]) -> NDArray[Any]:
        """The frame of a checked observation."""
        spaces, view = self._spaces, self._view
        if spaces.kind != "image":
            if self._shift is not None:
                shifted = (raw[0] - self._shift) / self._divide
                return shifted.clip(-spaces.farthest, spaces.farthest).astype(np.float32)
            return raw[0] if len(raw) == 1 else np.concatenate(raw)
        found = list(zip(self._readers, raw, strict=True))
        planes = [plane for reader, part in found if reader.part.kind == "image" for plane in reader.planes(part, view)]
        if spaces.numbers:
            numbers = np.concatenate([part for reader, part in found if reader.part.kind != "image"])
            rows = np.zeros((len(planes), view.number_rows, planes[0].shape[1]), np.uint8)
            rows.reshape(-1)[: numbers.nbytes] = numbers.astype(np.float32).view(np.uint8)
            planes = [np.concatenate(pair) for pair in zip(planes, rows, strict=True)]
        return planes[0] if len(view.frame_shape) == 2 else np.stack(planes)

    def image(self, frame: NDArray[Any]) -> NDArray[Any]:
        """A frame without the rows that hold numbers."""
        return frame[..., : frame.shape[-2] - self._view.number_rows, :] if self._view.number_rows else frame


def _read(tree: _Tree, observation: Any, name: str) -> Iterator[Raw]:
    if isinstance(tree, _Reader):
        yield tree.checked(observation)
        return
    kind, is_dict = type(observation).__name__, isinstance(next(iter(tree)), str)
    if not is_dict and isinstance(observation, tuple | list):
        observation = dict(enumerate(observation))
    if not isinstance(observation, Mapping):
        raise UserError(f"{name} must be a {'dict' if is_dict else 'tuple'}, got {kind}")
    if observation.keys() != tree.keys():
        wanted, got = (", ".join(map(str, each)) or "none" for each in (tree, observation))
        raise UserError(f"{name} must have the parts {wanted}, got {got}")
    for key, part in tree.items():
        yield from _read(part, observation[key], f"the observation's {key}")
