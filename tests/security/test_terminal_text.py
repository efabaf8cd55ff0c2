"""What names, reasons, log lines and tags say never reaches the terminal as a command to it."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from textual.app import ComposeResult
from textual.widgets import Static

from engine.config.reading import make_config
from engine.errors import UserError
from engine.host import __main__ as host
from engine.protocol.framing import failure_of, pack
from engine.protocol.json_lines import EVENT_NAMES
from engine.protocol.messages import PROTOCOL, Failed, Finished, Hello, Log, Phase, Saved
from engine.protocol.messages import Summary as RunSummary
from engine.protocol.outcome import Outcome
from engine.runners import links
from engine.runners.links import ReportQueue
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runtime.formats import json_line
from engine.runtime.text import drawable, printable, printable_stream, set_off
from mario_tui.app import MarioApp
from mario_tui.headless import JSONLines, PlainLines, ProgressBar
from mario_tui.screens.dialogs import TextScreen
from mario_tui.terminal.console import SafeConsole
from mario_tui.terminal.safe_app import SafeApp
from mario_tui.widgets.panels.run import describe
from mario_tui.widgets.runs_table import RunsTable
from tests.support.app import RECORDING, record_of, until
from tests.support.program import Terminal, child, run_program

HOSTILE = "a\x1b]52;c;bWFyaW8=\x07b\x9b31337mc\x1b[31337md\u202ee\nf\rg\x7fh\x1b]0;owned\x1b\\i"
"""The clipboard, two sequences with a number that is nobody else's, the direction of writing, a line of its own, the
window's title."""
WRITTEN_OUT = r"a\x1b]52;c;bWFyaW8=\x07b\x9b31337mc\x1b[31337md\u202ee\nf\rg\x7fh\x1b]0;owned\x1b\i"
NAME = HOSTILE.replace("/", "")
FORBIDDEN = [b"\x1b]52", b"\x1b]0;", b"\x1b[31337", "\x9b".encode(), "\u202e".encode(), b"=\x07", b"\x7f"]
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ANY_TEXT = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x9b\x07\n\t\r\x85\u2028\u202e\u2067\ud800a é漢"))


def harmless(raw: bytes) -> None:
    found = [sequence for sequence in FORBIDDEN if sequence in raw]
    assert not found


# ---------------------------------------------------------------------------------------------- the text itself


@given(ANY_TEXT)
def test_printable_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = printable(text)
    assert not UNSAFE.search(shown)
    assert printable(shown) == shown
    shown.encode()
    for part in UNSAFE.split(text):
        assert part in shown
    assert set(UNSAFE.findall(printable(text, lines=True))) <= {"\n", "\t"}
    assert printable(text, lines=True).count("\n") == text.count("\n")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cf"))))
def test_ordinary_text_stays(text: str) -> None:
    assert printable(text) == drawable(text) == text


@given(st.text(st.sampled_from("ab 漢\x1b\x9b\x07\n\t\u202e\ud800")))
def test_drawable_text_takes_as_many_cells(text: str) -> None:
    assert not UNSAFE.search(drawable(text))
    assert cell_len(drawable(text)) == cell_len(text)


@given(st.text())
def test_json_stays_json(text: str) -> None:
    line = json_line({"name": text, "values": [1.5, None]})
    assert line.isascii()  # valid in every locale
    assert not UNSAFE.search(line)
    assert json.loads(line) == {"name": text, "values": [1.5, None]}


def test_text_is_written_out() -> None:
    assert printable(HOSTILE) == WRITTEN_OUT
    assert str(UserError(HOSTILE)) == WRITTEN_OUT
    assert set_off("one\ntwo\x1b\n") == "  | one\n  | two\\x1b"


def test_a_stream_writes_control_characters_out() -> None:
    stream = io.StringIO()
    print(HOSTILE, "\ud800", file=printable_stream(stream))
    assert stream.getvalue() == WRITTEN_OUT.replace(r"\nf", "\nf") + " \\ud800\n"


# ---------------------------------------------------------------------------------------------- what is printed


class _Bytes(io.StringIO):
    def raw(self) -> bytes:
        return self.getvalue().encode()


def events() -> list[Any]:
    summary = RunSummary(
        run=NAME, reason=HOSTILE, env_steps=1, frames=4, updates=1, episodes=1, wall_s=1.0, env_steps_per_s=1.0,
        updates_per_s=1.0, mean_return=1.0, checkpoint=HOSTILE,
    )  # fmt: skip
    return [
        Log(at=1.0, level="info", text=HOSTILE),
        Log(at=1.0, level="warning", text=HOSTILE),
        Phase(env_steps=1, phase=1, phases=2, name=HOSTILE),
        Saved(kind="policy", path=HOSTILE, env_steps=1),
        Finished(summary=summary),
    ]


@pytest.mark.parametrize("display", [JSONLines, PlainLines, ProgressBar])
def test_headless_output_is_harmless(
    display: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = display(EVENT_NAMES) if display is JSONLines else display()
    hello = Hello(
        protocol=PROTOCOL, run=NAME, path=HOSTILE, game="mario", task=HOSTILE, runner="single", pid=1, steps=1,
        render=False, points=[], events=[],
    )  # fmt: skip
    for event in (hello, *events()):
        shown.show(event)
    shown.close()
    out, err = capsys.readouterr()
    harmless((out + err).encode())
    if display is JSONLines:
        lines = [json.loads(line) for line in out.splitlines()]
        assert [line.get("text") or line.get("name") or line.get("path") or line["reason"] for line in lines] == [
            HOSTILE
        ] * 4
        assert err == WRITTEN_OUT + "\n"
    else:
        assert len(out.splitlines()) >= 7


def test_what_rich_prints_is_harmless() -> None:
    stream = _Bytes()
    console = SafeConsole(file=stream, force_terminal=True, width=300)
    console.print(Text(HOSTILE, style="bold red"), {HOSTILE: HOSTILE})
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        console.print_exception(show_locals=True)
    harmless(stream.raw())
    assert b"\x1b[1;31m" in stream.raw()


# ---------------------------------------------------------------------------------------------- the run's log


def test_a_message_of_the_log_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _Bytes()
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    host._write_printable_lines()
    root.warning("one %s", HOSTILE)
    try:
        raise RuntimeError(f"{HOSTILE}\nssh-ed25519 AAAA")
    except RuntimeError:
        root.error("two", exc_info=True)
    lines = stream.getvalue().splitlines()
    harmless(stream.raw())
    assert lines[0].endswith(f" WARNING root: one {WRITTEN_OUT}")
    assert lines[1].endswith(" ERROR root: two")
    assert all(line.startswith("  | ") for line in lines[2:])
    assert lines[-1] == "  | ssh-ed25519 AAAA"


def test_a_failure_of_a_runner_has_a_harmless_reason() -> None:
    assert failure_of(RuntimeError(f"{HOSTILE}")).reason == "RuntimeError: " + WRITTEN_OUT.split(r"\nf")[0]
    assert failure_of(UserError(HOSTILE)).reason == WRITTEN_OUT


def fail(channel: object) -> None:
    raise RuntimeError(f"{HOSTILE}\nssh-ed25519 AAAA")


@pytest.mark.process
def test_what_a_process_of_a_run_writes_passes_for_no_line_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    reports = ReportQueue()
    with child(links.member_main, fail, reports) as member:
        failed = reports.get()
        assert isinstance(failed, Failed)
        written, _, place = failed.reason.rpartition(" (")
        assert written == "RuntimeError: " + WRITTEN_OUT.split(r"\nf")[0] and place.startswith("test_terminal_text.py:")
        member.join()
    err = capfd.readouterr().err
    harmless(err.encode())
    assert "  | ssh-ed25519 AAAA" in err.splitlines()
    assert all(line.startswith("  | ") for line in err.splitlines())


# ---------------------------------------------------------------------------------------------- the program


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run that says what it can in every text that it has."""
    run = Run(tmp_path_factory.mktemp("hostile") / "runs" / NAME)
    run.path.mkdir(parents=True)
    record = record_of(NAME, "failed", 10_000, 2_000_000)
    record.task = record.runner = record.game = record.reason = record.checkpoint = HOSTILE
    run.write_record(record)
    config = make_config({"seed": 1}).to_toml()
    (run.path / "config.toml").write_text(config + f"stage = {json.dumps(HOSTILE)}\n")
    recorded = []
    for event in read_recording(RECORDING):
        if isinstance(event, Hello):
            failed = Failed(reason=HOSTILE, traceback=HOSTILE, log_path=HOSTILE, checkpoint=HOSTILE)
            told = [*event.events, *events()[:4], failed]
            event = msgspec.structs.replace(event, run=NAME, path=HOSTILE, game=HOSTILE, task=HOSTILE, events=told)
        recorded.append(event)
    run.history_path.write_bytes(b"".join(pack(event) for event in recorded))
    return run


@pytest.mark.process
def test_runs_lists_it_harmlessly(hostile_run: Run) -> None:
    folder = hostile_run.path.parent
    done = run_program("runs", "--run-dir", str(folder), cwd=folder)
    harmless(done.stdout.encode())
    assert WRITTEN_OUT[:30] in done.stdout
    assert len(done.stdout.splitlines()) == 2  # the heading, and one run in one line
    listed = run_program("runs", "--run-dir", str(folder), "--json", cwd=folder)
    harmless(listed.stdout.encode())
    assert json.loads(listed.stdout)[0]["name"]


@pytest.mark.process
def test_error_lines_are_harmless(hostile_run: Run, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text(f"game = {json.dumps(HOSTILE)}\n")
    for arguments in (
        ["attach", HOSTILE],
        ["attach", "x" * 5000],
        ["--no-ui", "--config", "options.toml"],
        ["--no-ui", "--stage", HOSTILE],
        ["eval", str(hostile_run.path)],
        ["play", HOSTILE],
    ):
        done = run_program(*arguments, cwd=tmp_path, check=2)
        harmless((done.stdout + done.stderr).encode())
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.process
def test_the_dashboard_and_home_are_harmless(hostile_run: Run) -> None:
    folder = hostile_run.path.parent
    terminal = Terminal("attach", str(hostile_run.path), "--run-dir", str(folder), cwd=folder, columns=120, rows=40)
    terminal.wait_for("✗ failed", "failed: a", WRITTEN_OUT[:20])
    terminal.send("h")
    terminal.wait_for("1 run, 0 active", WRITTEN_OUT[:20])
    terminal.send("q")
    terminal.wait()
    harmless(bytes(terminal.raw))


def test_a_line_of_the_log_panel_is_one_line() -> None:
    for event in events():
        assert WRITTEN_OUT in describe(event, Outcome()).plain
        assert not UNSAFE.search(describe(event, Outcome()).plain)


@pytest.mark.process
def test_charts_of_event_files_are_harmless(tmp_path: Path) -> None:
    folder = tmp_path / NAME
    for inside in (folder, folder / NAME):
        writer = EventFileWriter(str(inside))
        writer.add_event(Event(step=1, summary=Summary(value=[Summary.Value(tag=HOSTILE, simple_value=1.0)])))
        writer.close()
    (folder / f"tfevents{HOSTILE}").write_bytes(b"x" * 100)
    terminal = Terminal("attach", str(folder), cwd=tmp_path, columns=160, rows=40)
    terminal.wait_for("✗", WRITTEN_OUT[:20], r"\x1b]0;owned\x1b\i  ●1.00")
    terminal.send("q")
    assert terminal.wait() == 0
    harmless(bytes(terminal.raw))


async def test_a_name_is_no_markup(hostile_run: Run, tmp_path: Path) -> None:
    run = Run(tmp_path / "runs" / "x[b][@click=app.exit]")
    shutil.copytree(hostile_run.path, run.path)
    run.write_record(record_of(run.name, "failed", 10_000, 2_000_000))
    (run.path / "config.toml").write_text(make_config({"seed": 1}).to_toml())
    app = MarioApp(run_dir=str(run.path.parent))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.screen.query_one(RunsTable).current(), "the list")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, TextScreen), "the dialog")
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any(run.name in line and "─" in line for line in lines)


async def test_whatever_a_widget_shows_is_drawn_harmlessly() -> None:
    """Also where nobody thought of it."""

    class Careless(SafeApp[None]):
        def compose(self) -> ComposeResult:
            shown = Static(Text(HOSTILE + "\ud800\t"))
            shown.border_title, shown.styles.border = Text(HOSTILE), ("round", "red")
            yield shown
            yield Static(HOSTILE, markup=False)

    app = Careless()
    async with app.run_test(size=(200, 20)) as pilot:
        app.notify(HOSTILE, title=HOSTILE, markup=False)
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert not UNSAFE.search("".join(lines))
        assert sum("bWFyaW8=" in line for line in lines) >= 3
        assert {cell_len(line) for line in lines} == {200}
        console = app.error_console
        app.copy_to_clipboard(HOSTILE)
        assert app.clipboard == WRITTEN_OUT
        assert isinstance(console, SafeConsole)
