"""The log of a run, as its host and what it starts write it."""

from __future__ import annotations

import codecs
import os

from engine.runs.run import Run
from engine.runtime.files import open_regular


class RunLog:
    """Reads a run's log, from its beginning or, with `newest_bytes`, only so much of its end. The file stays open, so
    the run may be renamed meanwhile. Raises `OSError` if it can't be read."""

    def __init__(self, run: Run, newest_bytes: int | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._file = open_regular(run.log_path, os.O_RDONLY)
        if newest_bytes is not None and self._size > newest_bytes:
            self._file.seek(-newest_bytes, os.SEEK_END)
            self._file.readline()  # cut off

    def news(self) -> str:
        """What was written since the last call; at most 64 KiB at once. It may contain control characters."""
        if self._file.tell() > self._size:  # the host has emptied it
            self._file.seek(0)
        return self._decoder.decode(self._file.read(2**16))

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()
