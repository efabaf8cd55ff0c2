"""Theme files: the package's are good, a bad one is named and left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mario_tui.app import MarioApp
from mario_tui.data.settings import settings_path
from mario_tui.data.themes import DEFAULT, ThemeError, load_theme, load_themes, user_folder


def test_package_themes_load_without_complaint() -> None:
    themes, complaints = load_themes()
    assert complaints == []
    names = [theme.name for theme in themes]
    assert DEFAULT in names
    assert len(set(names)) == len(names) >= 3


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("name = 'x'\nprimary = 'rot'", "primary must be a colour"),
        ("name = 'x'\nprimari = '#fff'", "unknown key 'primari'; must be one of name, dark, ansi, primary"),
        ("primary = '#fff'", "name is missing"),
        ("name = 'x'\nprimary = '#fff'\ndark = 1", "dark must be true or false, got 1"),
        ("name = ", "Invalid value"),
        ("name = " + "[" * 100_000, "nested too deeply"),
        ("name = 'x'\nprimary = '" + "z" * 100_000 + "'", "primary must be a colour .* characters left out"),
        ("#" * 2**21, "can't be read .*must have at most 1,048,576 bytes"),
    ],
)
def test_a_bad_theme_is_named_and_left_out(content: str, complaint: str) -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    path = folder / "mine.toml"
    path.write_text(content)
    with pytest.raises(ThemeError, match=f"mine.toml: {complaint}"):
        load_theme(Path(path))
    themes, complaints = load_themes()
    assert len(complaints) == 1
    assert len(complaints[0]) < 2100
    assert len(themes) >= 3


@pytest.mark.parametrize("dark", ["true", "false"])
async def test_a_theme_of_the_terminal_s_colours_needs_no_variables(dark: str, tmp_path: Path) -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(f"name = 'mine'\nprimary = 'ansi_red'\nansi = true\ndark = {dark}")
    settings_path().write_text("theme = 'mine'")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("n", "escape", "question_mark")
        assert app.theme == "mine"
        assert not app._notifications
