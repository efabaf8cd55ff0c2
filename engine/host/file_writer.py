"""Writes a run's small files in a thread: a disk that takes seconds to sync must stop neither reports nor clients."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from engine.runtime.files import write_atomically

log = logging.getLogger("host")


class FileWriter:
    """Replaces files atomically. Content that still waits gives way to newer content of the same file.

    A file that can't be written is reported once, until it can be.

    Args:
        may_write: asked before each file is written; may raise `OSError`.
        folder: see `engine.runtime.files.replacing`.
    """

    def __init__(self, may_write: Callable[[], bool] = lambda: True, folder: int | None = None) -> None:
        self._may_write, self._folder = may_write, folder
        self._failed: set[Path] = set()
        self._waiting: dict[Path, bytes] = {}
        self._is_writing = False
        self._changed = threading.Condition()
        threading.Thread(target=self._work, daemon=True, name="files").start()  # a disk that hangs won't delay the exit

    def write(self, path: Path, content: bytes) -> None:
        """Have `content` written to `path`. If that fails, the log says so."""
        with self._changed:
            self._waiting[path] = content
            self._changed.notify_all()

    @property
    def works(self) -> bool:
        """Whether every file could be written the last time."""
        return not self._failed

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be written, at most `timeout_s` seconds. Returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._is_writing, timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                path = next(iter(self._waiting))
                content = self._waiting.pop(path)
                self._is_writing = True
            try:
                if self._may_write():
                    write_atomically(path, content, self._folder)
            except Exception as error:  # whatever it is, this thread has to go on
                if path not in self._failed:
                    log.warning("%s could not be written: %s", path.name, error)
                self._failed.add(path)
            else:
                self._failed.discard(path)
            finally:
                with self._changed:
                    self._is_writing = False
                    self._changed.notify_all()
