"""A digest of source files, to tell whether two installations, or two versions, are the same."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def digest_of(files: Iterable[Path], root: Path) -> str:
    """16 hex digits that change with the contents of any of the files, or with its path below `root`."""
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
