"""Work that takes long leaves the screen free: keys are handled meanwhile, or wait for what it opens."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.config.reading import make_config
from engine.runs import checkpoints
from engine.runs.checkpoints import Entry, Manifest
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data.listed import read_listed
from mario_tui.screens.base import Job
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import folder_of_runs, names, shown_as, table_of, type_at_once, until

_HUGE = 2**36
"""Bytes that no machine reads within a test."""


def with_huge_checkpoint(run: Run) -> None:
    """Give the run a checkpoint that takes minutes to verify, but no room on the disk."""
    folder = run.path / checkpoints.folder_name(10_000)
    folder.mkdir()
    with (folder / "replay.bin").open("wb") as file:
        file.truncate(_HUGE)
    (folder / "config.toml").write_text(make_config({}).to_toml())
    files = {"replay.bin": Entry(_HUGE, "")}
    manifest = Manifest(format=checkpoints.FORMAT, version="", env_steps=10_000, updates=0, files=files)
    (folder / checkpoints.MANIFEST).write_bytes(msgspec.json.encode(manifest))


async def test_a_key_is_handled_while_a_checkpoint_is_verified(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    with_huge_checkpoint(run)
    record = run.record()
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        screen: Any = app.screen
        await pilot.press("r")
        job = screen.job
        await until(
            pilot,
            lambda: job.display and re.search(r"Resuming one: \d+%  ·  esc: cancel", str(job.render())),
            "the progress",
        )
        type_at_once(app, "d", "escape", "r")  # the first was typed for the dashboard, the last one after that
        await until(pilot, lambda: screen.job not in (None, job), "the next attempt")
        await pilot.press("escape")
        await until(pilot, lambda: screen.job is None and not screen.query(Job), "its end")
        assert app.screen is screen
    assert run.record() == record


async def test_resuming_from_the_form_leaves_it_free(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    with_huge_checkpoint(run)
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(NewRunScreen(resume=run, options={"steps": "5000000"}))
        await until(pilot, lambda: isinstance(app.screen, NewRunScreen) and app.screen._ready, "the form")
        form: Any = app.screen
        await pilot.press("ctrl+r")
        await until(pilot, lambda: form.job is not None and "Resuming one" in str(form.job.render()), "the work")
        await pilot.press("escape")
        await until(pilot, lambda: form.job is None, "its end")
        assert app.screen is form
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)


async def test_home_handles_keys_before_it_has_read_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of_runs(tmp_path, b="finished", a="finished")
    may_read = threading.Event()

    def read_late(*arguments: Any) -> Any:  # as from a slow disk
        may_read.wait()
        return read_listed(*arguments)

    monkeypatch.setattr("mario_tui.screens.home.read_listed", read_late)
    app = MarioApp(run_dir=str(tmp_path))
    try:
        async with super(MarioApp, app).run_test(size=(80, 24)) as pilot:  # does not wait for the runs
            assert "Reading the runs" in str(app.screen.query_one("#hint").render())
            await pilot.press("question_mark")
            await shown_as(pilot, HelpScreen)
            await pilot.press("escape", "down", "space", "n")  # the first of these waits for the runs, so all do
            await shown_as(pilot, HomeScreen)
            may_read.set()
            await shown_as(pilot, NewRunScreen)
            await pilot.press("escape")
            await shown_as(pilot, HomeScreen)
            assert [Path(key).name for key in table_of(app).marked] == ["b"]
            assert names(app) == ["a", "b"]
    finally:
        may_read.set()


async def test_home_says_how_old_it_is_while_reading_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_runs(tmp_path, one="finished")
    may_read = threading.Event()

    def read_late(*arguments: Any) -> Any:
        may_read.wait()
        return read_listed(*arguments)

    app = MarioApp(run_dir=str(tmp_path))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            monkeypatch.setattr("mario_tui.screens.home.read_listed", read_late)
            monkeypatch.setattr("mario_tui.screens.table_screen.OLD_S", 1.0)
            old = re.compile(r"Runs: read [1-9]\d* s ago")
            await until(pilot, lambda: old.fullmatch(str(table_of(app).border_title)), "the age")
            assert names(app) == ["one"]
            monkeypatch.setattr("mario_tui.screens.table_screen.OLD_S", 3600.0)
            may_read.set()
            await until(pilot, lambda: table_of(app).border_title == "Runs", "a new reading")
    finally:
        may_read.set()


async def test_a_comparison_of_many_runs_draws_chart_by_chart(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, **{f"run-{number}": "finished" for number in range(61)})
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        type_at_once(app, "A", "c", "M", "M")  # also what is typed ahead reaches the comparison
        await shown_as(pilot, CompareScreen)
        screen: Any = app.screen
        charts = screen.plots()
        await until(pilot, lambda: all(live.seen.hello for live in screen._live_runs), "the recordings")
        await until(pilot, lambda: all(len(chart.series) == 61 for chart in charts), "all lines")
        await until(pilot, lambda: not screen._undrawn, "the drawing")
        waiting = []
        screen.draw_charts()
        while screen._undrawn:
            waiting.append(len(screen._undrawn))
            await asyncio.sleep(0)  # here keys are handled
        again = {len(charts)}  # a tick of the screen's clock may add all of them once more
        assert {*waiting} - again == {*range(1, len(charts))}
