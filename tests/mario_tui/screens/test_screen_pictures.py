"""Pictures of home and of the screens that it leads to, in two sizes and two themes."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Tabs
from textual.widgets._tabs import Underline

from engine.config.reading import make_config
from engine.protocol.framing import pack
from engine.protocol.messages import Hello, Point
from engine.runs.recording import read_recording
from engine.runs.run import Run
from mario_tui.app import MarioApp
from mario_tui.data import form
from mario_tui.screens.compare import CompareScreen
from mario_tui.widgets.runs_table import Preview, RunsTable
from tests.support.app import RECORDING, record_of, shown_as, until
from tests.support.form import focused

SIZES = {"80x24": (80, 24), "120x40": (120, 40)}
THEMES = ("mario", pytest.param("daylight", marks=pytest.mark.long))


@pytest.fixture(autouse=True)
def some_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs in every state, of which two have a recording; the memory that is free is always the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(form, "available_bytes", lambda: 20 * 2**30)
    held: list[BinaryIO] = []
    for index, state in enumerate(("finished", "failed", "running", "paused", "running")):
        run = Run(tmp_path / "checkpoints" / f"mario-1-1-20261120-0{index}0000")
        run.path.mkdir(parents=True)
        record = record_of(run.name, state, 40_000 * (index + 1), 2_000_000)
        (run.path / "run.json").write_bytes(msgspec.json.encode(record))
        (run.path / "config.toml").write_text(make_config({}).to_toml())
        if index in (2, 3):  # alive: a host holds the lock; the last one is lost
            held.append((run.path / "run.lock").open("wb"))
            fcntl.flock(held[-1], fcntl.LOCK_EX)
        if index == 0:
            shutil.copy(RECORDING, run.history_path)
        if index == 1:
            run.history_path.write_bytes(b"".join(pack(slower(event)) for event in read_recording(RECORDING)))
    yield
    for file in held:
        file.close()


def slower(event: Any) -> Any:
    """The recording as of a run that came less far."""
    if isinstance(event, Hello):
        return msgspec.structs.replace(event, points=[slower(point) for point in event.points])
    if isinstance(event, Point):
        return msgspec.structs.replace(
            event, env_steps=event.env_steps * 2 // 3, mean_return=event.mean_return * 0.7 - 40
        )
    return event


async def compared(pilot: Pilot[Any]) -> None:
    await pilot.press(*["down"] * 4, "space", "up", "space", "c")
    screen = await shown_as(pilot, CompareScreen)
    await until(pilot, lambda: "no data yet" not in str(screen.query_one("#compared").render()), "both recordings")


async def preset_chosen(pilot: Pilot[Any]) -> None:
    await pilot.press("n", "down", "down")
    screen: Any = pilot.app.screen
    await until(pilot, lambda: "--preset=apex-classic" in str(screen.query_one("#command").render()), "the preset")


async def filled(pilot: Pilot[Any]) -> None:
    await pilot.press("n", "f3")
    screen: Any = pilot.app.screen
    await focused(pilot, "name")
    screen.query_one("#edit-seed").value = "-1"
    screen.query_one("#edit-steps").value = "4e6"
    screen.query_one("#edit-seed").focus()
    await until(pilot, lambda: "✗" in str(screen.query_one("#row-seed .about").render()), "the complaint")
    screen.query_one("#edit-seed").cursor_blink = False
    tab, line = screen.query_one(Tabs).active_tab, screen.query_one(Underline)
    assert tab is not None
    await until(  # the complaint makes the tab wider, and its line follows later
        pilot,
        lambda: (line.highlight_start, line.highlight_end) == tab.virtual_region.shrink(tab.styles.gutter).column_span,
        "the line below the tab",
    )


async def helped(pilot: Pilot[Any]) -> None:
    await previewed(pilot)
    await pilot.press("question_mark")


async def chosen(pilot: Pilot[Any]) -> None:
    await pilot.press("space", "down", "space")
    await previewed(pilot)


async def previewed(pilot: Pilot[Any]) -> None:
    """Until the run under the cursor is shown below, where there is room."""
    preview = pilot.app.screen.query_one(Preview)
    name = pilot.app.screen.query_one(RunsTable).current().record.name  # type: ignore[union-attr]
    recorded = name[-6:] in ("000000", "010000")
    await until(
        pilot,
        lambda: (
            not preview.display
            or (
                name in str(preview.query_one("#preview-text").render())
                and ("●" if recorded else "no data yet") in str(preview.query_one("#preview-chart").render())
            )
        ),
        "the preview",
    )


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "what",
    [chosen, preset_chosen, filled, compared, helped],
    ids=["home", "presets", "form", "compare", "help"],
)
def test_snapshot(snap_compare: Any, what: Any, size: str, theme: str) -> None:
    async def settle(pilot: Pilot[Any]) -> None:
        home: Any = pilot.app.screen
        await until(pilot, lambda: home.has_read, "the list of runs")
        await what(pilot)
        await pilot.wait_for_scheduled_animations()

    app = MarioApp()
    app.theme = theme
    assert snap_compare(app, terminal_size=SIZES[size], run_before=settle)
