"""Theme files: the package's are good, a bad one is named and left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import UserError
from mario_tui.app import MarioApp
from mario_tui.data.settings import (
    DEFAULT_THEME,
    load_theme,
    load_themes,
    package_folder,
    settings_path,
    user_folder,
)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("name = 'x'\nprimary = 'rot'", "primary must be a colour"),
        ("name = 'x'\nprimari = '#fff'", "unknown key 'primari'; must be one of name, dark, ansi, primary"),
        ("primary = '#fff'", "name is missing"),
        ("name = ''\nprimary = '#fff'", "name is missing"),
        ("name = 'x'", "primary is missing"),
        ("name = 'x'\nprimary = '#fff'\nansi = 'yes'", "ansi must be true or false, got 'yes'"),
        ("name = 'x'\nprimary = ['#fff']", "primary must be a colour"),
        ("name = 'x'\nprimary = '#fff'\nvariables = 1", "variables must be a table, got 1"),
        ("name = 'x'\nprimary = '#fff'\n[variables]\nborder = 'rot'", "variables.border must be a colour"),
        ("name = 'x'\nprimary = '#fff'\n[variables]\nbordr = '#fff'", "variables.bordr is not a variable of Textual's"),
        (
            "name = 'x'\nprimary = '#fff'\n[variables]\nlink-style = 'bold blink'",
            "variables.link-style must be one of none, bold, dim, italic, reverse, underline, got 'bold blink'",
        ),
        ("name = 'x'\nprimary = '#fff'\n[variables]\nlink-style = 1", "variables.link-style must be one of none"),
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
    with pytest.raises(UserError, match=f"mine.toml: {complaint}"):
        load_theme(Path(path))
    themes, complaints = load_themes()
    (told,) = complaints
    assert told.startswith(f"{path}: ") and len(told) < 2100
    assert {theme.name for theme in themes} == {path.stem for path in package_folder().glob("*.toml")}


async def test_variables_and_styles_of_a_theme_are_those_of_the_screen(tmp_path: Path) -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        "name = 'mine'\nprimary = '#fff'\n[variables]\nborder = '#123456'\nlink-style = 'bold underline'\n"
    )
    settings_path().write_text("theme = 'mine'")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)):
        shown = app.get_css_variables()
    assert (shown["border"], shown["link-style"]) == ("#123456", "bold underline")


def test_a_folder_that_can_not_be_read_hides_no_theme_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", f"/{'n' * 300}")  # a name that no file system accepts
    themes, complaints = load_themes()
    assert complaints == [f"{user_folder()}: can't be read (File name too long)"]
    assert DEFAULT_THEME in {theme.name for theme in themes}


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
