"""Alerts of real runs: in JSON lines, lists, the dashboard and `mario-tui alerts`; and whose command runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.reading import make_config
from engine.host.client import ask_to_stop
from engine.protocol.framing import pack
from engine.protocol.messages import Alert, Hello
from engine.runs.lookup import find_sweep
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from engine.runs.run import Run
from engine.runs.sweep import Member, SweepPlan
from mario_tui.app import MarioApp
from mario_tui.cli import run as cli
from mario_tui.commands.schema import schema_of
from mario_tui.data.settings import settings_path
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.screens.dashboard import DashboardScreen
from tests.support.app import RECORDING, folder_of_runs, names, recorded_run, shown_as, table_of, text, until
from tests.support.program import PROGRAM, headless, json_lines, read_event, refusal, run_program, the_run, wait_until

SHORT = ("--game", "snake", "--board", "4x4", "--burnin", "100", "--eval-every", "0", "--alerts", "disk=1e9")


def alert_of(run: Run, at: float, words: str = "the loss is not finite") -> Alert:
    return Alert(at=at, run=run.name, path=str(run.path), rule="loss", text=words, env_steps=1000)


def tell(run: Run, *alerts: Alert) -> None:
    """Write a recording that has these alerts."""
    hello = read_recording(RECORDING)[0]
    assert isinstance(hello, Hello)
    run.history_path.write_bytes(pack(msgspec.structs.replace(hello, events=[*alerts])))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli(["alerts", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.process
def test_an_alert_of_a_run_is_told_everywhere_and_runs_the_command_that_was_typed(tmp_path: Path) -> None:
    with headless(*SHORT, "--steps", "1e9", cwd=tmp_path) as process:
        told = read_event(process, "alert")
        run = the_run(tmp_path)
        assert (told["rule"], told["run"], told["path"]) == ("disk", run.name, str(run.path))
        follower = subprocess.Popen(
            [*PROGRAM, "alerts", run.name, "--follow", "--json", "--since", "1h", "--alert-command", "cat >>got.jsonl"],
            cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert read_event(follower, "alert") == told
        wait_until(lambda: (tmp_path / "got.jsonl").exists(), "the command", by=follower)
        ask_to_stop(run, "enough")
        assert follower.communicate()[0] == "" and follower.returncode == 0
    assert json_lines((tmp_path / "got.jsonl").read_text()) == [told]
    assert f"WARNING host: alert: {told['text']}" in run.log_path.read_text()
    (listed,) = json.loads(run_program("runs", "--json", cwd=tmp_path).stdout)
    assert (listed["alerts"], listed["alert"]) == (1, told["text"])
    assert f"alert: {told['text']}" in run_program("runs", cwd=tmp_path).stdout
    past = run_program("follow", run.name, "--log-format", "json", "--log-events", "alert", cwd=tmp_path).stdout
    assert json_lines(past)[0] == told
    silent = run_program("--no-ui", *SHORT, "--alerts", "none", "--steps", "200", cwd=tmp_path)
    assert "alert at" not in silent.stdout


def test_alerts_are_listed_by_time_and_since_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = SweepPlan({"game": "snake"}, None, None, (Member({}, 0), Member({}, 1)), name="two")
    sweep = create_sweep(tmp_path, "two", plan)
    runs = [
        create_run(make_config({"game": "snake", "run_dir": str(sweep.path)}), sweep.run(each).name) for each in (0, 1)
    ]
    tell(runs[0], alert_of(runs[0], 3e8), alert_of(runs[0], 1e8))
    tell(runs[1], alert_of(runs[1], 2e8, "a\x1b[2Jb"))
    assert find_sweep("two", tmp_path).path == sweep.path
    lines = printed(capsys, str(sweep.path), "--json")
    assert [json.loads(line)["at"] for line in lines] == [1e8, 2e8, 3e8]
    assert printed(capsys, str(sweep.path), "--json", "--since", "2e8") == lines[1:]
    assert printed(capsys, str(sweep.path), "--json", "--since", "1979-01-01") == lines[2:]
    assert printed(capsys, str(runs[0].path), "--since", "1d") == []
    assert len(printed(capsys, str(runs[0].path), "--since", f"{int(time.time() - 2e8) // 3600}h")) == 1
    (line,) = printed(capsys, str(runs[1].path), "--follow")  # it has ended
    assert line.endswith("  two-002 at 1,000: a\\x1b[2Jb")


def test_a_time_of_a_strangers_alert_need_not_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded_run(tmp_path)
    tell(run, alert_of(run, 1e300), alert_of(run, float("nan")))
    assert {line.split("  ")[0] for line in printed(capsys, str(run.path))} <= {"–"}


def test_wrong_usage_is_told_in_one_line(tmp_path: Path) -> None:
    run = recorded_run(tmp_path / "checkpoints")
    for arguments, complaint in {
        ("--since", "soon"): "--since must be 30m, 2h, 1d, a date such as 2026-11-29T14:00 or Unix time, got 'soon'",
        ("--alert-command", "true"): "--alert-command needs --follow",
    }.items():
        assert complaint in refusal("alerts", str(run.path), *arguments, cwd=tmp_path)


# ---------------------------------------------------------------------------------------------- the command


def settings(command: str) -> Path:
    path = settings_path()
    path.parent.mkdir(parents=True)
    path.write_text(f"alert_command = {json.dumps(command)}\n")
    return path


@pytest.mark.process
def test_the_command_of_the_settings_runs_unless_others_can_write_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded_run(tmp_path)
    tell(run, alert_of(run, 1e8), alert_of(run, 2e8, "$(touch hacked); `touch hacked`"))
    path = settings("cat; exit 3")
    assert cli(["alerts", str(run.path)]) == 0  # without --follow nobody is told
    assert capfd.readouterr().out.count("{") == 0
    assert cli(["alerts", str(run.path), "--follow", "--since", "1e8"]) == 0
    output, errors = capfd.readouterr()
    assert [line["at"] for line in json_lines("\n".join(output.splitlines()[1::2]))] == [1e8, 2e8]
    assert errors.count("mario-tui: warning: --alert-command ended with status 3") == 2
    assert cli(["alerts", str(run.path), "--follow"]) == 0
    assert "{" not in capfd.readouterr().out  # what is past is no news
    assert not [*Path.cwd().glob("hacked")]
    path.chmod(0o666)
    complaint = refusal("alerts", str(run.path), "--follow", cwd=tmp_path)
    assert f"{path}: alert_command would run, and {path} can be written by others" in complaint


def test_no_run_configuration_or_plan_can_name_a_command(tmp_path: Path) -> None:
    for flag, written in {
        "--config": 'alert_command = "touch hacked"',
        "--plan": '[options]\nalert_command = "touch hacked"',
    }.items():
        (tmp_path / "file.toml").write_text(written)
        command = ("--no-ui",) if flag == "--config" else ("sweep",)
        assert "alert_command" in refusal(*command, flag, "file.toml", cwd=tmp_path)
    assert "alert_command" not in {*schema_of("options")["properties"], *schema_of("plan")["properties"]}
    assert "--alerts must be usual, none, or RULE=NUMBER" in refusal("--no-ui", "--alerts", "sh=1", cwd=tmp_path)


# ---------------------------------------------------------------------------------------------- a whole experiment


@pytest.mark.long
@pytest.mark.process
def test_the_script_of_the_page_stops_the_loser_and_judges_the_winner(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "headless.md"
    (script,) = re.findall(r"^```py\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(script.splitlines()) <= 40
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    stopped, won = done.stdout.splitlines()
    assert re.fullmatch(r"stopping rates-002 because of no better evaluation for [\d,]+ environment steps", stopped)
    assert re.fullmatch(r"0\.001 has a mean return of \d+\.\d+", won)
    runs = {run["name"]: run for run in json.loads(run_program("runs", "--json", cwd=tmp_path).stdout)}
    assert [runs[name]["state"] for name in ("rates-001", "rates-002")] == ["finished", "stopped"]
    assert (tmp_path / "winner.csv").read_text().startswith("run,tag,step,wall_time,value\nrates-001,")


# ---------------------------------------------------------------------------------------------- home


def states(app: MarioApp) -> list[str]:
    """What the column of states shows, in the order of the rows."""
    table = table_of(app)
    column = [str(key.value) for key in table.columns].index("state")
    return [str(table.get_row_at(row)[column]) for row in range(table.row_count)]


@pytest.mark.process
@pytest.mark.parametrize(("size", "place"), [((120, 40), "preview-text"), ((80, 24), "hint"), ((40, 12), "hint")])
async def test_home_marks_a_run_with_an_alert_and_tells_the_newest(
    tmp_path: Path, size: tuple[int, int], place: str
) -> None:
    with headless(*SHORT, "--steps", "1e9", cwd=tmp_path) as process:
        alert = f"alert: {read_event(process, 'alert')['text']}"
        app = MarioApp(run_dir=str(the_run(tmp_path).path.parent))
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: table_of(app).listed and states(app)[0].endswith(" !"), "the mark")
            await until(pilot, lambda: alert in text(app.screen, place), "the alert")
            assert "1 with alerts" in text(app.screen, "hint")
            assert (place == "hint") == (alert in text(app.screen, "hint"))
            ask_to_stop(the_run(tmp_path), "enough")
            await until(pilot, lambda: not table_of(app).listed[0].status.is_active, "its end")
            assert states(app)[0].endswith(" !")  # it is resumed, or somebody knows


async def test_home_marks_a_sweep_with_the_newest_alert_of_its_runs_and_the_filter_finds_them(tmp_path: Path) -> None:
    sweep = create_sweep(tmp_path, "two", SweepPlan({}, 1, None, (Member({}, 0), Member({}, 1))))
    of_sweep = folder_of_runs(sweep.path, **dict.fromkeys([sweep.run(each).name for each in (0, 1)], "finished"))
    (alone,) = folder_of_runs(tmp_path, alone="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: table_of(app).listed, "the runs")
        assert not any("!" in state for state in states(app))
        for number, run in reversed([*enumerate(of_sweep)]):  # the first one goes on for longer
            record = run.record()
            record.alerts, record.alert, record.alert_at = 1 + number, f"actor {number} was \x1b[2J lost", 1e9 + number
            run.write_record(record)
        await until(pilot, lambda: [state[-1] for state in states(app)].count("!") == 1, "the mark of the sweep")
        table_of(app).select(str(sweep.path))
        told = "alert: two-002: actor 1 was \\x1b[2J lost, and 2 more"
        await until(pilot, lambda: told in text(app.screen, "preview-text"), "the newest of its alerts")
        await pilot.press("slash", *"alert", "enter")
        await until(pilot, lambda: len(names(app)) == 3 and alone.name not in names(app), "what the filter finds")


# ---------------------------------------------------------------------------------------------- the dashboard


async def test_an_alert_is_notified_and_in_the_log_of_the_dashboard(tmp_path: Path, notices: list[str]) -> None:
    run = recorded_run(tmp_path)
    app = MarioApp(open_run=run)
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: dashboard.shown.hello, "the run")
        dashboard.feed.take(alert_of(run, 1e9, "only 1.0 MiB of [disk] space left"), dashboard.feed._view)
        await until(pilot, lambda: f"{run.name}: only 1.0 MiB of [disk] space left" in notices, "the notice")
        assert "alert: only 1.0 MiB of [disk] space left" in text(dashboard, "log")
        assert "  ! 1 alert" in text(dashboard, "header")
