"""Tables of the documentation agree with the CSV files that they are made from."""

from __future__ import annotations

import re

import pytest

from bench.tables import ROOT, TABLES, MissingRuns, read, with_tables


@pytest.mark.parametrize("page", sorted({table.page for table in TABLES.values()}))
def test_the_tables_of_a_page_are_those_of_its_csv_files(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert with_tables(page) == text, "python -m bench.tables writes them anew"
    assert set(re.findall(r"<!-- table: ([\w-]+) -->", text)) == {
        name for name, table in TABLES.items() if table.page == page
    }


@pytest.mark.parametrize("name", TABLES)
def test_no_table_is_made_without_one_of_the_runs_that_it_counts(name: str) -> None:
    table, rows = TABLES[name], read(TABLES[name].csv)
    column = "learner" if "learner" in rows[0] else "seed"
    counted = 0
    for run in {row[column] for row in rows}:
        others = [row for row in rows if row[column] != run]
        try:
            assert table.make(others) == table.make(rows), f"{column} {run}"
        except MissingRuns:
            counted += 1
    assert counted
