"""How processes end."""

from __future__ import annotations

import signal


def how_it_ended(code: int | None) -> str:
    """In words, the exit code of `multiprocessing` or `subprocess`: negative ones are signals."""
    if code is None or code >= 0:
        return f"exit status {code}"
    named = {number.value: number.name for number in signal.Signals}  # real-time signals have no names
    return f"killed by {named.get(-code, f'signal {-code}')}"
