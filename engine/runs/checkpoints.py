"""Checkpoints: folders that are either complete or absent.

The learner writes tensors (safetensors) and `state.json` to a hidden `.partial` folder and seals it with a manifest of
versions, sizes and checksums. The host verifies it, renames it to `step-…`, and removes the oldest checkpoint, which
gets a hidden name first. So a folder named `step-…` is complete, whichever process is killed at any time. Nothing is
unpickled, and torch is not imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine import __version__
from engine.errors import UserError
from engine.protocol.results import Count
from engine.protocol.sinks import BEST_POLICY_FILE as BEST_POLICY_FILE
from engine.runs.policies import checked_metadata
from engine.runs.run import Run
from engine.runtime.files import new_file, open_regular, read_bounded
from engine.runtime.formats import parsed_json, safetensors_header, uncollected
from engine.runtime.text import printable

FORMAT = 4
MANIFEST = "manifest.json"
POLICY_FILE = "policy.safetensors"
_POLICY_FORMATS = "mario-tui-policy-"
POLICY_FORMAT = f"{_POLICY_FORMATS}3"
_WEIGHTS = ("F16", "F32", "F64")
"""Dtypes of a policy's weights; the bounds of other ones are not checked."""
_PREFIX = "step-"
_REPLACED = "-replaced"
_PIECE_BYTES = 2**24
_MAX_MANIFEST_BYTES = 2**24
OnProgress = Callable[[float], object]
"""Called with the fraction done of work that takes long; an exception that it raises ends the work."""


class CheckpointError(UserError):
    """A checkpoint is missing, incomplete, damaged or not of mario-tui."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise `CheckpointError` that names the file if it can't be read in the block, or has damaged contents."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from None


class Entry(msgspec.Struct, frozen=True):
    """A file of a checkpoint."""

    size: int  # bytes
    sha256: str  # hexadecimal


class _Format(msgspec.Struct):
    """The part of a manifest that all versions have in common."""

    format: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `manifest.json`."""

    format: int
    version: str  # of mario-tui
    env_steps: Count
    updates: Count
    files: dict[str, Entry]


def folder_name(env_steps: int) -> str:
    return f"{_PREFIX}{env_steps:012d}"


def seal(folder: Path, env_steps: int, updates: int, progress: Callable[[], object] = lambda: None) -> None:
    """Write the manifest of all files in `folder` and sync them to disk. `progress` is called after each piece."""
    files = {}
    for path in sorted(folder.iterdir()):
        files[path.name] = Entry(path.stat().st_size, _sha256(path, lambda count: progress()))
        sync(path)
    manifest = Manifest(format=FORMAT, version=__version__, env_steps=env_steps, updates=updates, files=files)
    with new_file(folder / MANIFEST) as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest)))
    sync(folder / MANIFEST)
    sync(folder)


def verify(folder: Path, *, checksums: bool = True, progress: OnProgress = lambda done: None) -> Manifest:
    """Check sizes and checksums of a sealed folder. Raises `CheckpointError` naming the file that is wrong.

    `checksums=False` skips the checksums, which read every byte.
    """
    manifest = read_manifest(folder)
    total, read = max(1, sum(entry.size for entry in manifest.files.values())), 0

    def count(size: int) -> None:
        nonlocal read
        read += size
        progress(read / total)

    for name, entry in manifest.files.items():
        path = folder / name
        if path.parent != folder or not path.is_file() or path.is_symlink():
            raise CheckpointError(f"{path}: missing from the checkpoint")
        with reading(path):
            intact = path.stat().st_size == entry.size and (not checksums or _sha256(path, count) == entry.sha256)
        if not intact:
            raise CheckpointError(f"{path}: damaged (size or checksum differs from the manifest)")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a sealed folder, whose files are not looked at. Raises `CheckpointError`."""
    path = folder / MANIFEST
    with reading(path):
        try:
            content = read_bounded(path, _MAX_MANIFEST_BYTES)
        except FileNotFoundError:
            raise CheckpointError(f"{folder}: not a checkpoint of mario-tui (no {MANIFEST})") from None
        format_ = parsed_json(content, _Format).format
        if format_ != FORMAT:
            age = "an older" if format_ < FORMAT else "a newer"
            raise CheckpointError(
                f"{folder}: written by {age} version of mario-tui (format {format_}); this one reads format {FORMAT}"
            )
        return parsed_json(content, Manifest)


def commit(partial: Path, final: Path) -> None:
    """Rename a sealed folder to `final`. An older checkpoint of that name is kept until then.

    The folder must have been sealed just now, or verified: only the sizes of its files are checked. Raises
    `CheckpointError` if it is not complete, `OSError` if it can't be renamed; the call can then be repeated.
    """
    replaced = final.with_name(final.name + _REPLACED)
    if partial.exists() or not final.exists():
        verify(partial, checksums=False)
        if final.exists():
            remove(replaced)
            final.rename(replaced)
        partial.rename(final)
    else:  # an earlier call came so far
        verify(final, checksums=False)
    remove(replaced)
    sync(final.parent)


def committed(run: Run) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return [path for path in folders(run) if (path / MANIFEST).is_file()]


def folders(run: Run) -> list[Path]:
    """Return what has the name of a checkpoint, oldest first, also without a manifest."""
    found = (path for path in run.path.glob(f"{_PREFIX}*") if path.is_dir())
    return sorted(found, key=lambda path: (path.name.removesuffix(_REPLACED), not path.name.endswith(_REPLACED)))


def rotate(run: Run, keep: int, damaged: Collection[Path] = ()) -> None:
    """Remove all but the newest `keep` checkpoints. Those known to be `damaged` stay, but don't count."""
    for path in [path for path in committed(run) if path not in damaged][:-keep]:
        remove(path)


def give_way(run: Run, progress: OnProgress = lambda done: None) -> Path | None:
    """Remove the oldest checkpoint, to make room for a new one, and return it; None if it can't be, or if no newer one
    is intact."""
    oldest = next(iter(committed(run)), None)
    if oldest is None or newest(run, progress=progress) in (oldest, None):
        return None
    remove(oldest)
    return None if oldest.exists() else oldest


def recover(run: Run) -> list[Path]:
    """Commit complete checkpoints that a dead writer left behind, and remove its incomplete ones.

    Returns the committed folders. No writer may be at work.
    """
    found = []
    for path in sorted(run.path.glob(f".{_PREFIX}*")):
        final = run.path / path.name[1:].split(".")[0]
        if path.name.endswith(".partial") and not final.exists():
            with contextlib.suppress(OSError, CheckpointError):
                verify(path)
                commit(path, final)
                found.append(final)
        shutil.rmtree(path, ignore_errors=True)
    return found


def newest(
    run: Run, on_skip: Callable[[str], object] = lambda reason: None, progress: OnProgress = lambda done: None
) -> Path | None:
    """The newest checkpoint that passes `verify`. `on_skip` is called with the reason for each newer one."""
    for path in reversed(folders(run)):
        try:
            verify(path, progress=progress)
        except CheckpointError as error:
            on_skip(str(error))
        else:
            return path
    return None


def policy_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a policy file (network, observation, actions, stage, counters), read without torch.

    Raises `CheckpointError` if the file is not a policy of mario-tui.
    """
    foreign = f"{path}: not a policy of mario-tui"
    try:
        metadata = safetensors_header(path)[0].get("__metadata__", {})
        format = metadata.get("format")
        if format != POLICY_FORMAT:
            if not format.startswith(_POLICY_FORMATS):
                raise CheckpointError(foreign)
            shown = printable(format[:40])
            raise CheckpointError(
                f"{path}: written by another version of mario-tui (format {shown}; this one reads {POLICY_FORMAT})"
            )
        with uncollected():
            said = json.loads(metadata["policy"])
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read ({error.strerror or error})") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise CheckpointError(foreign) from None
    try:
        return checked_metadata(said)
    except ValueError as error:
        raise CheckpointError(f"{foreign} ({error})") from None


def check_policy(path: Path) -> dict[str, Any]:
    """The metadata of a policy file, whose weights are complete and finite. Raises `CheckpointError`.

    Whether they are those of its network is known only where the network is built.
    """
    from engine.runtime.stored_arrays import check_tensors  # imports NumPy, which lists of runs don't need

    metadata = policy_metadata(path)
    with reading(path):
        entries = check_tensors(path)
    for name, entry in entries.items():
        if entry.dtype not in _WEIGHTS:
            raise CheckpointError(f"{path}: damaged ({name} must be {', '.join(_WEIGHTS)}, got {entry.dtype})")
    return metadata


def remove(folder: Path) -> None:
    """Remove a checkpoint: rename it at once, then delete as much of it as possible."""
    hidden = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(hidden, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _sha256(path: Path, progress: Callable[[int], object]) -> str:
    """`progress` is called with the size of each piece."""
    digest = hashlib.sha256()
    with open_regular(path, os.O_RDONLY) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            progress(len(piece))
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Flush a file or folder to its disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
