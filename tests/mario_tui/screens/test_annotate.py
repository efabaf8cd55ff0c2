"""Tags and notes of runs, written on home."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Static

from engine.runs.run import ANNOTATION_FILE, Annotation, read_annotation
from mario_tui.app import MarioApp
from mario_tui.commands.runs import record_as_dict
from mario_tui.screens.dialogs import AnnotateScreen
from tests.support.app import folder_of_runs, names, table_of, until


@pytest.mark.long
async def test_tags_and_notes_are_shown_filtered_and_kept(tmp_path: Path) -> None:
    one, two = folder_of_runs(tmp_path, one="finished", two="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("e")
        await pilot.press("#")
        await until(pilot, lambda: "got '#'" in str(app.screen.query_one("#error", Static).render()), "what was typed")
        await pilot.press(*"Best, wide/net")
        await until(pilot, lambda: "tags: each must be" in str(app.screen.query_one("#error", Static).render()), "why")
        await pilot.press("enter")
        assert isinstance(app.screen, AnnotateScreen)
        await pilot.press(*["backspace"] * 4, "tab", *"second try", "enter")
        await until(pilot, lambda: "best wide" in " ".join(map(str, table_of(app).get_row_at(0))), "the tags")
        assert read_annotation(two) == Annotation(("best", "wide"), "second try")
        await until(
            pilot, lambda: "#best #wide\nsecond try" in str(app.screen.query_one("#preview-text").render()), "the note"
        )
        await pilot.press("slash", *"#best", "enter")
        assert names(app) == ["two"]
        await pilot.press("A", "escape")
        assert len(table_of(app).marked) == 1
        await pilot.press("A")
        assert len(table_of(app).marked) == 2
        await pilot.press("A")
        assert not table_of(app).marked
    found = [record_as_dict(run, run.record()) for run in (two, one)]
    assert [(list(run["tags"]), run["note"]) for run in found] == [(["best", "wide"], "second try"), ([], "")]
    (one.path / ANNOTATION_FILE).write_text('{"tags": ["x"], "note": 7}')
    assert read_annotation(one) == Annotation()
