"""Several clients on one host: slow ones, broken ones, rude ones; and the files a host leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.host import client as client_module
from engine.host import host_events, runner_link
from engine.host.client import HostClient, HostGone, HostProcess, attach
from engine.host.event_server import socket_path
from engine.host.run_files import CheckpointKeeper
from engine.host.run_state import MAX_POINTS, RunState
from engine.host.runner_link import RunnerProcess
from engine.host.supervisor import Host
from engine.monitoring.machine import SystemSampler
from engine.protocol import framing, messages
from engine.protocol.commands import Checkpoint, Evaluate, Pause, Render, Resume, Set, Stop
from engine.protocol.messages import SCREEN_SHAPE, Beat, Evaluation, Frame, Log, Point, Progress, Ready, Saved, Thought
from engine.runners.links import CommandQueue, FrameMailbox, ParentLink, ReportQueue
from engine.runs import checkpoints
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from engine.runs.run import HeldRun, Run
from tests.support.app import RECORDING
from tests.support.host import nested
from tests.support.program import (
    PATIENCE_S,
    headless,
    next_event,
    nobody_is_left,
    read_event,
    spawned_by,
    the_run,
    wait_until,
)


@pytest.mark.long
@pytest.mark.process
def test_many_clients_one_run(tmp_path: Path) -> None:
    with headless("--steps", "100000000", "--burnin", "200", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        address = Path(run.record().socket)
        assert stat.S_IMODE(address.stat().st_mode) == 0o600
        assert stat.S_IMODE(address.parent.stat().st_mode) & 0o077 == 0

        with HostClient(run) as one, HostClient(run) as two:
            # Somebody who connects, asks for pictures and never reads.
            sleeper = socket.socket(socket.AF_UNIX)
            sleeper.connect(str(address))
            sleeper.sendall(framing.pack(Render(on=True, fps=30)))
            # Somebody who talks nonsense, and somebody who leaves in the middle of a word.
            for nonsense in (b"\xff\xff\xff\xff", framing.pack(Pause())[:-1] + b"\xc1", b"\x00\x00", nested("Pause")):
                rude = socket.socket(socket.AF_UNIX)
                rude.connect(str(address))
                rude.sendall(nonsense)
                rude.close()
            for _ in range(3):
                next_event(one, Log, lambda log: log.level == "warning" and "invalid command" in log.text)

            one.send(Render(on=True, fps=10))
            frame = next_event(one, Frame)
            assert len(frame.rgb) == frame.height * frame.width * 3
            later = next_event(one, Frame, lambda f: f.index > frame.index)
            assert later.rgb != frame.rgb or next_event(one, Frame).rgb != frame.rgb
            thought = later.thought
            assert one.hello.actions == ["noop", "right", "right+A", "right+B", "right+A+B"]
            assert thought.shape == (4, 1, 50, 60) and len(thought.q_values) == 5
            assert thought.random or thought.q_values[thought.action] == max(thought.q_values)
            one.send(Render(on=False))

            one.send(Pause())
            paused = next_event(two, Progress, lambda p: p.state == "paused")  # each sees what the other did
            two.send(Checkpoint())
            saved = next_event(one, Saved)
            assert saved.env_steps == paused.env_steps
            two.send(Resume())
            assert next_event(one, Progress, lambda p: p.env_steps > paused.env_steps).state == "running"

            two.send(Stop(reason="enough"))
            end = next_event(one, messages.Finished)
            assert end.summary.reason == "enough"
            with pytest.raises(HostGone):
                while True:
                    one.receive()
        process.communicate(timeout=PATIENCE_S)  # the sleeper has read nothing to this day
        assert process.returncode == 0
        assert "Traceback" not in run.log_path.read_text()
        sleeper.close()
        assert not address.exists()


@pytest.mark.long
@pytest.mark.process
def test_who_comes_late_gets_the_history(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        while read_event(process, "progress")["wall_s"] < 2 or read_event(process, "episode")["episode"] < 3:
            pass
        run = the_run(tmp_path)
        with HostClient(run) as client:
            view = RunState()
            view.apply(client.hello)
            episodes = [event for event in view.events if isinstance(event, messages.Episode)]
            numbers = [episode.episode for episode in episodes]  # the newest; a fast run has ended hundreds by now
            assert len(numbers) >= 3
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert view.points.items
            assert view.ready is not None


@pytest.mark.process
def test_a_run_without_a_host_says_so(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
    wait_until(lambda: not run.is_alive(), "the host's end")
    with pytest.raises(UserError, match="is not running"):
        HostClient(Run(run.path))


@pytest.mark.process
def test_a_host_that_is_just_starting_is_waited_for(tmp_path: Path) -> None:
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path), "burnin": 100}))
    with ThreadPoolExecutor() as pool:
        attached = pool.submit(attach, run)
        host = HostProcess(run)
        client = attached.result(PATIENCE_S)
    assert client is not None
    with client:
        assert client.hello.pid == host.process.pid
        client.send(Stop())
        with pytest.raises(HostGone):
            while True:
                client.receive()
    host.process.wait(PATIENCE_S)
    assert attach(run) is None


@pytest.mark.process
def test_a_run_whose_socket_went_is_attached_to_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As $XDG_RUNTIME_DIR does when its user logs out."""
    runtime = Path(tempfile.mkdtemp(prefix="mario-tui-test-", dir="/tmp"))  # a socket's address is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        before = run.record().socket
        assert Path(before).is_relative_to(runtime)
        with HostClient(run) as connected:
            shutil.rmtree(runtime)
            client = attach(run)
            assert client is not None
            with client:
                assert run.record().socket != before
                here = next_event(client, Progress)
                next_event(connected, Progress, lambda p: p.env_steps > here.env_steps)  # it did not notice
                client.send(Stop())
                next_event(client, messages.Finished)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert not Path(run.record().socket).exists()


def test_a_run_that_is_alive_without_an_answer_says_so(tmp_path: Path) -> None:
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}))
    record = run.record()
    record.state, record.socket = "running", str(tmp_path / "gone.sock")
    run.write_record(record)
    with run.lock(), pytest.raises(UserError, match=r"its host does not answer at .*gone\.sock \(No such file"):
        HostClient(run)


def test_a_host_of_another_version_is_told_at_once_whatever_its_greeting_holds(tmp_path: Path) -> None:
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}))
    record = run.record()
    record.state, record.socket = "running", str(socket_path(run))
    run.write_record(record)
    greeting = msgspec.msgpack.encode({"type": "Hello", "protocol": 99, "events": "in another way"})

    def greet(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(len(greeting).to_bytes(4, "big") + greeting)
            connection.recv(1)

    with run.lock(), socket.socket(socket.AF_UNIX) as server, ThreadPoolExecutor() as pool:
        server.bind(record.socket)
        server.listen()
        pool.submit(greet, server)  # once: there is no second try
        with pytest.raises(UserError, match=r"speaks protocol version 99, not \d+; use the mario-tui that started it"):
            attach(run)
    Path(record.socket).unlink()


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_a_clock_that_was_set_does_not_make_anybody_wait(ahead_s: float, tmp_path: Path) -> None:
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}))
    record = run.record()
    record.updated_at = time.time() + ahead_s
    (run.path / "run.json").write_bytes(msgspec.json.encode(record))
    assert attach(run) is None


def test_a_picture_with_an_undecodable_thought_is_shown_without_it() -> None:
    screen = FrameMailbox(multiprocessing.get_context("spawn"))
    picture = np.full(SCREEN_SHAPE, 7, np.uint8)
    thought = Thought(q_values=[1.0], action=0, random=False, shape=(0, 0, 0, 0), seen=b"")
    screen.write(picture, thought)
    assert screen.read(0) == (2, picture.tobytes(), thought)
    screen._views()[3][:4] = 0xC1  # MessagePack never uses this byte
    assert screen.read(0) == (2, picture.tobytes(), None)


@pytest.mark.usefixtures("executed")
@pytest.mark.process
def test_a_runner_that_hangs_while_it_starts_is_stopped_at_once(tmp_path: Path) -> None:
    with headless("--game", "snake", "--steps", "100000000", cwd=tmp_path) as process:
        wait_until(lambda: list((tmp_path / "checkpoints").glob("*/run.json")), "the run's folder", by=process)
        run = the_run(tmp_path)
        wait_until(lambda: run.record().socket, "the host", by=process)

        def suspended() -> bool:
            found = spawned_by(psutil.Process(run.record().pid))
            for runner in found:
                runner.suspend()
            return bool(found)

        wait_until(suspended, "the runner, which imports PyTorch for now", by=process)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert json.loads(out.splitlines()[-1])["reason"] == "stopped before training began"
    nobody_is_left(tmp_path)


@pytest.mark.long
@pytest.mark.process
def test_clients_are_limited_and_who_comes_too_many_is_told(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process, contextlib.ExitStack() as clients:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with pytest.raises(UserError, match="clients are connected; no more are accepted"):
            for _ in range(100):
                clients.enter_context(HostClient(run))
        clients.close()

        def accepted() -> HostClient | None:
            with contextlib.suppress(UserError):
                return HostClient(run)
            return None

        with wait_until(accepted, "room for a client") as client:
            client.send(Stop())
            next_event(client, messages.Finished)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0


@pytest.mark.long
@pytest.mark.process
def test_a_host_that_is_suspended_keeps_no_client_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_ANSWER_S", 0.2)
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client:
            host = psutil.Process(run.record().pid)
            host.suspend()
            with pytest.raises(HostGone):  # at once, when the socket is full
                while True:
                    client.send(Evaluate())
            with pytest.raises(UserError, match=r"did not answer within"):
                HostClient(run)
            host.resume()


def _start_forever(*_: Any) -> None:
    signal.pause()


@contextlib.contextmanager
def runner_with(
    main: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Iterator[RunnerProcess]:
    """A runner process that does `main`; it is killed in the end."""
    monkeypatch.setattr(runner_link, "main", main)
    runner = RunnerProcess(Run(folder), RunConfig(), **options)
    runner.start(None)
    try:
        yield runner
    finally:
        runner.kill()


@pytest.mark.process
async def test_a_runner_that_never_starts_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runner_with(_start_forever, tmp_path, monkeypatch, start_s=0.1) as runner:
        async with asyncio.timeout(PATIENCE_S):
            assert await runner.reports.get() is None
        assert runner.how_it_ended() == "the runner process did not start within 0.1 s"


def _warn_and_hang(run: Path, config: RunConfig, commands: CommandQueue, reports: ReportQueue, *_: Any) -> None:
    reports.put(Ready(device="cpu", precision="float32", lane_threads=1, torch_threads=1))
    reports.put(Log(at=time.time(), level="warning", text="the disk is slow"))
    reports.put(Beat(within_s=0.5))
    reports.put(Log(at=time.time(), level="warning", text="CartPole-v1: lane 2, episode 5, step 7: no answer for 3 s"))
    reports.put(Log(at=time.time(), level="info", text="a checkpoint was saved"))
    signal.pause()


@pytest.mark.process
async def test_a_runner_that_hangs_says_what_it_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with runner_with(_warn_and_hang, tmp_path, monkeypatch, beat_s=4.0) as runner:
        async with asyncio.timeout(PATIENCE_S):
            while await runner.reports.get() is not None:
                pass
        said = "the runner process hung (CartPole-v1: lane 2, episode 5, step 7: no answer for 3 s)"
        assert runner.how_it_ended() == said


def _report_what_no_host_can_read(
    run: Path, config: RunConfig, commands: CommandQueue, reports: ReportQueue, *_: Any
) -> None:
    reports._writer.send_bytes(b"as another version would")
    signal.pause()


@pytest.mark.process
async def test_a_report_that_can_not_be_read_ends_the_runner_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runner_with(_report_what_no_host_can_read, tmp_path, monkeypatch) as runner:
        async with asyncio.timeout(PATIENCE_S):
            failed = await runner.reports.get()
            assert isinstance(failed, messages.Failed) and "Error: " in failed.reason
            assert await runner.reports.get() is None
        assert not runner.is_alive


@pytest.mark.process
async def test_a_runner_that_the_system_refuses_to_start_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    runner = RunnerProcess(Run(tmp_path), RunConfig())
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
    try:
        runner.start(None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    failed = runner.reports.get_nowait()
    assert isinstance(failed, messages.Failed)
    assert failed.reason == "the runner process could not be started ([Errno 24] Too many open files)"
    assert runner.reports.get_nowait() is None
    runner.send(Set(name="learning_rate", value=1e-3))  # nobody is there
    runner.kill()


def _promise_and_warn(run: Path, config: RunConfig, commands: CommandQueue, reports: ReportQueue, *_: Any) -> None:
    reports.put(Ready(device="cpu", precision="float32", lane_threads=1, torch_threads=1))
    reports.put(Beat(within_s=600.0))
    reports.put(Log(at=time.time(), level="warning", text="CartPole-v1: lane 2, episode 5, step 7: no answer for 10 s"))
    signal.pause()


@pytest.mark.process
async def test_a_warning_does_not_shorten_what_a_heartbeat_has_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runner_with(_promise_and_warn, tmp_path, monkeypatch, beat_s=0.1) as runner:
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(await runner.reports.get(), Log):
                pass
        assert runner._deadline > time.monotonic() + 60 and runner.is_alive


def _beat_forever(run: Path, config: RunConfig, commands: CommandQueue, reports: ReportQueue, *_: Any) -> None:
    link = ParentLink(reports, commands)
    link.send(Ready(device="cpu", precision="float32", lane_threads=1, torch_threads=1))
    while True:
        link.beat(within_s=3.0)
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.process
async def test_a_runner_whose_reports_wait_is_alive_and_one_that_sends_none_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runner_with(_beat_forever, tmp_path, monkeypatch) as runner:
        await asyncio.to_thread(wait_until, lambda: runner.ready, "the runner")
        assert isinstance(await runner.reports.get(), Ready)
        first = runner._deadline
        await asyncio.to_thread(wait_until, lambda: runner._deadline > first + 4, "beats that wait, as during a commit")
        assert runner.is_alive
        (process,) = (child for child in multiprocessing.active_children() if child.name == "runner")
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_S):
            for number in range(20_000):  # a pipe holds some 1,500; who sends must not wait
                runner.send(Set(name="learning_rate", value=1.0 / (1 + number)))
            while await runner.reports.get() is not None:
                pass
        assert runner.how_it_ended() == "the runner process hung"


@pytest.mark.process
def test_a_host_that_fails_takes_its_runner_with_it(tmp_path: Path) -> None:
    run = create_run(RunConfig(run_dir=str(tmp_path / "runs")))
    address = socket_path(run)
    address.mkdir()  # it can't listen there
    try:
        host = HostProcess(run)
        assert host.process.wait(PATIENCE_S) == 1
    finally:
        address.rmdir()
    assert f"Is a directory: '{address}'" in run.log_path.read_text()
    nobody_is_left(tmp_path)


async def test_what_fails_every_second_keeps_nothing_else_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the sensor is broken")

    monkeypatch.setattr(SystemSampler, "sample", fail)
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}))
    host = Host(HeldRun(run.path), None, foreground=False)
    host._files.begin(1000)
    await host._listen()
    host._publish(next(event for event in read_recording(RECORDING) if isinstance(event, Progress)))
    assert host._state.progress is not None
    host._publish(msgspec.structs.replace(host._state.progress, state="running", env_steps=77))
    ticking = asyncio.create_task(host._tick())
    async with asyncio.timeout(PATIENCE_S):
        while len(host._state.points.items) < 2 or run.record().env_steps != 77:
            await asyncio.sleep(0.02)
    ticking.cancel()
    await host._server.close()
    host._sinks.close()
    assert caplog.text.count("can't watch the machine: the sensor is broken") == 1


async def test_the_best_evaluation_outlasts_the_steps_that_a_restart_loses(tmp_path: Path) -> None:
    config = make_config({"game": "snake", "run_dir": str(tmp_path)})
    run = create_run(config)
    best = Evaluation(env_steps=300, episodes=1, clears=0, mean_return=9.0, best=True, seconds=0.1, results=(9.0,))
    for reports in ([best], [msgspec.structs.replace(best, env_steps=200, mean_return=1.0, best=False)]):
        host = Host(HeldRun(run.path), None, foreground=False)
        host._files.begin(config.steps)
        await host._listen()
        for report in reports:
            await host._handle(report)
        host._state.rewind(100)
        host._write_record()
        assert host._files.flush(PATIENCE_S)
        await host._server.close()
        host._sinks.close()
        kept = run.record().best
        assert kept is not None and (kept.env_steps, kept.mean_return) == (300, 9.0)


@pytest.mark.process
def test_a_client_that_wants_hardly_any_pictures_takes_them_from_nobody(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as slow, HostClient(run) as fast:
            slow.send(Render(on=True, fps=1e-6))
            next_event(slow, Frame)
            fast.send(Render(on=True, fps=10))
            next_event(fast, Frame)


def point_at(step: int) -> Point:
    return Point(env_steps=step, wall_s=step, mean_return=0, loss=0, q_mean=0, env_steps_per_s=0, beta=0)


def test_charts_thin_out_and_keep_their_ends() -> None:
    view = RunState()
    for step in range(3 * MAX_POINTS):
        view.apply(point_at(step))
    steps = [point.env_steps for point in view.points.items]
    assert len(steps) < MAX_POINTS
    assert steps == sorted(steps)
    assert steps[0] < 8
    assert steps[-1] > 3 * MAX_POINTS - 9


def test_charts_of_a_late_client_thin_out_as_evenly(tmp_path: Path) -> None:
    host, late = RunState(), RunState()
    points = [point_at(step) for step in range(20_000)]
    for point in points[:10_000]:
        host.apply(point)
    late.apply(host_events.hello(HeldRun(create_run(RunConfig(run_dir=str(tmp_path))).path), RunConfig(), host))
    for point in points[10_000:]:
        host.apply(point)
        late.apply(point)
    for view in (host, late):
        steps = [point.env_steps for point in view.points.items]
        assert abs(sum(step < 10_000 for step in steps) - len(steps) / 2) < 0.1 * len(steps)


def test_decoding_takes_only_what_the_page_of_messages_lists() -> None:
    assert framing.decode_command(framing.encode(Pause())) == Pause()
    unreal = [framing.encode(Render(on=True, fps=fps)) for fps in (0.0, -1.0, math.nan)]
    for foreign in (b"\x80\x04N.", msgspec.msgpack.encode({"type": "Shell", "command": "rm"}), b"", *unreal):
        with pytest.raises(msgspec.DecodeError):
            framing.decode_command(foreign)
    with pytest.raises(ValueError, match="at most"):
        framing.body_length(b"\xff\xff\xff\xff")


@pytest.mark.parametrize("start", [None, "another/step-000000000016"])
def test_a_first_checkpoint_that_was_complete_before_a_crash_is_resumed_from(start: str | None, tmp_path: Path) -> None:
    run = create_run(RunConfig(run_dir=str(tmp_path / "runs")))
    partial = run.path / f".{checkpoints.folder_name(8)}.1.partial"
    partial.mkdir()
    (partial / checkpoints.POLICY_FILE).write_bytes(b"weights")
    checkpoints.seal(partial, 8, updates=1)
    keeper = CheckpointKeeper(run, 3, None if start is None else tmp_path / start)
    keeper.recover()
    assert keeper.newest == run.path / checkpoints.folder_name(8)
    assert keeper.env_steps == 8


@pytest.mark.long
@pytest.mark.process
def test_a_host_that_was_short_of_descriptors_for_a_moment_watches_on(tmp_path: Path) -> None:
    with headless("--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        host = psutil.Process(run.record().pid)
        limit = host.rlimit(psutil.RLIMIT_NOFILE)
        host.rlimit(psutil.RLIMIT_NOFILE, (0, limit[1]))  # what is open stays open
        wait_until(lambda: "can't watch the machine" in run.log_path.read_text(), "the complaint")
        host.rlimit(psutil.RLIMIT_NOFILE, limit)
        seen = run.record().env_steps
        wait_until(lambda: run.record().env_steps > seen, "a later record")
