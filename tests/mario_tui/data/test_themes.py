"""Theme files: the package's are good, a bad one is named and left out."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert len(themes) >= 3
