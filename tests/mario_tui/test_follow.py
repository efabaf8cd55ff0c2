"""`mario-tui follow` and `logs`, and the log in the dashboard: what a run that is already there tells."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from textual.widgets import Log

from engine.host.client import ask_to_stop
from engine.host.run_files import rotate
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.run_log import RunLog
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import LogScreen
from tests.support.app import recorded_run, said, shown_as, until
from tests.support.program import (
    PROGRAM,
    FinishedRun,
    headless,
    json_lines,
    read_event,
    refusal,
    run_program,
    the_run,
)

BOARD = ("--game", "snake", "--board", "4x4", "--burnin", "100", "--eval-every", "300", "--eval-episodes", "2")


@pytest.mark.process
def test_a_second_process_follows_a_run_from_its_beginning_and_leaves_it_alone(tmp_path: Path) -> None:
    with headless(*BOARD, "--steps", "1e9", "--final-episodes", "0", cwd=tmp_path) as process:
        first = read_event(process, "evaluation")
        run = the_run(tmp_path)
        head = subprocess.Popen(
            [*PROGRAM, "follow", run.name, "--log-format", "json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        assert read_event(head, "evaluation") == first
        head.send_signal(signal.SIGINT)
        assert head.wait() == 130 and run.is_alive()
        late = subprocess.Popen(
            [*PROGRAM, "follow", run.name, "--log-format", "json", "--from-now"],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        read_event(late, "progress", state="running")
        assert read_event(late, "evaluation")["env_steps"] > first["env_steps"]
        ask_to_stop(run, "enough")
        output, _ = late.communicate()
        summary = json_lines(output)[-1]
        assert (summary["event"], summary["reason"], late.returncode) == ("summary", "enough", 0)


@pytest.mark.process
def test_an_ended_run_is_told_as_it_was_and_from_now_on_only_its_end(finished_run: FinishedRun) -> None:
    run, cwd = finished_run.run, finished_run.run.path.parent.parent
    past = json_lines(run_program("follow", run.name, "--log-format", "json", cwd=cwd).stdout)
    assert {"episode", "checkpoint", "summary"} <= {line["event"] for line in past}
    assert past[-1]["event"] == "summary" and past[-1]["env_steps"] == run.record().env_steps
    (end,) = json_lines(run_program("follow", run.name, "--log-format", "json", "--from-now", cwd=cwd).stdout)
    assert end == past[-1]
    plain = run_program("follow", run.name, cwd=cwd).stdout
    assert plain.startswith(f"run {run.path}\n") and "\ncheckpoint at " in plain and "\ndone (" in plain


@pytest.mark.process
def test_a_run_whose_host_was_killed_has_failed_for_who_follows_it(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "checkpoints")
    record = run.record()
    record.state = "lost"
    run.write_record(record)
    done = run_program("follow", str(run.path), "--log-format", "json", cwd=tmp_path, check=1)
    assert json_lines(done.stdout)[-1]["event"] == "progress"  # where it was; nobody has told of an end
    assert "failed: its host crashed; log: " in done.stderr


def test_what_can_not_be_followed_is_refused(finished_run: FinishedRun, tmp_path: Path) -> None:
    name = str(finished_run.run.path)
    assert "--log-events needs --log-format json" in refusal("follow", name, "--log-events", "episode", cwd=tmp_path)
    assert "nope: no such run" in refusal("logs", "nope", cwd=tmp_path)
    assert "the dashboard needs a terminal; use: mario-tui follow " in refusal("attach", name, cwd=tmp_path)


def logged(folder: Path, text: str) -> Run:
    run = recorded_run(folder / "checkpoints")
    run.log_path.write_text(text)
    return run


@pytest.mark.process
def test_the_log_is_printed_without_control_characters(tmp_path: Path) -> None:
    run = logged(tmp_path, "one\n\x1b[2Jtwö\n")
    assert run_program("logs", run.name, cwd=tmp_path).stdout == "one\n\\x1b[2Jtwö\n"
    assert run_program("logs", run.name, "--follow", cwd=tmp_path).stdout == "one\n\\x1b[2Jtwö\n"  # it has ended
    run.log_path.unlink()
    assert "run.log: No such file or directory" in run_program("logs", run.name, cwd=tmp_path, check=2).stderr


def test_a_log_that_the_host_has_emptied_goes_on(tmp_path: Path) -> None:
    run = logged(tmp_path, "".join(f"line {number}\n" for number in range(20)))
    log, end = RunLog(run), RunLog(run, 20)
    assert log.news().startswith("line 0\n") and end.news() == "line 18\nline 19\n"
    with run.log_path.open("ab", buffering=0) as writer:
        rotate(run.path, writer.fileno())
        assert log.news() == ""
        writer.write("né".encode()[:-1])
        assert log.news() == "n"
        writer.write("é".encode()[1:])
        assert log.news() == "é"
    log.close()
    end.close()


async def test_the_log_opens_in_the_dashboard_and_grows(tmp_path: Path) -> None:
    run = logged(tmp_path, "an [early] line\n")
    app = MarioApp(open_run=run)
    async with app.run_test(size=(80, 24)) as pilot:
        await shown_as(pilot, DashboardScreen)
        await pilot.press("L")
        screen = await shown_as(pilot, LogScreen)
        shown = screen.query_one(Log).lines
        await until(pilot, lambda: "an [early] line" in shown, "the log")
        with run.log_path.open("a") as file:
            file.write("a late \x1b[2Jline\n")
        await until(pilot, lambda: "a late \\x1b[2Jline" in shown, "its new line")
        await pilot.press("L")
        await until(pilot, lambda: app.screen is not screen, "the dashboard")
        run.log_path.unlink()
        await pilot.press("L")
        await until(pilot, lambda: "No such file" in said(app), "why there is none")


@pytest.mark.process
def test_the_events_of_a_recording_are_json(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "checkpoints")
    for line in run_program("follow", run.name, "--log-format", "json", cwd=tmp_path).stdout.splitlines():
        assert "NaN" not in line and json.loads(line)["event"]
