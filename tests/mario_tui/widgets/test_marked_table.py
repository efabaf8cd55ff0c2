"""A long table is filled in parts: whatever is asked for meanwhile, it is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields
from textual.app import App, ComposeResult

from engine.runs.run import Run
from mario_tui.data.listed import Listed, read_listed
from mario_tui.widgets.runs_table import RunsTable
from tests.support.app import folder_of_runs, until


class Alone(App[None]):
    def compose(self) -> ComposeResult:
        yield RunsTable()


def rows_of(folder: Path) -> list[Listed]:
    """350 runs; the first is the oldest."""
    folder_of_runs(folder, one="finished")
    (one,) = read_listed(str(folder))
    record = one.record
    return [
        replace(one, run=Run(folder / name), record=with_fields(record, name=name, created_at=float(number)))
        for number, name in enumerate(f"run-{number:03}" for number in range(350))
    ]


async def test_a_long_table_is_filled_in_parts_and_keys_reach_all_of_it_meanwhile(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    async with Alone().run_test(size=(120, 40)) as pilot:
        table = pilot.app.query_one(RunsTable)

        def selected() -> str:
            current = table.current()
            return "" if current is None else current.record.name

        table.show(rows)
        assert 0 < table.row_count < table.shown_count == 350
        first = replace(
            rows[0], record=with_fields(rows[0].record, mean_return=77.0)
        )  # at the end, not in the table yet
        table.show([first, *rows[1:]])
        assert 0 < table.row_count < 350
        table.action_scroll_bottom()
        assert (selected(), table.row_count) == ("run-000", 350)
        assert "77" in " ".join(map(str, table.get_row_at(349)))
        table.sort_by("run")
        table.sort_by("run")
        assert (selected(), table.row_count) == ("run-000", 350)  # at the end again: all rows before it are there
        table.filter("run-1")
        table.filter("")
        table.select(rows[150].key)
        assert selected() == "run-150" and table.row_count < 350
        await until(pilot, lambda: table.row_count == 350, "all rows")
        assert selected() == "run-150"
        table.show([replace(rows[0], run=Run(tmp_path / "new")), *rows])  # all rows again
        assert table.row_count < table.shown_count == 351
        table.toggle_all_marks()
        assert len(table.marked) == 351
        await until(pilot, lambda: table.row_count == 351, "all rows")
        assert all(str(table.get_row_at(at)[0]) == "◆" for at in range(351))
        table.move_cursor(row=0)
        table.show(rows)
        table.action_scroll_bottom()
        assert (selected(), table.row_count) == ("run-000", 350)
        assert [str(key.value).rpartition("/")[2] for key in table.rows] == [f"run-{n:03}" for n in range(349, -1, -1)]
