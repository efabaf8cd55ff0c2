"""`mario_tui.Reporter`: a training loop in a process of its own, its host, and clients of that."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from textual.events import MouseScrollDown

import mario_tui
from engine.config.reading import what_it_obeys
from engine.errors import UserError
from engine.host.client import HostClient, attach
from engine.protocol.commands import Checkpoint, Pause, Render, Resume, Stop
from engine.protocol.messages import Episode, Failed, Finished, Frame, Hello, Log, Point, Progress
from engine.runs.recording import read_recording
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.commands import control
from mario_tui.commands.schema import schema_of
from mario_tui.data.run_status import RunStatus
from mario_tui.headless import progress_line
from mario_tui.screens.compare import CompareScreen
from mario_tui.widgets.runs_table import RunsTable
from tests.support.app import app_is_there, folder_of_runs, opened, shown_as, table_of, text, until
from tests.support.program import PATIENCE_S, kill_hosts, next_event, private_disk, run_program, the_run, wait_until

LOOP = """
import os, signal, sys, time
import numpy as np
import mario_tui
with mario_tui.Reporter("loop", actions=["left", "right"], results=["score"], goal="flag", game="Pole-v1",
                        options={"lr": 1e-3, "net": None}, sinks="json-lines") as run:
    if "forks" in sys.argv and os.fork() == 0:  # as a data loader does: it inherits all files
        signal.pause()
    for step in range(1, 10**9):
        run.progress(env_steps=step, updates=step // 2, loss=1 / step)
        if step % 10 == 0:
            run.episode(step, 10, success=step % 20 == 0, results={"score": -step})
        if step == 50:
            run.evaluation(7.5, 20, successes=4, results={"score": 1})
        if "deaf" not in sys.argv:
            run.frame(lambda: np.full((8, 9, 3), 200, np.uint8))
            run.wait_if_paused()
            if run.stop_requested:
                break
        if "fails" in sys.argv and step == 30:
            raise RuntimeError("out of luck")
        if os.path.exists("enough"):
            break
        time.sleep(0.005)  # what a step of the loop takes
print("trained to the end")
"""


@contextlib.contextmanager
def loop(folder: Path, *how: str) -> Iterator[subprocess.Popen[str]]:
    """The loop, once it is reported; it is killed if it outlives the block, with what it has forked."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, *how], cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until(lambda: list(folder.glob("checkpoints/*/run.json")), "the run", by=process)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        kill_hosts(folder)


def follow(run: Run) -> HostClient:
    client = attach(run)
    assert client is not None
    return client


def ended(run: Run) -> str:
    wait_until(lambda: not run.is_alive(), "the end of the host")
    return f"{run.record().state}: {run.record().reason}"


@pytest.mark.process
def test_a_client_sees_pauses_and_stops_a_loop(tmp_path: Path) -> None:
    with loop(tmp_path) as process:
        run = the_run(tmp_path)
        with follow(run) as client:
            hello = client.hello
            while hello.obeys != ["Pause", "Render", "Resume", "Stop"]:  # once it has called what needs them
                hello = next_event(client, Hello)
            assert (hello.game, hello.runner, hello.steps) == ("Pole-v1", "external", 0)
            assert hello.actions == ["left", "right"] and hello.outcome.results[0].name == "score"
            episode = next_event(client, Episode, lambda each: each.success)
            assert episode.results == (-episode.episode_return,) and episode.env_steps == episode.episode_return
            progress = next_event(client, Progress, lambda each: each.env_steps > 100)
            assert progress.remaining_s is None and math.isnan(progress.epsilon) and 0 < progress.loss < 0.01
            client.send(Render(on=True, fps=30))
            frame = next_event(client, Frame)
            assert (frame.height, frame.width, frame.rgb) == (8, 9, bytes([200]) * 216)
            client.send(Checkpoint())
            assert "checkpoint: the training loop obeys" in next_event(client, Log).text
            client.send(Pause())
            client.send(Pause())
            paused = next_event(client, Progress, lambda each: each.state == "paused")
            client.send(Resume())
            next_event(client, Progress, lambda each: each.state == "running" and each.env_steps > paused.env_steps)
            client.send(Stop(reason="enough"))
            summary = next_event(client, Finished).summary
        assert process.communicate()[0] == "trained to the end\n" and process.returncode == 0
    assert ended(run) == "finished: enough"
    record = run.record()
    assert RunStatus.of_record(record) is RunStatus.STOPPED
    assert record.env_steps == summary.env_steps and record.best is not None and record.best.results == {"score": 1}
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"progress", "episode", "evaluation", "summary"}
    assert sum(line["event"] == "episode" for line in lines) == summary.episodes == summary.env_steps // 10


@pytest.mark.parametrize("how", ["alone", "forks"])
@pytest.mark.process
def test_a_loop_that_is_killed_has_failed(how: str, tmp_path: Path) -> None:
    with loop(tmp_path, how) as process:
        run = the_run(tmp_path)
        with follow(run) as client:
            next_event(client, Progress, lambda each: each.env_steps > 10)
            process.kill()
            assert next_event(client, Failed).reason == "the reporting process ended"
        assert ended(run) == "failed: the reporting process ended"
        assert run.record().env_steps > 0


@pytest.mark.process
def test_a_loop_is_paused_once_it_confirms_it(reporter: mario_tui.Reporter, capsys: pytest.CaptureFixture[str]) -> None:
    reporter.wait_if_paused()
    with follow(Run(reporter.path)) as client, ThreadPoolExecutor() as threads:
        assert control.run(["pause", "here", "--timeout", "1"]) == 124
        assert capsys.readouterr().err == "mario-tui: here: was not paused in time (state: running)\n"
        pausing = next_event(client, Progress, lambda each: each.wants == "paused")
        assert RunStatus.of_progress(pausing) is RunStatus.PAUSING
        assert progress_line(pausing).startswith("pausing 0 steps")
        reporter.progress(env_steps=10)
        trained = next_event(client, Progress, lambda each: each.env_steps == 10)
        assert trained.state == "running" and trained.wall_s > pausing.wall_s
        assert control.run(["resume-training", "here"]) == 0
        next_event(client, Progress, lambda each: each.wants == "running")

        pauses = threads.submit(control.run, ["pause", "here"])  # and at the same time, somebody resumes
        next_event(client, Progress, lambda each: each.wants == "paused")
        assert control.run(["resume-training", "here"]) == 0
        assert pauses.result(PATIENCE_S) == 1
        assert "mario-tui: here: was resumed by somebody else at the same time\n" in capsys.readouterr().err
        next_event(client, Progress, lambda each: each.wants == "running")

        pauses = threads.submit(control.run, ["pause", "here"])
        next_event(client, Progress, lambda each: each.wants == "paused")
        trains_on = threading.Event()

        def look() -> None:
            while not trains_on.is_set():
                reporter.wait_if_paused()

        looks = threads.submit(look)
        assert pauses.result(PATIENCE_S) == 0
        trains_on.set()
        assert not looks.done()
        paused = next_event(client, Progress, lambda each: each.state == "paused")
        assert RunStatus.of_progress(paused) is RunStatus.PAUSED
        assert control.run(["resume-training", "here"]) == 0
        looks.result(PATIENCE_S)


@pytest.mark.process
def test_a_loop_goes_on_without_its_host(tmp_path: Path) -> None:
    with loop(tmp_path, "deaf") as process:
        run = the_run(tmp_path)
        with follow(run) as client:
            assert next_event(client, Progress, lambda each: each.env_steps > 10) and client.hello.obeys == []
            client.send(Pause())
            assert next_event(client, Log).text == "pause: the training loop obeys nothing"
            os.kill(client.hello.pid, signal.SIGKILL)
        assert process.stderr is not None
        assert process.stderr.readline() == (
            f"mario-tui: warning: loop is not reported any more: its host is gone; log: {run.log_path}\n"
        )
        (tmp_path / "enough").touch()
        assert process.communicate() == ("trained to the end\n", "") and process.returncode == 0


@pytest.mark.process
def test_a_loop_is_told_of_a_full_disk_and_its_record_of_its_end(tmp_path: Path) -> None:
    code = """
import os, mario_tui
with mario_tui.Reporter("loop", run_dir=".") as run:
    run.progress(env_steps=5)
    while '"running"' not in (run.path / "run.json").read_text():
        pass
    with open("rest", "wb", 0) as rest:
        try:
            while True:
                rest.write(bytes(4096))
        except OSError:
            pass
print(*(line for line in (run.path / "run.json").read_text().splitlines() if '"state"' in line or '"reason"' in line))
"""
    done = subprocess.run(
        [*private_disk(tmp_path, "1m"), sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == '  "state": "finished",   "reason": "5 environment steps are done",\n'
    assert re.fullmatch(
        r"mario-tui: warning: loop could not be recorded to its end; is its disk full\?; log: .*/loop/run.log\n",
        done.stderr,
    )


@pytest.mark.process
def test_a_loop_that_raises_has_failed_and_the_program_refuses_to_train_it(tmp_path: Path) -> None:
    with loop(tmp_path, "fails") as process:
        assert "RuntimeError: out of luck" in process.communicate()[1] and process.returncode == 1
        run = the_run(tmp_path)
        assert ended(run) == "failed: RuntimeError: out of luck" and run.record().env_steps == 30
    (hello, *_) = read_recording(run.history_path)
    assert isinstance(hello, Hello) and isinstance(hello.events[-1], Failed)
    refusal = "loop is reported by a training loop outside mario-tui, which can't resume, evaluate or play it"
    for command in ("--no-ui --resume", "eval"):
        assert refusal in run_program(*command.split(), "loop", cwd=tmp_path, check=2).stderr
    with pytest.raises(UserError, match=refusal):
        run.config()
    (listed,) = json.loads(run_program("runs", "--json", cwd=tmp_path).stdout)
    assert listed["options"] == {"game": "Pole-v1", "lr": 0.001, "net": "None"}
    assert "charts/episodic_score" in run_program("export", "loop", "--output", "-", cwd=tmp_path).stdout


@pytest.mark.process
def test_a_loop_that_fails_before_it_tells_of_a_step_keeps_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError), mario_tui.Reporter("here", options={"lr": np.float64(0.5)}) as run:
        run.log("begun")
        raise UserError("no such board")
    assert ended(Run(run.path)) == "failed: no such board"
    assert Run(run.path).description().options()["lr"] == 0.5
    (hello, *_) = read_recording(Run(run.path).history_path)
    assert isinstance(hello, Hello) and "begun" in [event.text for event in hello.events if isinstance(event, Log)]


@pytest.mark.process
def test_a_loop_that_never_asks_whether_to_stop_ends_by_itself(reporter: mario_tui.Reporter) -> None:
    run = Run(reporter.path)
    reporter.wait_if_paused()
    with follow(run) as client:
        client.send(Stop(reason="enough"))
        next_event(client, Progress, lambda each: each.state == "stopping")
    reporter.close()
    assert ended(run) == "finished: the training loop has ended"
    assert run.record().told_state == "finished"


@pytest.mark.process
def test_an_evaluation_that_is_refused_is_not_the_best(reporter: mario_tui.Reporter) -> None:
    with pytest.raises(ValueError, match="results must be score"):
        reporter.evaluation(9.0, 1)
    reporter.evaluation(1.0, 1, results={"score": 1})
    reporter.close()
    best = Run(reporter.path).record().best
    assert best is not None and best.mean_return == 1.0


@pytest.fixture
def reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mario_tui.Reporter]:
    monkeypatch.chdir(tmp_path)
    with mario_tui.Reporter("here", results=["score"], lanes=2, total_steps=100, sinks="json-lines") as run:
        yield run


@pytest.mark.process
def test_what_can_not_be_reported_is_refused_with_the_accepted_values(reporter: mario_tui.Reporter) -> None:
    numbers: Any = reporter.progress  # as a program without types calls it
    for call, refusal in (
        (lambda: numbers(loss="low"), "loss must be a number, got 'low'"),
        (lambda: numbers(env_steps=-1), "env_steps must be between 0 and"),
        (lambda: numbers(env_steps=math.nan), "env_steps must be between 0 and .*, got nan"),
        (lambda: numbers(epsilon=2), "epsilon must be between 0 and 1, got 2"),
        (lambda: numbers(mean_return=1), "mean_return must have another name: the run counts it itself"),
        (lambda: numbers(**{"a\nb": 1}), r"names of numbers must be up to 40 printable characters, got 'a\\nb'"),
        (lambda: numbers(**{"x" * 41: 1}), "names of numbers must be up to 40 printable characters, got 'xxx"),
        (
            lambda: numbers(**{f"n{i}": i for i in range(33)}),
            "progress takes at most 32 names besides env_steps.*, got 33",
        ),
        (lambda: numbers(kl="low"), "kl must be a number, got 'low'"),
        (lambda: numbers(q_mean=None), "q_mean must be a number, got None"),
        (
            lambda: reporter.episode(1.0, 1, lane=2, results={"score": 1}),
            "lane must be between 0 and 1, got 2",
        ),
        (lambda: reporter.episode(1.0, 1), "results must be score, got none"),
        (lambda: reporter.episode(1.0, 1, success=True, results={"score": 1}), "success must be False for a Reporter"),
        (lambda: reporter.evaluation(1.0, 0, results={"score": 1}), "episodes must be between 1"),
        (lambda: mario_tui.Reporter("../x"), "name must be up to 100 letters"),
        (lambda: mario_tui.Reporter("x", sinks="nowhere"), "sinks must be none, or names among json-lines"),
        (lambda: mario_tui.Reporter("x", results=["length"]), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", results=["return"]), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", results=["a", "a"]), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", results=["a"], goal="a"), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", goal="event"), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", goal=""), "results and goal must be other names"),
        (lambda: mario_tui.Reporter("x", goal="a\nb"), "goal must be .* printable"),
        (lambda: mario_tui.Reporter("x", options={f"o{i}": i for i in range(100_000)}), "options must take at most 1"),
        (lambda: reporter.frame(lambda: None), r"picture must be uint8 \[height, width, 3\], got NoneType"),
        (lambda: reporter.frame(np.zeros((2, 2))), r"picture must be uint8 \[height, width, 3\], got float64 \[2, 2\]"),
    ):
        with pytest.raises(ValueError, match=refusal):
            call()
    assert [path.name for path in Path("checkpoints").iterdir()] == ["here"]


@pytest.mark.process
def test_pictures_that_fail_later_and_odd_texts_do_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = [np.zeros((6000, 20, 3), np.uint8)]

    def has_failed() -> bool:
        run.frame(lambda: seen[0])
        return run._frames_fail

    with (
        pytest.raises(RuntimeError, match="out of"),
        mario_tui.Reporter("odd", options={"path": Path("a\udc80")}, run_dir=tmp_path / "here") as run,
    ):
        run.frame(lambda: seen[0])
        with follow(Run(run.path)) as client:
            client.send(Render(on=True))
            assert next_event(client, Frame).height == 1000
            seen.clear()
            for text in ({"lr": 1e-3}, None, "a\udc80b"):
                run.log(text)
            wait_until(has_failed, "a picture that fails")
            texts = [next_event(client, Log).text for _ in range(4)]
        raise RuntimeError("out of \udc80")
    assert texts == ["{'lr': 0.001}", "None", r"a\udc80b", "no more pictures: IndexError: list index out of range"]
    place = rf"\({Path(__file__).name}:\d+\)"
    assert re.fullmatch(rf"failed: RuntimeError: out of \\udc80 {place}", ended(Run(run.path)))


@pytest.mark.process
def test_a_loop_never_waits_for_a_host_that_does_not_read(reporter: mario_tui.Reporter) -> None:
    with follow(Run(reporter.path)) as client:
        os.kill(client.hello.pid, signal.SIGSTOP)
        try:
            for step in range(10_000):
                reporter.progress(env_steps=step)
                reporter.episode(float(step), 1, results={"score": 0})
        finally:
            os.kill(client.hello.pid, signal.SIGCONT)
        told = next_event(client, Log, lambda each: "dropped" in each.text).text
        kept = next_event(client, Progress, lambda each: each.env_steps == 9_999).episodes
    assert told == f"{10_000 - kept:,} reports were dropped: the host was too slow to read them" and kept >= 4096


@pytest.mark.process
async def test_a_loop_that_diverges_shows_it_everywhere(reporter: mario_tui.Reporter, tmp_path: Path) -> None:
    run = Run(reporter.path)
    with follow(run) as client:
        reporter.progress(env_steps=100, loss=0.5, q_mean=math.inf, learning_rate=1e-3)
        reporter.episode(1.0, 50, results={"score": 2})
        next_event(client, Point, lambda each: each.loss == 0.5)
        reporter.progress(env_steps=250, loss=math.nan, learning_rate=math.nan)
        reporter.episode(math.nan, 50, results={"score": -math.inf})
        reporter.evaluation(math.nan, 3, results={"score": 2})
        next_event(client, Point, lambda each: math.isinf(each.loss))
        progress = next_event(client, Progress, lambda each: each.episodes == 2)
    assert progress.not_finite == {"loss": 250, "q_mean": 100, "learning_rate": 250} and progress.mean_return == 1.0
    app = MarioApp(open_run=run)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await until(pilot, lambda: "not finite since step 250" in text(dashboard, "chart-loss"), "the loss")
        assert "lr not finite since step 250" in text(dashboard, "replay")
        reporter.progress(env_steps=300, loss=0.25)
        await until(pilot, lambda: "0.250" in text(dashboard, "chart-loss"), "the loss that has recovered")
    reporter.progress(env_steps=400, loss=-math.inf)
    for _ in range(100):
        reporter.episode(math.inf, 1, results={"score": 0})
    reporter.close()
    lines = [
        json.loads(line, parse_constant=pytest.fail)
        for line in (run.path / "metrics.jsonl").read_text().split("\n")[:-1]
    ]
    losses = {line["env_steps"]: line["loss"] for line in lines if line["event"] == "progress"}
    assert (losses[100], losses[250], losses[400]) == (0.5, None, None)
    episode = [line for line in lines if line["event"] == "episode"][1]
    assert (episode["episode_return"], episode["score"]) == (None, None)
    (evaluation,) = (line for line in lines if line["event"] == "evaluation")
    assert evaluation["mean_return"] is None and not evaluation["best"] and run.record().best is None
    end = next(event for event in read_recording(run.history_path) if isinstance(event, Progress))
    assert end.not_finite["loss"] == 400 and end.not_finite["mean_return"] == 400 and math.isinf(end.mean_return)
    assert run.record().mean_return is None
    hello = next(event for event in read_recording(run.history_path) if isinstance(event, Hello))
    told = [event.text.split(":")[0] for event in hello.events if isinstance(event, Log)]
    names = ["q_mean", "loss", "learning_rate", "episode_return", "score", "mean_return"]
    assert sorted(told) == sorted(f"{name} is not finite at step {100 if name == 'q_mean' else 250}" for name in names)
    rows = run_program("export", "here", "--tag", "losses/td_loss", "--output", "-", cwd=tmp_path).stdout.splitlines()
    assert {(row.split(",")[2], row.split(",")[4]) for row in rows[1:]} >= {("100", "0.5"), ("250", "nan")}


@pytest.mark.process
async def test_numbers_of_any_name_have_charts_and_tags_and_others_have_none(
    reporter: mario_tui.Reporter, tmp_path: Path
) -> None:
    run = Run(reporter.path)
    app = MarioApp(open_run=run)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        reporter.progress(env_steps=10, approx_kl=0.25, **{"train/clip fraction": 0.5})
        reporter.evaluation(3.0, 5, results={"score": 1})

        def shown() -> list[str]:
            return [chart.title for chart in dashboard.charts if chart.display]

        await until(pilot, lambda: shown() == ["Mean return", "approx_kl", "train/clip fraction"], "the charts")
        kl = dashboard.charts[3]
        await until(pilot, lambda: "0.250" in str(kl.render()), "the number")
        dashboard.go_to(kl)
        await pilot.press("w")
        assert shown() == ["Mean return", "train/clip fraction"]
        await pilot.press("W", "5")
        assert shown() == ["Mean return", "approx_kl", "train/clip fraction"]
        reporter.progress(env_steps=20, approx_kl=math.nan, **{f"n{i}": i for i in range(30)})
        await until(pilot, lambda: len(shown()) == 33, "all that a loop may name")
        await until(pilot, lambda: "not finite since step 20" in str(kl.render()), "the gap")
        area = dashboard.query_one("#charts")
        await until(pilot, lambda: area.max_scroll_y > 0, "the layout")
        await pilot._post_mouse_events([MouseScrollDown], widget=kl, offset=(20, 3), button=0)
        await until(pilot, lambda: area.scroll_y > 0, "the page has moved")
        area.scroll_end(animate=False)
        await until(pilot, lambda: "29" in str(dashboard.charts[-1].render()), "a chart that has come into sight")
    reporter.progress(env_steps=30)
    reporter.close()
    assert run.record().told_state == "finished"
    lines = [
        json.loads(line, parse_constant=pytest.fail) for line in (run.path / "metrics.jsonl").read_text().splitlines()
    ]
    told = {line["env_steps"]: line.get("numbers") for line in lines if line["event"] == "progress"}
    valid = Draft202012Validator(schema_of("events"))
    assert all(valid.is_valid(line) for line in lines if line["event"] == "progress")
    assert told[10] == {"approx_kl": 0.25, "train/clip fraction": 0.5} and told[20]["approx_kl"] is None
    rows = run_program("export", "here", "--tag", "loop/*", "--output", "-", cwd=tmp_path).stdout.splitlines()
    points = {tuple(row.split(",")[at] for at in (1, 2, 4)) for row in rows[1:]}
    assert {("loop/approx_kl", "10", "0.25"), ("loop/approx_kl", "20", "nan"), ("loop/n29", "30", "29.0")} <= points


def titles(screen: Any) -> list[str]:
    """The charts that are shown."""
    return [chart.full_title for chart in screen.plots() if chart.display]


async def compared(app: MarioApp, pilot: Any) -> Any:
    """All runs on the home screen, once a number that the loop has named is there."""
    await until(pilot, lambda: app.screen.query(RunsTable) and table_of(app).listed, "the runs")
    await pilot.press("A", "c")
    screen = await shown_as(pilot, CompareScreen)
    await until(pilot, lambda: "approx_kl" in titles(screen), "the loop's numbers")
    return screen


@pytest.mark.process
async def test_numbers_of_a_loop_are_compared_like_others(reporter: mario_tui.Reporter, tmp_path: Path) -> None:
    reporter.progress(env_steps=10, approx_kl=0.25)
    reporter.episode(2.0, 10, results={"score": 1})
    folder_of_runs(tmp_path / "checkpoints", trained="finished")
    app = MarioApp(run_dir=str(tmp_path / "checkpoints"))
    usual = ["Mean return", "Evaluated return", "TD loss", "Q estimate", "Environment steps/s"]
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await compared(app, pilot)
        await until(pilot, lambda: titles(screen) == [*usual, "approx_kl"], "all charts: the other run has a loss")
        kl = screen.plots()[-1]
        await until(pilot, lambda: "0.250" in str(kl.render()), "the number")
        reporter.progress(env_steps=20, evaluation=7.5, **{f"n{i}": i for i in range(30)})
        await until(pilot, lambda: len(titles(screen)) == 5 + 32, "all that a loop may name")
        assert titles(screen).count("evaluation") == 1 and "7.5" not in text(screen, "compare-evaluation")
        await until(pilot, lambda: screen.query_one("#grid").max_scroll_y > 0, "more than fits")
        screen.go_to(screen.plots()[-1])
        await until(pilot, lambda: "29" in str(screen.plots()[-1].render()), "a chart that has come into sight")
        screen.go_to(kl)
        await pilot.press("l", "w")
        assert "approx_kl" not in titles(screen)
        await pilot.press("escape", "c")
        screen = await shown_as(pilot, CompareScreen)
        await until(pilot, lambda: "n29" in titles(screen), "the loop's numbers")
        assert "approx_kl" not in titles(screen)  # it is remembered, by name
        await pilot.press("W")
        await until(pilot, lambda: "approx_kl" in titles(screen), "the hidden chart")
        assert [plot.full_title for plot in screen.plots() if plot.logarithmic] == ["approx_kl"]
        screen._runs.go([row.name for row in screen._rows].index("here"))
        screen.set_focus(screen._runs)
        await pilot.press("space")
        await until(pilot, lambda: titles(screen) == usual, "only what the run that is shown has")


@pytest.mark.process
@pytest.mark.parametrize("is_over", [False, True])
async def test_charts_without_numbers_are_left_out_of_a_comparison_of_loops(
    reporter: mario_tui.Reporter, tmp_path: Path, is_over: bool
) -> None:
    reporter.progress(env_steps=10, approx_kl=0.25)
    reporter.episode(2.0, 10, results={"score": 1})
    if is_over:
        reporter.close()
    app = MarioApp(run_dir=str(tmp_path / "checkpoints"))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await compared(app, pilot)
        told = ["Mean return", "Environment steps/s", "approx_kl"]
        await until(pilot, lambda: titles(screen) == told, "what the loop has told")


ENDING = """
import sys
import mario_tui
run = mario_tui.Reporter("ending", total_steps=1000)
for step in range(1, 1001):
    run.progress(env_steps=step)
run.episode(1.0, 1000)
{}
"""


@pytest.mark.parametrize(
    ("last_line", "status", "end"),
    [
        ("", 0, "finished: 1,000 environment steps are done"),
        ("sys.exit(0)", 0, "finished: 1,000 environment steps are done"),
        ("with run: sys.exit()", 0, "finished: 1,000 environment steps are done"),
        ("sys.exit(3)", 3, "failed: SystemExit: 3"),
        ("with run: sys.exit(3)", 3, "failed: SystemExit: 3"),
        ("raise ValueError('odd')", 1, "failed: ValueError: odd"),
        (
            "try: sys.exit(3)\nexcept SystemExit: run.progress(updates=1)",
            0,
            "finished: 1,000 environment steps are done",
        ),
    ],
)
@pytest.mark.process
def test_a_script_that_does_not_close_its_run_ends_it_with_all_its_steps(
    last_line: str, status: int, end: str, tmp_path: Path
) -> None:
    script = ENDING.format(last_line)
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    run = the_run(tmp_path)
    assert ran.returncode == status and re.sub(r" \(.*\)$", "", ended(run)) == end
    assert (run.record().env_steps, run.record().episodes) == (1000, 1)


@pytest.mark.process
async def test_keys_that_the_loop_does_not_obey_are_greyed_out_and_say_why(reporter: mario_tui.Reporter) -> None:
    assert not reporter.stop_requested
    reporter.progress(env_steps=10, learning_rate=0.25)
    app = MarioApp(open_run=Run(reporter.path))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard = await opened(pilot)
        await until(pilot, lambda: dashboard.check_action("save", ()) is None, "the keys of the loop")
        await until(pilot, lambda: dashboard.check_action("stop", ()), "the key to stop it")
        for action in ("toggle_pause", "tune", "toggle_game"):
            assert dashboard.check_action(action, ()) is None
        assert text(dashboard, "replay").splitlines()[1].strip() == "0 updates, 0.0/s, lr 2.5e-01"
        await pilot.press("s")
        await until(pilot, lambda: app._notifications, "the reason")
        (notice,) = app._notifications
        assert notice.message == "Save: here is trained by a loop of its own, which obeys only stop"
        await pilot.press("x")
        await until(pilot, lambda: not app_is_there(dashboard), "the question")
        await pilot.press("y")
        await until(pilot, lambda: reporter.stop_requested, "the request")
        reporter.close()
        await until(pilot, lambda: dashboard.is_over, "the end")
        assert "stopped at 10 of 100 steps" in text(dashboard, "header")
        assert dashboard.check_action("resume_run", ()) is None


@pytest.mark.process
def test_what_a_loop_says_of_itself_is_refused_in_one_line_if_it_is_damaged(
    reporter: mario_tui.Reporter,
) -> None:
    for content in (b"\xff", b"[]", b"[" * 100_000, b'{"game": "x", "steps": -1}'):
        (reporter.path / "loop.json").write_bytes(content)
        with pytest.raises(UserError, match=r"loop.json: can't be read \([^\n]+\)$"):
            Run(reporter.path).description()


def test_what_a_loop_obeys_is_told_by_the_names_of_commands() -> None:
    told = what_it_obeys(["Pause", "Render", "Resume", "Stop"])
    assert told == "is trained by a loop of its own, which obeys only pause, resume-training, stop"
    assert what_it_obeys(["Render"]) == "is trained by a loop of its own, which obeys no command"
