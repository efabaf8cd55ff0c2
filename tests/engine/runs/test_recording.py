"""Recordings of other versions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.host.run_files import RunFiles
from engine.host.run_state import RunState
from engine.protocol.framing import _HEADER, encode, pack
from engine.protocol.messages import Event, Hello, Log
from engine.runs.recording import read_recording
from engine.runs.run import HeldRun
from tests.support.app import RECORDING

UNKNOWN = {"type": "Sweep", "env_steps": 7}


def of_another_version(path: Path) -> list[Event]:
    """Write the recording with an unknown event in its history, and one after it; returns what is known of it."""
    hello, *current = read_recording(RECORDING)
    assert isinstance(hello, Hello)
    fields = msgspec.msgpack.decode(encode(hello))
    fields["events"].insert(1, UNKNOWN)
    bodies = [msgspec.msgpack.encode(each) for each in (fields, UNKNOWN)]
    path.write_bytes(b"".join(_HEADER.pack(len(body)) + body for body in bodies) + b"".join(map(pack, current)))
    return [hello, *current]


def test_an_unknown_event_is_left_out_and_the_log_says_so(tmp_path: Path) -> None:
    known = of_another_version(tmp_path / "history.msgpack")
    hello, *current = read_recording(tmp_path / "history.msgpack")
    assert isinstance(hello, Hello) and isinstance(log := hello.events[-1], Log)
    assert log.text == "2 recorded events of another version of mario-tui can't be shown"
    assert [encode(msgspec.structs.replace(hello, events=hello.events[:-1])), *map(encode, current)] == [
        encode(event) for event in known
    ]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_recording_that_can_not_be_read_whole_is_kept_and_told(damaged: bool, tmp_path: Path) -> None:
    run = HeldRun(tmp_path)
    of_another_version(run.history_path)
    if damaged:
        run.history_path.write_bytes(b"no recording")
    content, state = run.history_path.read_bytes(), RunState()
    problem = RunFiles(run).restore_history(state, 10**9)
    assert (tmp_path / "history.old").read_bytes() == content and not run.history_path.exists()
    assert "kept in history.old" in problem
    assert bool(state.points.items) is not damaged
