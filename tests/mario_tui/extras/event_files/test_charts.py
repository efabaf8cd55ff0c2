"""Charts of event files: what a change of the list leaves as it was, what is drawn when, and what is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from engine.errors import UserError
from mario_tui.app import MarioApp
from mario_tui.cli import run
from mario_tui.extras.event_files.charts import ChartsScreen
from mario_tui.extras.event_files.seeds import setting_of
from mario_tui.widgets.charts.comparison import Comparison
from tests.support.app import until
from tests.support.event_files import scalar


def add(folder: Path, *tags: str, step: int, value: float) -> None:
    """Append a point of each tag to an event file."""
    folder.mkdir(exist_ok=True)
    with (folder / "x.tfevents").open("ab") as file:
        file.write(b"".join(scalar(tag, value, step, float(step)) for tag in tags))


async def charts_of(pilot: Pilot[Any], *tags: str) -> dict[str, Any]:
    """The charts, as soon as there are those of these tags."""
    screen = pilot.app.screen
    await until(pilot, lambda: tuple(chart.name for chart in screen.query(Comparison)) == tags, f"charts of {tags}")
    return {str(chart.name): chart for chart in screen.query(Comparison)}


def drawn(chart: Any) -> str:
    return str(chart.render())


@pytest.mark.parametrize(
    ("subfolder", "setting", "seed"),
    [
        ("lr=0.1/seed_3", "lr=0.1/seed_*", 3),
        ("dqn-Seed12-large", "dqn-Seed*-large", 12),
        ("CartPole-v1__dqn__7__1690000000", "CartPole-v1__dqn__*", 7),
        ("CartPole-v1__dqn_seed__7__1690000000", "CartPole-v1__dqn_seed__*", 7),
        ("atari/PPO_2", "atari/PPO_*", 2),
        ("ppo/4", "ppo/*", 4),
        ("lr=0.1", "lr=0.1", None),
        ("lr_1e-3", "lr_1e-3", None),
        ("batch_64", "batch_64", None),
        ("CartPole-v1", "CartPole-v1", None),
    ],
)
def test_names_tell_which_subfolders_are_seeds(subfolder: str, setting: str, seed: int | None) -> None:
    assert setting_of(subfolder) == (setting, seed)


async def test_seeds_of_a_setting_are_shown_as_their_mean_with_its_interval(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / "ppo").mkdir(exist_ok=True)
        for step in range(1, 4):
            add(tmp_path / "ppo" / f"seed_{seed}", "return", step=step, value=10.0 * step + seed)
    add(tmp_path / "dqn", "return", step=1, value=5.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=(120, 40)) as pilot:
        chart = (await charts_of(pilot, "return"))["return"]
        await until(pilot, lambda: len(chart.series) == 4, "all subfolders")
        await pilot.press("M")
        await until(pilot, lambda: len(chart.series) == 2, "the settings")
        mean = next(each for each in chart.series if each.name == "ppo/seed_*")
        assert (mean.values[0], mean.values[-1]) == (11.0, 31.0) and mean.counts[0] == 3
        assert mean.bounds[0][0] == pytest.approx(
            11 - 4.303 / 3**0.5, rel=1e-3
        )  # Student's t with 2 degrees of freedom
        assert [each.seed for each in mean.measured] == [0, 1, 2]
        title = str(pilot.app.screen.query_one("#title").render())
        assert "ppo/seed_* (3 seeds)" in title and "dqn" in title
        await pilot.press("M")
        await until(pilot, lambda: len(chart.series) == 4, "the subfolders again")


async def test_a_chart_stays_as_it_is_when_others_come_and_go(tmp_path: Path) -> None:
    names = [f"tag{number:02d}" for number in range(12)]
    add(tmp_path, *names, step=1, value=1.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=(60, 24)) as pilot:
        before = await charts_of(pilot, *names)
        grid: Any = pilot.app.screen.query_one("#grid")
        await pilot.press("tab", "l", "tab")
        await until(pilot, lambda: "log" in drawn(before["tag00"]), "the scale")
        await until(pilot, lambda: grid.max_scroll_y > 0, "the layout")
        grid.scroll_to(y=40, animate=False)
        await until(pilot, lambda: grid.scroll_y == 40, "the place")
        add(tmp_path, "zebra", "aardvark", step=1, value=2.0)
        after = await charts_of(pilot, "aardvark", *names, "zebra")
        assert all(after[name] is before[name] for name in names)
        assert after["tag00"].logarithmic and not after["tag01"].logarithmic
        assert pilot.app.screen.focused is before["tag01"]
        assert grid.scroll_y == 40
        await pilot.press("slash", *"zeb")
        await charts_of(pilot, "zebra")
        await pilot.press("escape")
        again = await charts_of(pilot, "aardvark", *names, "zebra")
        assert again["tag00"].logarithmic and again["zebra"] is after["zebra"]


async def test_typing_a_filter_goes_on_while_a_chart_is_maximised(tmp_path: Path) -> None:
    add(tmp_path, "accuracy", "loss", step=1, value=1.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=(100, 30)) as pilot:
        charts = await charts_of(pilot, "accuracy", "loss")
        screen: Any = pilot.app.screen
        await pilot.press("tab", "tab", "z")
        await until(pilot, lambda: charts["loss"].size.height > 20, "the chart alone")
        await pilot.press("slash", "l", "o")
        await charts_of(pilot, "loss")
        add(tmp_path, "loops", step=1, value=1.0)
        await charts_of(pilot, "loops", "loss")
        assert isinstance(screen.focused, Input)
        await pilot.press("backspace", "backspace", *"acc", "enter")
        (accuracy,) = (await charts_of(pilot, "accuracy")).values()
        assert screen.maximised is None
        await pilot.press("tab", "z")
        assert screen.maximised == accuracy
        await until(pilot, lambda: accuracy.size.height > 20, "this chart alone")
        await pilot.press("z", "escape")
        charts = await charts_of(pilot, "accuracy", "loops", "loss")
        await until(pilot, lambda: all(12 <= chart.size.height < 20 for chart in charts.values()), "all charts")


@pytest.mark.parametrize("how", ["scroll", "resize"])
async def test_a_chart_is_drawn_as_soon_as_it_comes_into_sight(how: str, tmp_path: Path) -> None:
    names = [f"tag{number}" for number in range(6)]
    add(tmp_path, *names, step=1, value=1.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=(60, 24)) as pilot:
        charts = await charts_of(pilot, *names)
        late = charts["tag4"]
        await until(pilot, lambda: "  1.00 ─" in drawn(late), "the layout")
        add(tmp_path, *names, step=2, value=7.0)
        await until(pilot, lambda: "  7.00 ─" in drawn(charts["tag0"]), "the new values")
        await pilot.press("m")
        assert "ema" not in drawn(late)  # out of sight, it is not drawn
        if how == "scroll":
            await pilot.press("end")
        else:
            await pilot.resize_terminal(60, 60)  # the chart itself keeps its size
        await until(pilot, lambda: "ema" in drawn(late), "the chart")


@pytest.mark.process
async def test_saved_steps_have_the_name_that_exports_give_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add(tmp_path / "logs", "loss", step=3, value=1.5)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path / "logs")).run_test(size=(100, 30)) as pilot:
        await charts_of(pilot, "loss")
        await pilot.press("E")
        await until(pilot, lambda: (tmp_path / "loss.csv").exists(), "the table")
    assert (tmp_path / "loss.csv").read_text().splitlines() == ["series,step,seconds,value", ".,3,0.000,1.5"]


@pytest.mark.parametrize("inside", ["", "x.tfevents"], ids=["folder", "file"])
async def test_a_folder_that_a_program_is_about_to_make_is_waited_for(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "logs" / "new"
    async with MarioApp(open_screen=lambda: ChartsScreen(folder / inside)).run_test(size=(100, 30)) as pilot:
        title = pilot.app.screen.query_one("#title")
        await until(pilot, lambda: "waiting for event files" in drawn(title), "that it waits")
        folder.parent.mkdir()
        add(folder, "loss", step=1, value=1.0)
        await charts_of(pilot, "loss")
        await until(pilot, lambda: "waiting" not in drawn(title), "the title")


def test_a_name_that_is_no_path_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    for awaited in ("logs/new", "./new", str(tmp_path / "new")):
        with pytest.raises(UserError, match="needs a terminal"):
            run(["attach", awaited])
    for name, why in (("new", "no such run"), ("full", "contains neither a run nor event files")):
        with pytest.raises(UserError, match=why):
            run(["attach", name])
    with pytest.raises(UserError, match="no such run"):  # what is exported must be there
        run(["export", "logs/new"])


@pytest.mark.parametrize(
    ("count", "size", "columns", "rows"),
    [(1, (200, 60), 1, 1), (5, (200, 60), 3, 2), (8, (200, 60), 4, 2), (8, (80, 24), 2, 4), (3, (60, 24), 1, 3)],
)
async def test_charts_share_the_screen(
    count: int, size: tuple[int, int], columns: int, rows: int, tmp_path: Path
) -> None:
    """All of it, unless they would be too low then."""
    names = [f"tag{number}" for number in range(count)]
    add(tmp_path, *names, step=1, value=1.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=size) as pilot:
        charts = list((await charts_of(pilot, *names)).values())
        grid = pilot.app.screen.query_one("#grid")
        height = max(12, size[1] // rows - 4)
        await until(pilot, lambda: all(chart.size.height >= height for chart in charts), "their height")
        assert len({chart.region.x for chart in charts}) == columns
        assert len({chart.region.y for chart in charts}) == rows
        await pilot.resize_terminal(size[0], size[1] + 30)
        await until(pilot, lambda: rows * charts[0].size.height > grid.size.height - rows, "the new height")
        await pilot.press("tab", "z")
        await until(pilot, lambda: charts[0].size.height == grid.size.height, "the maximised chart")


async def test_a_scalar_without_a_name_is_a_chart_like_others(tmp_path: Path) -> None:
    add(tmp_path, "", "loss", step=1, value=1.0)
    async with MarioApp(open_screen=lambda: ChartsScreen(tmp_path)).run_test(size=(120, 40)) as pilot:
        charts = await charts_of(pilot, "", "loss")
        await until(pilot, lambda: "(no name)" in drawn(charts[""]) and "loss" in drawn(charts["loss"]), "both")
        await pilot.press("tab", "z")
        await until(pilot, lambda: not charts["loss"].display, "the maximised chart")
        await pilot.press("escape")
        await until(pilot, lambda: charts["loss"].display, "both again")
