"""How a process ended, in words."""

from __future__ import annotations


def how_it_ended(code: int | None) -> str:
    """The exit code of `multiprocessing` or `subprocess` in words: negative ones are signals."""
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
