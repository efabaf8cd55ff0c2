"""Records videos of a game: GIF with Pillow, MP4 with PyAV if it is installed.

Pictures go to a file beside the wanted one as they come, so a long video needs no memory. The file gets its name once
it is complete; until then an existing file stays as it is.
"""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.envs.played_game import PICTURES_PER_S
from engine.errors import UserError
from engine.protocol.play import Filmed
from engine.runtime.extras import install_command
from engine.runtime.files import new_file


class Video(Protocol):
    """A video that is being written. It plays `PICTURES_PER_S` pictures per second."""

    pictures: int
    """Number of pictures so far."""

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture, RGB uint8 [height, width, 3]."""

    def close(self) -> None:
        """Finish the file."""


class Recording:
    """A video, and the files that it is written to.

    Raises `UserError` if the suffix is not .gif or .mp4, PyAV is needed and missing, or the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".gif", ".mp4"):
            raise UserError(f"--record must be a file that ends in .gif or .mp4, got {path}")
        if path.suffix == ".mp4" and importlib.util.find_spec("av") is None:
            raise UserError(f"--record: .mp4 needs PyAV; use .gif, or install it with: {install_command('video')}")
        if path.is_dir():
            raise UserError(f"--record must be a file, got the folder {path}")
        if path.exists() and not path.is_file():
            raise UserError(f"--record must be a file, got the pipe or device {path}")
        self._path, self._partial = path, path.with_name(f".{path.stem}.partial{path.suffix}")
        try:
            new_file(self._partial).close()  # before others write to it by its name, which may have been a link
            self.video: Video = (_Gif if path.suffix == ".gif" else _Mp4)(self._partial)
        except OSError as error:
            raise UserError(f"--record: {path}: can't be written ({error.strerror})") from None

    def finish(self) -> Filmed:
        """Finish the video and describe it. Without a picture, there is no file."""
        self.video.close()
        pictures, size = self.video.pictures, 0
        if pictures:
            size = self._partial.stat().st_size
            self._partial.replace(self._path)
        else:
            self._partial.unlink()
        return Filmed(path=str(self._path), pictures=pictures, seconds=pictures / PICTURES_PER_S, size_bytes=size)


class _Gif:
    """GIF with a palette of 64 colours per picture; NES pictures have so few colours that it is exact. Only the part
    that differs from the picture before is stored."""

    def __init__(self, path: Path) -> None:
        self.pictures = 0
        self._file = path.open("wb")
        self._shown: NDArray[np.uint8] | None = None
        self._image: Any = None  # not written yet, because its duration is unknown
        self._corner = (0, 0)
        self._since = 0  # number of the picture from which it is shown

    def add(self, picture: NDArray[np.uint8]) -> None:
        from PIL import Image

        if self._shown is None:
            height, width, _ = picture.shape
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0))
            self._file.write(b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")  # repeat for ever
            changed = np.ones((height, width), np.bool_)
        else:
            changed = (picture != self._shown).any(2)
        if changed.any():
            self._write_image()
            rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
            part = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            self._image = Image.fromarray(part).quantize(64)
            self._corner, self._since = (int(columns[0]), int(rows[0])), self.pictures
            self._shown = picture.copy()
        self.pictures += 1

    def close(self) -> None:
        self._write_image()
        self._file.write(b";")
        self._file.close()

    def _write_image(self) -> None:
        """Write the newest image, which is shown until now."""
        from PIL.GifImagePlugin import getdata

        if self._image is None:
            return
        # GIF counts in hundredths of a second: a third of the pictures stay for four of them, the others for three.
        begin, end = (round(100 * picture / PICTURES_PER_S) for picture in (self._since, self.pictures))
        for block in getdata(self._image, self._corner, duration=10 * (end - begin), include_color_table=True):
            self._file.write(block)


class _Mp4:
    """H.264 in twice the native size, which video players blur less."""

    def __init__(self, path: Path) -> None:
        import av

        self.pictures = 0
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
