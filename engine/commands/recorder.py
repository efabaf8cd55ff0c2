"""Records videos of a game: GIF with Pillow, MP4 with PyAV if it is installed."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.protocol.play import Filmed

PICTURES_PER_S = 30


class Video(Protocol):
    """A video file that is being written. It plays `PICTURES_PER_S` pictures per second."""

    path: Path

    @property
    def pictures(self) -> int:
        """Number of pictures so far."""

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture, RGB uint8 [height, width, 3]."""

    def close(self) -> None:
        """Finish the file."""


def open_video(path: Path) -> Video:
    """Open a video in the format of its suffix.

    Raises `UserError` if the suffix is not .gif or .mp4, PyAV is needed and missing, or the file can't be written.
    """
    if path.suffix not in (".gif", ".mp4"):
        raise UserError(f"--record must be a file that ends in .gif or .mp4, got {path}")
    if path.suffix == ".mp4" and importlib.util.find_spec("av") is None:
        raise UserError("--record: .mp4 needs PyAV (pip install mario-tui[video]); .gif works without it")
    try:
        path.touch()
    except OSError as error:
        raise UserError(f"--record: {path}: can't be written ({error.strerror})") from None
    return _Gif(path) if path.suffix == ".gif" else _Mp4(path)


def finish(video: Video) -> Filmed:
    """Finish a video's file and describe it."""
    video.close()
    size, seconds = video.path.stat().st_size, video.pictures / PICTURES_PER_S
    if not size:  # `open_video` has created it, and there was no picture
        video.path.unlink()
    return Filmed(path=str(video.path), pictures=video.pictures, seconds=seconds, size_bytes=size)


class _Gif:
    """GIF with a palette of 64 colours per picture; NES pictures have so few colours that it is exact and small."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pictures: list[Any] = []

    @property
    def pictures(self) -> int:
        return len(self._pictures)

    def add(self, picture: NDArray[np.uint8]) -> None:
        from PIL import Image

        self._pictures.append(Image.fromarray(picture).quantize(64))

    def close(self) -> None:
        if self._pictures:
            first, *rest = self._pictures
            # GIF counts in hundredths of a second: a third of the pictures stay for four of them, the others for three.
            ends = [round(100 * index / PICTURES_PER_S) for index in range(self.pictures + 1)]
            durations = [10 * (end - start) for start, end in pairwise(ends)]
            first.save(self.path, save_all=True, append_images=rest, duration=durations, loop=0)


class _Mp4:
    """H.264 in twice the native size, which video players blur less."""

    def __init__(self, path: Path) -> None:
        import av

        self.path, self.pictures = path, 0
        self._av = av
        self._container: Any = av.open(str(path), "w")
        self._stream: Any = self._container.add_stream("libx264", rate=PICTURES_PER_S)
        self._stream.width, self._stream.height, self._stream.pix_fmt = 512, 480, "yuv420p"

    def add(self, picture: NDArray[np.uint8]) -> None:
        doubled = np.ascontiguousarray(picture.repeat(2, axis=0).repeat(2, axis=1))
        self._container.mux(self._stream.encode(self._av.VideoFrame.from_ndarray(doubled, format="rgb24")))
        self.pictures += 1

    def close(self) -> None:
        self._container.mux(self._stream.encode())
        self._container.close()
