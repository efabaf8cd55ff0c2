"""The stopwatch: which time counts for which section and thread, and what a mark costs."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.host.run_state import RunState
from engine.monitoring import split
from engine.protocol.messages import Split, TimeSplits
from engine.runtime.stopwatch import SECTIONS, SHARES, Stopwatch, write_part
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.panels.machine import TimeSplitPanel


def work(seconds: float) -> None:
    """Keep a core busy until this thread has used `seconds` of CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_time_counts_for_the_innermost_stage() -> None:
    def measured() -> Split:
        stopwatch = Stopwatch()
        before = stopwatch.row()
        with stopwatch("forward"):
            work(0.03)
            with stopwatch("transfer"):
                work(0.06)
        return split(before, stopwatch.row(), "mine")

    # Between the sections nothing is done, unless a busy machine stops the thread just there: not in each of five.
    found = max((measured() for _ in range(5)), key=lambda each: sum(each.loop.values()))
    assert found.process == "mine"
    assert found.cpu["transfer"] * found.seconds == pytest.approx(0.06, abs=0.01)
    assert found.cpu["forward"] * found.seconds == pytest.approx(0.03, abs=0.01)
    assert found.loop == found.busy
    assert sum(found.loop.values()) == pytest.approx(1.0, abs=0.02)


def test_waiting_counts_in_the_loop_and_the_work_in_the_other_thread() -> None:
    stopwatch = Stopwatch()
    pool = ThreadPoolExecutor(2)
    before = stopwatch.row()

    @stopwatch("backward")
    def backward() -> None:
        work(0.06)

    @stopwatch("forward")
    def forward() -> None:
        work(0.02)
        backward()

    with stopwatch.wait(SHARES):
        for done in [pool.submit(forward) for _ in range(2)]:
            done.result()
    with stopwatch.wait("emulate"):
        pool.submit(stopwatch("emulate")(work), 0.02).result()
    after = stopwatch.row()
    pool.shutdown()
    found = split(before, after)
    assert sum(found.loop.values()) == pytest.approx(1.0, abs=0.02)
    assert set(found.loop) == {"forward", "backward", "emulate"}
    shares = found.busy["backward"] / found.busy["forward"]
    assert found.loop["backward"] / found.loop["forward"] == pytest.approx(shares, rel=0.01)
    assert found.cpu["backward"] * found.seconds == pytest.approx(0.12, abs=0.02)
    assert found.cpu["emulate"] * found.seconds == pytest.approx(0.02, abs=0.01)


def test_a_loop_in_another_thread_with_sections_of_its_own() -> None:
    found = []

    def loop() -> None:
        stopwatch = Stopwatch(("collect", "learn"), loop=threading.current_thread())
        before = stopwatch.row()
        with stopwatch("collect"):
            work(0.02)
        found.append(split(before, stopwatch.row(), names=stopwatch.sections))

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert list(found[0].loop) == ["collect"]


def test_a_section_that_fails_is_left() -> None:
    stopwatch = Stopwatch()
    with pytest.raises(ValueError, match="oops"), stopwatch("act"):
        raise ValueError("oops")
    before = stopwatch.row()
    work(0.01)
    assert split(before, stopwatch.row()).loop == {}


def test_rows_of_a_restarted_process_give_no_split() -> None:
    stopwatch = Stopwatch()
    with stopwatch("act"):
        work(0.01)
    old = stopwatch.row()
    assert split(old, Stopwatch().row()).seconds == 0.0
    assert split([0.0] * len(old), old).seconds == 0.0  # it has not reported before


def test_a_mark_costs_microseconds() -> None:
    """An iteration of tens of milliseconds has about 20 of them, which take a thousandth of it."""
    stopwatch = Stopwatch()
    begin = time.thread_time()
    for _ in range(10_000):
        with stopwatch("act"):
            pass
    assert (time.thread_time() - begin) / 10_000 < 20e-6


def test_recorded_sections_become_a_trace(tmp_path: Path) -> None:
    stopwatch = Stopwatch()
    with stopwatch("act"):
        pass
    stopwatch.recording = True
    with stopwatch("forward"), stopwatch("transfer"):
        pass
    with stopwatch.wait("emulate"):
        pass
    write_part(stopwatch, tmp_path / "trace-1.part.json", "player")
    from engine.extras.profiling.profile import merged_trace

    trace = merged_trace([tmp_path / "trace-1.part.json"])
    json.dumps(trace)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sorted(event["name"] for event in events) == ["forward", "transfer", "wait for emulate"]
    outer, inner = (next(event for event in events if event["name"] == name) for name in ("forward", "transfer"))
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"player", "MainThread"}
    assert stopwatch.recorded() == []


def test_every_stage_is_listed_once() -> None:
    assert len(set(SECTIONS)) == len(SECTIONS)


def test_the_panel_shows_the_leading_process_and_a_line_for_each_other() -> None:
    leader = Split(process="learner", seconds=0.5, loop={"act": 0.1, "forward": 0.6, "log": 0.001},
                   busy={"forward": 1.5, "act": 0.1}, cpu={})  # fmt: skip
    actor = Split(process="actor 0", seconds=0.5, loop={"emulate": 0.7, "act": 0.2}, busy={}, cpu={})
    starting = Split(process="actor 1", seconds=0.0, loop={}, busy={}, cpu={})
    view = RunState()
    view.apply(TimeSplits(processes=[leader, actor, starting]))
    panel = TimeSplitPanel()
    lines = panel.compose_text(Snapshot(time_splits=view.time_splits), 40).plain.splitlines()
    assert [line.split()[0] for line in lines] == ["learner", "forward", "act", "other", "actor"]
    assert lines[1].split()[-2:] == ["60%", "1.50"] and lines[3].endswith("30%")
    assert "emulate 70%  act 20%" in lines[4]
    assert max(len(line) for line in lines[:4]) <= 40
    assert panel.compose_text(Snapshot(), 40).plain == "not measured yet"
