"""A run without a front end: starts its host, and returns once training has begun."""

from __future__ import annotations

import json
import sys

from engine.errors import UserError
from engine.host.client import HostProcess, InvalidMessage
from engine.protocol.messages import Failed, Finished, Log, Progress
from engine.runs.lookup import how_to_name
from engine.runs.run import ACTIVE
from engine.runtime.text import printable
from mario_tui.data.run_status import RunStatus, exit_status
from mario_tui.launch import Plan, busy_warning


def train_detached(plan: Plan, as_json: bool) -> int:
    """Start the run and wait until it trains; print where it is. Returns the exit status: 0 once it trains, else that
    of the same run without the dashboard. Ctrl-C leaves the run alone."""
    host = plan.start()
    if warning := busy_warning(host.run):
        _warn(warning)
    try:
        end = _begun(host)
    except (UserError, InvalidMessage) as error:  # the host did not start
        host.process.kill()
        print(f"mario-tui: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        text = f"mario-tui: {host.run.name} is left starting; to end it: mario-tui stop {how_to_name(host.run)}"
        print(printable(text), file=sys.stderr)
        raise
    if not isinstance(end, Progress):
        host.process.wait()
        if status := exit_status(host.run, end):
            return status
    state = end.state if isinstance(end, Progress) else RunStatus.of_record(host.run.record())
    if as_json:
        print(json.dumps({"name": host.run.name, "path": str(host.run.path), "state": state}))
    else:
        print(printable(f"{host.run.name}: {state} in {host.run.path}"))
    return 0


def _begun(host: HostProcess) -> Progress | Finished | Failed | None:
    """The first report of training, or the end if that came first; None if the host was lost. Raises `UserError` if it
    did not start, `InvalidMessage`."""
    with host.connect() as client:
        for event in client.events():
            match event:
                case Finished() | Failed():
                    return event
                case Progress() if event.state in ACTIVE and event.state != "starting":  # else the end itself follows
                    return event
                case Log(level="warning" | "error"):
                    _warn(event.text)
    return None


def _warn(text: str) -> None:
    print(printable(f"mario-tui: warning: {text}"), file=sys.stderr)
