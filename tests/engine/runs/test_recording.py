"""Recordings of other versions."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.games import game_of
from engine.host.run_files import RunFiles
from engine.host.run_state import RunState
from engine.protocol.framing import _HEADER, encode, pack, read_message
from engine.protocol.messages import Episode, Evaluation, Event, Hello, Lanes, Log, TimeSplits
from engine.protocol.outcome import mean_keys
from engine.runs.recording import read_known, read_recording
from engine.runs.run import Run
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
    run = Run(tmp_path)
    of_another_version(run.history_path)
    if damaged:
        run.history_path.write_bytes(b"no recording")
    content, state = run.history_path.read_bytes(), RunState()
    problem = RunFiles(run).restore_history(state, 10**9)
    assert (tmp_path / "history.old").read_bytes() == content and not run.history_path.exists()
    assert "kept in history.old" in problem
    assert bool(state.points.items) is not damaged


@pytest.mark.parametrize("game", ["mario", "tetris"])
def test_a_recording_of_the_version_before_results_keeps_every_number(game: str) -> None:
    path = RECORDING.with_name(f"earlier-{game}.msgpack")
    before = {message["type"]: message for message in messages_in(path)}
    (hello, *current), unknown = read_known(path)
    assert isinstance(hello, Hello) and hello.outcome == game_of(game).outcome and unknown == 0
    for said, event in zip(before["Hello"]["events"], hello.events, strict=True):
        if isinstance(event, Episode):
            named = hello.outcome.named(event.results)
            assert {name: said[name] for name in named.keys() & said.keys()} == {
                name: value for name, value in named.items() if name in said
            }
            assert (event.success, event.task, event.cleared) == (said["flag"], said["stage"], said["cleared"])
        elif isinstance(event, Evaluation):
            means = mean_keys(hello.outcome.named(event.results))
            assert means["mean_score"] == said["mean_score"] and event.clears == said["clears"]
    (lanes,) = (event for event in current if isinstance(event, Lanes))
    assert [hello.outcome.named(lane.best_results)["score"] for lane in lanes.lanes] == [
        lane["best_score"] for lane in before["Lanes"]["lanes"]
    ]
    assert [(task.task, task.episodes) for task in lanes.tasks] == [
        (stage["stage"], stage["episodes"]) for stage in before["Lanes"]["stages"]
    ]
    (splits,) = (event for event in current if isinstance(event, TimeSplits))
    assert [split.process for split in splits.processes] == [each["process"] for each in before["Stages"]["processes"]]


def messages_in(path: Path) -> list[dict[str, Any]]:
    """The messages of a recording as they are."""
    found, file = [], io.BytesIO(path.read_bytes())
    with contextlib.suppress(EOFError):
        while True:
            found.append(read_message(file, msgspec.msgpack.decode))
    return found
