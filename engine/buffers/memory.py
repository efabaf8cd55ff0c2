"""Where a storage's arrays live: in this process, shared between processes, or in files.

A memory hands out all arrays of a storage at once, because only then is it known whether there is room for them.
Arrays are zero at first. Those in files are what a former process left there, however it ended.
"""

from __future__ import annotations

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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import UserError
from engine.runtime.files import open_regular, read_bounded

Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any] | type[np.generic]]]
"""Shape and dtype of every array, by name."""
FORMAT = 2
_HEADER = "header.json"
_MOST_HEADER_BYTES = 2**20
_LINE = 64  # bytes; arrays begin at a cache line


class Memory(Protocol):
    """Hands out named arrays."""

    on_disk: bool
    """Whether reads may wait for a disk, and contents may be those of a process that is gone."""
    shared: bool
    """Whether another process may append while this one reads."""

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        """Writable arrays by name. Called once in a process."""

    def prefetch(self, name: str, rows: NDArray[np.int64], count: int) -> None:
        """Have `count` rows from each of `rows` on read soon; rows are numbered over an array's two first axes."""

    def close(self) -> None:
        """Nothing will be written any more."""


class HostMemory:
    """This process's own memory."""

    on_disk = False
    shared = False

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}

    def prefetch(self, name: str, rows: NDArray[np.int64], count: int) -> None: ...

    def close(self) -> None: ...


class SharedMemory:
    """Memory that processes started with this object as an argument see, too: each makes its storage of it.

    One process appends; any number may read what is `sampleable` before and after. The memory has no name, so nothing
    is left of it, whoever is killed. On Linux it is a memfd, which a container's small /dev/shm does not limit;
    elsewhere it is multiprocessing's unlinked file.
    """

    on_disk = False
    shared = True

    def __init__(self) -> None:
        self._arena: Arena | None = None

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in layout.items()}
        places = np.cumsum([0, *(-(-size // _LINE) * _LINE for size in sizes.values())]).tolist()
        if self._arena is None:
            self._arena = nameless(places[-1])
        elif self._arena.size != places[-1]:
            raise ValueError(f"the shared memory has {self._arena.size} bytes; this storage needs {places[-1]}")
        return {
            name: np.frombuffer(self._arena.buffer, dtype, math.prod(shape), place).reshape(shape)
            for place, (name, (shape, dtype)) in zip(places, layout.items(), strict=False)
        }

    def prefetch(self, name: str, rows: NDArray[np.int64], count: int) -> None: ...

    def close(self) -> None: ...


class MappedMemory:
    """Files in `folder`, which may be larger than memory and are there again after a crash of the process.

    Their disk space is reserved at once: where a mapped file finds no room on the disk later, the process ends with
    SIGBUS. That takes milliseconds on most file systems; on those that cannot reserve (NFS before 4.2, say) the C
    library writes to every block. macOS reserves nothing, and neither does a file system that copies on write promise
    anything for what is overwritten.

    Raises `UserError` if the disk has no room, if the folder holds arrays of other shapes, or if another process has it
    open. A crash of the machine is another matter: the system writes pages in an order of its own.

    With `renew`, arrays of other shapes are removed instead, and it is told so. `others` that are as large will be made
    on the same disk: there must be room for them, too.
    """

    on_disk = True
    shared = False

    def __init__(self, folder: Path, renew: Callable[[str], None] | None = None, others: int = 0) -> None:
        self.folder, self._renew, self._others = folder, renew, others
        self._maps: dict[str, mmap.mmap] = {}
        self._row_bytes: dict[str, int] = {}
        self._lock = -1

    def arrays(self, layout: Layout) -> dict[str, NDArray[Any]]:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        columns = {
            name: {"shape": list(shape), "dtype": np.dtype(dtype).str} for name, (shape, dtype) in layout.items()
        }
        header = {"format": FORMAT, "columns": columns}
        self._check_header(header)
        sizes = {name: math.prod(shape) * np.dtype(dtype).itemsize for name, (shape, dtype) in layout.items()}
        self._check_room(sizes)
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

    def close(self) -> None:
        """Let another process open the folder. The arrays stay readable."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.bin"

    def _take_lock(self) -> None:
        """Held until `close` or the process's end, whichever way it ends."""
        self._lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise UserError(f"{self.folder}: another process has this replay open") from None

    def _check_header(self, wanted: dict[str, Any]) -> None:
        path = self.folder / _HEADER
        if not path.exists():
            return
        try:
            held = json.loads(read_bounded(path, _MOST_HEADER_BYTES))
        except (OSError, ValueError, RecursionError):
            held = None
        if held == wanted:
            return
        what = f"{self.folder}: holds a replay of another shape (lanes, entries or pictures) or another version's"
        if self._renew is None:
            self.close()
            raise UserError(f"{what}; remove it to begin anew")
        for array in self.folder.glob("*.bin"):
            array.unlink()
        path.unlink()  # last: without it, arrays are taken for the wanted ones
        self._renew(f"{what}; it begins anew")

    def _write_header(self, header: dict[str, Any]) -> None:
        partial = self.folder / f".{_HEADER}.partial"
        partial.write_text(json.dumps(header, indent=1), encoding="utf-8")
        partial.replace(self.folder / _HEADER)

    def _check_room(self, sizes: dict[str, int]) -> None:
        paths = [self._path(name) for name in sizes]
        held = sum(path.stat().st_blocks * 512 for path in paths if path.exists())
        missing = (sum(sizes.values()) - held) * (1 + self._others)
        free = shutil.disk_usage(self.folder).free
        if missing > free:
            self.close()
            raise UserError(
                f"{self.folder}: the replay needs {_readable(missing)} more, the disk has {_readable(free)} free"
            )

    def _make_files(self, sizes: dict[str, int], header: dict[str, Any]) -> None:
        """Make the files as long as they are to be, with blocks of their own for all of it; at last the header."""
        new = [self._path(name) for name in sizes if not self._path(name).exists()]
        try:
            for name, size in sizes.items():
                with open_regular(self._path(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, size)
                    os.truncate(file.fileno(), size)
            if not (self.folder / _HEADER).exists():  # otherwise it is the same
                self._write_header(header)
        except OSError as error:  # another program was faster, or it is more than this user may have
            for path in new:
                path.unlink(missing_ok=True)
            self.close()
            wanted = _readable(sum(sizes.values()))
            raise UserError(
                f"{self.folder}: {wanted} of disk space for the replay can't be reserved ({error.strerror})"
            ) from None


def _readable(size: int) -> str:
    """Bytes, in a unit for people."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def nameless(size: int) -> Arena:
    """`size` bytes that can be handed to a process at its start."""
    if not hasattr(os, "memfd_create"):
        return Arena(size)
    descriptor = os.memfd_create("replay")
    os.ftruncate(descriptor, size)
    arena = Arena(size, descriptor)
    weakref.finalize(arena, os.close, descriptor)
    return arena
