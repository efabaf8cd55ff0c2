"""What the recording of a run tells, folded at once; a dashboard follows the run instead (`mario_tui.data.feed`)."""

from __future__ import annotations

from engine.errors import UserError
from engine.host.run_state import RunState
from engine.runs.recording import read_recording
from engine.runs.run import Run


def recorded_state(run: Run) -> RunState:
    """The state that the run's host recorded last, every half minute and at its end; empty if there is none."""
    state = RunState()
    try:
        for event in read_recording(run.history_path):
            state.apply(event)
    except UserError:
        return RunState()
    return state
