"""The styles of one screen leave every other one alone: Textual keeps those of all screens that were ever open."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mario_tui
from mario_tui.app import MarioApp
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import folder_of_runs, shown_as, table_of, until

FILES = sorted(Path(mario_tui.__file__).parent.glob("*/**/*.tcss"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_rule_of_a_screen_names_it(path: Path) -> None:
    first, *rules, last = path.read_text().splitlines()
    name = "".join(word.capitalize() for word in path.stem.split("_"))
    assert (first, last) == (f"{name}Screen {{", "}")
    assert all(re.match(r"    \S.*}$", rule) for rule in rules if rule)


async def test_a_form_that_was_open_changes_no_other_screen(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, one="finished", two="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: table_of(app).row_count == 2, "the runs")
        await pilot.press("n")
        await shown_as(pilot, NewRunScreen)
        await pilot.press("escape")
        home = await shown_as(pilot, HomeScreen)
        assert home.query_one("#title").display
        await pilot.press("A", "c")
        compared = await shown_as(pilot, CompareScreen)
        await until(pilot, lambda: compared.query_one("#compared").size.height >= 3, "the list of runs")
        assert compared.query_one("#title").display
