"""Saved charts: no file is lost, and none is left half written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mario_tui.data.chart_files import Line, save_chart

LINES = [Line("one", [1, 2], [0.5, 1.0], [1.5, float("nan")])]


def save(title: str, folder: Path) -> Path:
    return save_chart(title, LINES, "<svg/>", folder, steps="step")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_neither_a_table_nor_a_picture_is_overwritten(tmp_path: Path) -> None:
    assert save("loss", tmp_path / "new" / "folder") == tmp_path / "new" / "folder" / "loss"
    shutil.rmtree(tmp_path / "new")
    (tmp_path / "loss.svg").write_text("mine")
    (tmp_path / "loss-2.csv").symlink_to("nowhere")
    assert save("loss", tmp_path) == tmp_path / "loss-3"
    assert (tmp_path / "loss.svg").read_text() == "mine"
    assert names(tmp_path) == ["loss-2.csv", "loss-3.csv", "loss-3.svg", "loss.svg"]
    assert (tmp_path / "loss-3.csv").read_text().splitlines() == [
        "series,step,seconds,value", "one,1,0.500,1.5", "one,2,1.000,nan",
    ]  # fmt: skip


@pytest.mark.parametrize("title", ["x" * 5_000, "ä/ö " * 1_000])
def test_a_long_title_is_cut_to_what_a_file_system_accepts(title: str, tmp_path: Path) -> None:
    for _ in range(2):
        save(title, tmp_path)
    assert len(names(tmp_path)) == 4
    assert all(100 < len(name.encode()) <= 200 for name in names(tmp_path))


def test_a_table_without_its_picture_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):  # any error: this one needs no full disk
        save_chart("loss", LINES, "\ud800", tmp_path, steps="step")
    assert names(tmp_path) == []
