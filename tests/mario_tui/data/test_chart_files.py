"""Saved charts: no file is lost, none is left half written, and a picture depends on the chart alone."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from engine.errors import UserError
from mario_tui.data import chart_files
from mario_tui.data.chart_files import Line, Picture, PictureCurve, draw, save_chart, save_files

LINES = [Line("one", [1, 2], [0.5, 1.0], [1.5, float("nan")])]
EMPTY = Picture("loss", "step", (0.0, 0.0), False, [])
NAN = float("nan")
MEANS = Picture(
    "return ($x$)", "environment steps", (0.0, 3e4), False,
    [
        PictureCurve(
            "_lr=1 $", [1e4, 2e4, 3e4], [1.0, 2.0, 3.0], ([0.0, 1.0, NAN], [2.0, 3.0, NAN]), [3, 3, 2]
        ),
        PictureCurve("lr=2", [1e4, 3e4], [1.0, NAN]),
    ],
)  # fmt: skip


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_files, "find_spec", lambda name: None)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("without_matplotlib")
def test_neither_a_table_nor_a_picture_is_overwritten(tmp_path: Path) -> None:
    def save(folder: Path) -> Path:
        return save_chart("loss", LINES, EMPTY, folder, steps="step")[0]

    assert save(tmp_path / "new" / "folder") == tmp_path / "new" / "folder" / "loss"
    shutil.rmtree(tmp_path / "new")
    (tmp_path / "loss.svg").write_text("mine")
    (tmp_path / "loss-2.csv").symlink_to("nowhere")
    assert save(tmp_path) == tmp_path / "loss-3"
    assert (tmp_path / "loss.svg").read_text() == "mine"
    assert names(tmp_path) == ["loss-2.csv", "loss-3.csv", "loss.svg"]
    assert (tmp_path / "loss-3.csv").read_text().splitlines() == [
        "series,step,seconds,value", "one,1,0.500,1.5", "one,2,1.000,nan",
    ]  # fmt: skip


@pytest.mark.parametrize("title", ["x" * 5_000, "ä/ö " * 1_000])
def test_a_long_title_is_cut_to_what_a_file_system_accepts(title: str, tmp_path: Path) -> None:
    for _ in range(2):
        save_files(title, {".csv": "", ".md": ""}, tmp_path)
    assert len(names(tmp_path)) == 4
    assert all(100 < len(name.encode()) <= 200 for name in names(tmp_path))


def test_files_that_belong_together_are_written_all_or_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):  # any error: this one needs no full disk
        save_files("loss", {".csv": "1", "x" * 300: "2"}, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.usefixtures("without_matplotlib")
def test_without_the_extra_the_table_is_saved_and_one_line_says_how_to_get_pictures(tmp_path: Path) -> None:
    path, problem = save_chart("loss", LINES, EMPTY, tmp_path, steps="step")
    assert path.with_suffix(".csv").is_file() and re.fullmatch(r"for pictures: .*pip install.*\[pictures\]'?", problem)


@pytest.mark.process
def test_a_picture_is_vector_with_its_names_axes_and_band() -> None:
    pytest.importorskip("matplotlib")
    files = draw(MEANS)
    svg = files[".svg"].decode()
    for text in ("return ($x$)", "environment steps", "_lr=1 $", "lr=2", "95 % interval (Student's t)", "n=3", "n=2"):
        assert f"<!-- {text} -->" in svg
    assert "PolyCollection" in svg and "<image" not in svg
    assert files[".pdf"].startswith(b"%PDF") and b"/Subtype /Image" not in files[".pdf"]


@pytest.mark.parametrize("content", ["figure.facecolor: red\nfont.size: 30\nbackend: module://nothing", "\0: nonsense"])
@pytest.mark.process
def test_no_file_of_the_working_folder_changes_a_picture(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    before = draw(MEANS)
    (tmp_path / "matplotlibrc").write_text(content)
    (tmp_path / "matplotlib.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert draw(MEANS) == before


@pytest.mark.process
def test_why_a_picture_can_not_be_drawn_is_one_line() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match=r"^the picture could not be drawn: ValueError: .*$"):
        draw(Picture("loss", "step", (0.0, 1.0), False, [PictureCurve("one", [1.0], [1.0, 2.0])]))
