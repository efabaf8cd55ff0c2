"""Memory for the arrays of a storage: in this process, shared between processes, or in memory-mapped files.

A memory allocates all arrays of a storage at once, because only then is it known whether they fit. Arrays are
initially zero, except that files keep the contents that an earlier process left there, even if it crashed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Mapping
from multiprocessing.heap import Arena
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.runtime.files import open_lock, open_regular, write_atomically
from engine.runtime.formats import read_json
from engine.runtime.text import size_text

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any] | type[np.generic]]]
"""Shape and dtype of each array, by name."""
FORMAT = 2
_HEADER = "header.json"
_MAX_HEADER_BYTES = 2**20
_CACHE_LINE = 64  # bytes; the alignment of arrays


class HostMemory:
    """Allocates named arrays, here in memory of this process alone."""

    on_disk = False
    """Whether reads may wait for a disk, and contents may come from an earlier process."""
    shared = False
    """Whether another process may append while this one reads."""

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        """Allocate or open the arrays of `layout`, writable. Called once per process."""
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def prefetch(self, name: str, rows: NDArray[np.int64], count: int) -> None:
        """Start reading `count` rows from each of `rows`; rows are numbered over the first two axes of the array."""

    def close(self) -> None:
        """Release files. Arrays must not be written afterwards."""


class SharedMemory(HostMemory):
    """Memory shared with processes that are started with this object as an argument; each builds its storage on it.

    One process appends; any number may read entries that are `sampleable` before and after the read. The memory is
    anonymous, so nothing outlives the processes, however they end. On Linux it is a memfd, which the small /dev/shm of
    a container does not limit; elsewhere it is an unlinked file of multiprocessing.
    """

    shared = True

    def __init__(self) -> None:
        self._arena: Arena | None = None

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in layout.items()}
        places = np.cumsum([0, *(-(-size // _CACHE_LINE) * _CACHE_LINE for size in sizes.values())]).tolist()
        if self._arena is None:
            self._arena = anonymous_arena(places[-1])
        elif self._arena.size != places[-1]:
            raise ValueError(f"the layout must have {self._arena.size} bytes, as the shared memory, got {places[-1]}")
        return {
            name: np.frombuffer(self._arena.buffer, dtype, math.prod(shape), place).reshape(shape)
            for place, (name, (shape, dtype)) in zip(places, layout.items(), strict=False)
        }


class MappedMemory(HostMemory):
    """Memory-mapped files in `folder`, which may be larger than memory and survive a crash of the process.

    Disk space is reserved at once, because a process that writes to a mapped file on a full disk is killed by SIGBUS.
    That takes milliseconds on most file systems; on those that cannot reserve space (such as NFS before 4.2) the C
    library writes to every block. macOS reserves nothing, and a copy-on-write file system guarantees nothing for data
    that is overwritten.

    The contents may not survive a crash of the machine: the system writes pages in any order. So a storage checks what
    it finds here.

    Args:
        folder: created if it does not exist.
        renew: if given, arrays of another shape, and damaged ones, are replaced, and it is called with a message that
            says so. Otherwise they raise `UserError`.
        others: number of further replays of this size that will be created on the same disk, whose space is checked
            as well.
        contents: what the arrays hold, such as the task of their transitions. Arrays of other contents are treated as
            those of another shape. Empty: whatever the folder holds.

    `arrays` raises `UserError` if the disk is too full, if the folder holds arrays of another shape, or if another
    process has it open.
    """

    on_disk = True

    def __init__(
        self, folder: Path, renew: Callable[[str], None] | None = None, others: int = 0, contents: str = ""
    ) -> None:
        self.folder, self._renew, self._others, self._contents = folder, renew, others, contents
        self._maps: dict[str, mmap.mmap] = {}
        self._row_bytes: dict[str, int] = {}
        self._lock: BinaryIO | None = None

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._acquire_lock()
        columns = {
            name: {"shape": list(shape), "dtype": np.dtype(dtype).str} for name, (shape, dtype) in layout.items()
        }
        header = {"format": FORMAT, "columns": columns, "contents": self._contents}
        sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in layout.items()}
        self._check_header(header, sizes)
        self._check_disk_space(sizes)
        self._make_files(sizes, header)
        found = {}
        for name, (shape, dtype) in layout.items():
            with open_regular(self._path(name), os.O_RDWR) as file:
                self._maps[name] = mmap.mmap(file.fileno(), sizes[name])
            self._row_bytes[name] = math.prod(shape[2:]) * np.dtype(dtype).itemsize
            found[name] = np.frombuffer(self._maps[name], dtype).reshape(shape)
        return found

    def prefetch(self, name: str, rows: NDArray[np.int64], count: int) -> None:
        mapped, row_bytes = self._maps[name], self._row_bytes[name]
        starts = rows * row_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        ends = np.minimum((rows + count) * row_bytes, len(mapped))
        for start, length in zip(starts.tolist(), (ends - starts).tolist(), strict=True):
            mapped.madvise(mmap.MADV_WILLNEED, start, length)

    def discard(self, what: str) -> None:
        """Tell that the contents are not used, because they are those of a replay that is `what`. Raises `UserError`
        unless they are to be replaced."""
        text = f"{self.folder}: contains a replay {what}"
        if self._renew is None:
            self.close()
            raise UserError(f"{text}; remove the folder to start with an empty replay")
        self._renew(f"{text}; starting with an empty replay")

    def close(self) -> None:
        """Release the lock, so that another process can open the folder. The arrays stay readable."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.bin"

    def _acquire_lock(self) -> None:
        """Lock the folder until `close`, or until the process ends in any way."""
        try:
            self._lock = open_lock(self.folder / "lock")
        except OSError as error:
            raise UserError(f"{self.folder / 'lock'}: can't be opened ({error.strerror or error})") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise UserError(f"{self.folder}: another process has this replay open") from None
        except OSError:  # this filesystem has no locks
            pass

    def _check_header(self, wanted: dict[str, Any], sizes: dict[str, int]) -> None:
        path = self.folder / _HEADER
        problem = "with other lanes, entries or frames, of another task, or from another version"
        if not path.exists():
            return
        with contextlib.suppress(OSError, ValueError):
            if read_json(path, dict[str, Any], _MAX_HEADER_BYTES) == wanted:
                problem = "whose files are not whole"  # they were before the header was written
                if all(self._path(name).stat().st_size == size for name, size in sizes.items()):
                    return
        if self._renew is not None:
            for array in self.folder.glob("*.bin"):
                array.unlink()
            path.unlink()  # last: without a header, arrays are assumed to have the right shapes
        self.discard(problem)

    def _check_disk_space(self, sizes: dict[str, int]) -> None:
        paths = [self._path(name) for name in sizes]
        held = sum(path.stat().st_blocks * 512 for path in paths if path.exists())
        missing = (sum(sizes.values()) - held) * (1 + self._others)
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            self.close()
            raise UserError(
                f"{self.folder}: the replay needs {size_text(missing)} more, but the disk has only {size_text(free)} "
                "free"
            )

    def _make_files(self, sizes: dict[str, int], header: dict[str, Any]) -> None:
        """Create the files in full length with disk blocks reserved, then write the header."""
        new = [self._path(name) for name in sizes if not self._path(name).exists()]
        try:
            for name, size in sizes.items():
                # Where a disk can't reserve blocks, the C library reads and writes.
                with open_regular(self._path(name), os.O_RDWR | os.O_CREAT) as file:
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, size)
                    os.truncate(file.fileno(), size)
            if not (self.folder / _HEADER).exists():  # otherwise `_check_header` found it equal
                write_atomically(self.folder / _HEADER, json.dumps(header, indent=1).encode())
        except OSError as error:  # the disk has filled up since the check, or the user's quota is exceeded
            for path in new:
                path.unlink(missing_ok=True)
            self.close()
            wanted = size_text(sum(sizes.values()))
            raise UserError(
                f"{self.folder}: {wanted} of disk space for the replay can't be reserved ({error.strerror})"
            ) from None


def anonymous_arena(size: int) -> Arena:
    """`size` bytes of anonymous memory that can be passed to a process at its start."""
    if not hasattr(os, "memfd_create"):
        return Arena(size)
    descriptor = os.memfd_create("replay")
    os.ftruncate(descriptor, size)
    arena = Arena(size, descriptor)
    weakref.finalize(arena, os.close, descriptor)
    return arena
