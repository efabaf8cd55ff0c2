"""The exit status of a command that has followed a run to its end."""

from __future__ import annotations

import sys

from engine.errors import UserError
from engine.protocol.messages import Failed, Finished
from engine.runs.run import NOT_BEGUN, Run, RunRecord
from engine.runtime.text import printable


def exit_status(run: Run, end: Finished | Failed | None) -> int:
    """0 if a run has finished or was stopped with its state saved; otherwise 1, with the reason on stderr. `end`: what
    its host has told.

    Raises `UserError` (exit status 2) if this machine can't do what was requested.
    """
    if isinstance(end, Finished):
        if end.summary.reason != NOT_BEGUN:
            return 0
        print(printable(f"mario-tui: {run.name}: {NOT_BEGUN}"), file=sys.stderr)
        return 1
    if isinstance(end, Failed) and end.usage:
        raise UserError(end.reason)
    # Without `end`, it crashed, or its recording, which tells more, could not be written.
    reason = failure(run.record()) if end is None else end.reason
    if not reason:
        return 0
    print(printable(f"mario-tui: {failed_line(run, reason)}"), file=sys.stderr)
    return 1


def failure(record: RunRecord) -> str:
    """Why a run failed that has no host any more; empty if it has finished or was stopped."""
    return "" if record.state == "finished" else record.reason or "its host crashed"


def failed_line(run: Run, reason: str) -> str:
    return f"{run.name} failed: {reason}; log: {run.log_path}"
