"""The exit status of a command that has followed a run to its end."""

from __future__ import annotations

import sys

from engine.errors import UserError
from engine.protocol.messages import Failed, Finished
from engine.runs.run import Run
from engine.runtime.text import printable


def exit_status(run: Run, end: Finished | Failed | None) -> int:
    """0 if a run has finished or was stopped; otherwise 1, with the reason on stderr. `end`: what its host has told.

    Raises `UserError` (exit status 2) if this machine can't do what was requested.
    """
    if isinstance(end, Finished):
        return 0
    if isinstance(end, Failed) and end.usage:
        raise UserError(end.reason)
    if end is None:  # it crashed, or its recording, which tells more, could not be written
        record = run.record()
        if record.state == "finished":
            return 0
        reason = record.reason if record.state == "failed" else "its host crashed"
    else:
        reason = end.reason
    print(printable(f"mario-tui: {run.name} failed: {reason}; log: {run.log_path}"), file=sys.stderr)
    return 1
