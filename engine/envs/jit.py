"""numba with its cache in the user's cache folder. Import `njit` from here: numba reads the folder when it loads."""

from __future__ import annotations

import os
from pathlib import Path

_cache_home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(_cache_home) / "mario-tui" / "numba"))

from numba import njit  # noqa: E402

__all__ = ["njit"]
