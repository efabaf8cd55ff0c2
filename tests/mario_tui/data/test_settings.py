"""Settings and key map: what holds, what is complained about, and what a chosen theme writes."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from textual.command import CommandList, CommandPalette
from textual.pilot import Pilot

from engine.errors import UserError
from mario_tui.app import MarioApp
from mario_tui.data.settings import (
    DEFAULT_THEME,
    Settings,
    load_settings,
    load_themes,
    package_folder,
    remember_theme,
    settings_path,
    user_folder,
)
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from tests.support.app import said, shown_as, until
from tests.support.program import Terminal


def write(text: str) -> Path:
    path = settings_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_defaults_hold() -> None:
    assert load_settings() == (Settings(), [])


def test_the_file_is_read() -> None:
    write('theme = "castle"\ngame_fps = 5\n[keys]\n"dashboard.save" = "S,f2"\nhome.filter = "/"\nhome.new="+"\n')
    settings, complaints = load_settings()
    assert complaints == []
    assert settings == Settings("castle", 5.0, {"dashboard.save": "S,f2", "home.filter": "slash", "home.new": "plus"})


def test_the_documented_settings_are_accepted() -> None:
    page = (Path(__file__).parents[3] / "docs" / "dashboard.md").read_text("utf-8")
    write(page.split("## Settings")[1].split("```toml\n")[1].split("```")[0])
    settings, complaints = load_settings()
    assert complaints == []
    assert settings == Settings(
        "castle", 5.0, {"home.new": "a,f2", "dashboard.save": "S"}, notifications=False,
        alert_command="cat >> ~/alerts.jsonl",
    )  # fmt: skip
    themes = {theme.name for theme in load_themes()[0]}
    assert themes <= {word.strip("`,") for word in page.split("\nThemes: ")[1].split(".toml")[0].split()}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("theme = 3", "theme must be a theme's name, got 3"),
        ("game_fps = 99", "game_fps must be between 1 and 15, got 99"),
        ('graphics = "png"', "graphics must be one of auto, kitty, sixel, iterm2, blocks, got 'png'"),
        ("graphics = [1]", "graphics must be one of auto, kitty, sixel, iterm2, blocks, got [1]"),
        (
            "colour = 1",
            "unknown key 'colour'; must be one of theme, game_fps, graphics, notifications, alert_command, keys",
        ),
        ("keys = 1", "keys must be a table: [keys], then lines such as"),
        ('[keys]\n"home.fly" = "f"', "keys.home.fly: no such action; must be one of home.open, home.new"),
        ('[keys]\n"hom.new" = "f"', "keys.hom.new: no such action; must be one of home. ..., form. ..."),
        ('[keys]\n"home.new" = "enormous"', "keys.home.new must be one or more keys"),
        ('[keys]\n"home.new" = 3', "keys.home.new must be one or more keys"),
        ('[keys]\n"home.new" = "q"', "keys.home.new: 'q' is already used by home.quit_app; give that another"),
        ("theme = ", "Invalid value"),
        ("game_fps = " + 5000 * "1", "Exceeds the limit"),
        ("theme = " + 100_000 * "[", "nested too deeply"),
        ("game_fps = '" + 100_000 * "1" + "'", "game_fps must be between 1 and 15, got '111"),
        ("#" * 2**21, "can't be read (must have at most 1,048,576 bytes"),
    ],
)
def test_what_is_wrong_is_named_and_the_default_holds(content: str, complaint: str) -> None:
    path = write(content)
    settings, (said,) = load_settings()
    assert settings == Settings()
    assert said.startswith(f"{path}: {complaint}")
    assert len(said) < 2100


def test_settings_and_themes_that_are_fifos_are_not_waited_for() -> None:
    path, theme = settings_path(), user_folder() / "mine.toml"
    user_folder().mkdir(parents=True)
    os.mkfifo(path)
    os.mkfifo(theme)
    assert load_settings() == (Settings(), [f"{path}: can't be read (is not a regular file)"])
    assert load_themes()[1] == [f"{theme}: can't be read (is not a regular file)"]
    with pytest.raises(UserError, match="is not a regular file"):
        remember_theme("castle")


def test_two_actions_can_change_their_keys() -> None:
    write('[keys]\n"home.new" = "q"\n"home.quit_app" = "n"\n')
    assert load_settings() == (Settings(keys={"home.new": "q", "home.quit_app": "n"}), [])


def test_a_chosen_theme_changes_one_line() -> None:
    path = write('# mine\ntheme = "mario"  # the first\ngame_fps = 5\n\n[keys]\n"home.new" = "a"\n')
    remember_theme("castle")
    assert path.read_text() == '# mine\ntheme = "castle"  # the first\ngame_fps = 5\n\n[keys]\n"home.new" = "a"\n'
    path.write_text('[keys]\n"home.new" = "a"\n')
    remember_theme("castle")
    assert path.read_text() == 'theme = "castle"\n[keys]\n"home.new" = "a"\n'
    path.unlink()
    remember_theme("ansi")
    assert load_settings()[0].theme == "ansi"
    path.write_text("theme = ")
    with pytest.raises(UserError, match=r"settings\.toml: Invalid value"):
        remember_theme("castle")
    assert path.read_text() == "theme = "
    path.write_bytes(b"# gr\xfcn\n")  # Latin-1
    with pytest.raises(UserError, match=r"settings\.toml: 'utf-8' codec can't decode byte 0xfc"):
        remember_theme("castle")
    assert path.read_bytes() == b"# gr\xfcn\n"


def test_a_line_inside_a_table_is_left_alone() -> None:
    path = write('[keys]\n"home.new" = "a"\ntheme = "x"\n')  # keys.theme: nonsense, but not ours to change
    remember_theme("castle")
    assert path.read_text() == 'theme = "castle"\n[keys]\n"home.new" = "a"\ntheme = "x"\n'


async def test_keys_of_the_settings_are_bindings_help_and_footer(tmp_path: Path) -> None:
    write('[keys]\n"home.new" = "a,f2"\n')
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("n")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("a")
        await shown_as(pilot, NewRunScreen)
        await pilot.press("escape", "f2")
        await shown_as(pilot, NewRunScreen)
        await pilot.press("escape", "f1")
        await shown_as(pilot, HelpScreen)
        assert "a or f2" in app.export_screenshot().replace("&#160;", " ")
        await pilot.press("escape", "ctrl+p", *"new run")
        await until(
            pilot,
            lambda: app.screen.query(CommandList) and app.screen.query_one(CommandList).option_count == 1,
            "the command",
        )
        command = app.screen.query_one(CommandList).get_option_at_index(0)
        assert str(command.prompt) == "New run\nStart a new run · a or f2"


async def test_complaints_are_notes_and_do_not_stop_the_start(tmp_path: Path) -> None:
    path = write('theme = "nothing"\ngame_fps = "[fast]"\n')
    user_folder().mkdir(parents=True)
    (user_folder() / "bad.toml").write_text("name = 1")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app._notifications) == 3, "three notes")
        assert f"{path}: game_fps must be between 1 and 15, got '[fast]'" in said(app)
        assert f"{path}: theme must be one of ansi, castle, " in said(app)
        assert "bad.toml: name must be text, got 1" in said(app)
        assert app.theme == DEFAULT_THEME


async def test_a_theme_is_chosen_in_the_palette_and_remembered(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        app.action_change_theme()
        await until(pilot, lambda: app.screen.query("CommandList"), "the list")
        await pilot.press(*"castle")
        await until(pilot, lambda: app.screen.query_one("CommandList").option_count == 1, "the hit")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == "castle", "the theme")
        await until(pilot, lambda: load_settings()[0].theme == "castle", "the line in the settings")
    assert MarioApp().theme == "castle"


async def list_of_themes(pilot: Pilot[Any]) -> None:
    """Open it, until the themes are shown."""
    pilot.app.action_change_theme()
    await until(pilot, lambda: pilot.app.screen.query("CommandList"), "the list")
    await until(pilot, lambda: pilot.app.screen.query_one(CommandList).option_count > 6, "the themes")
    await pilot.pause()


async def test_the_highlighted_theme_is_previewed_and_saved_only_when_chosen(tmp_path: Path) -> None:
    path = write('theme = "castle"\n')
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await list_of_themes(pilot)
        assert app.theme == "castle"  # the theme in use comes first
        others = sorted(app.available_themes.keys() - {"castle"})
        for name in (others[0], others[1]):
            await pilot.press("down")
            await until(pilot, lambda name=name: app.theme == name, name)
        await pilot.press(*"daylight")
        await until(pilot, lambda: app.theme == "daylight", "the theme that matches")
        background = app.get_css_variables()["background"]
        await pilot.press("escape")
        await until(pilot, lambda: app.theme == "castle", "the theme before")
        assert app.get_css_variables()["background"] != background
        assert path.read_text() == 'theme = "castle"\n'
        await list_of_themes(pilot)
        await pilot.press("down", "down")
        await until(pilot, lambda: app.theme == others[1], "the preview")
        await pilot.press("enter")
        await until(pilot, lambda: path.read_text() == f'theme = "{others[1]}"\n', "the line in the settings")
        assert app.theme == others[1]


async def test_a_read_only_visitor_chooses_a_theme_that_is_not_saved(tmp_path: Path) -> None:
    path = write('theme = "castle"\n')
    app = MarioApp(run_dir=str(tmp_path), read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await list_of_themes(pilot)
        await pilot.press("down")
        await until(pilot, lambda: app.theme != "castle", "the preview")
        previewed = app.theme
        await pilot.press("enter")
        await until(pilot, lambda: not isinstance(app.screen, CommandPalette), "the end of the list")
        await list_of_themes(pilot)
        await pilot.press("down", "escape")
        await until(pilot, lambda: not isinstance(app.screen, CommandPalette), "the end of the list")
        await until(pilot, lambda: app.theme == previewed, "the chosen theme")
        app.theme = "ansi"
        await pilot.pause()
    assert path.read_text() == 'theme = "castle"\n'


async def test_a_theme_whose_file_goes_during_a_preview_leaves_the_chosen_one(tmp_path: Path) -> None:
    write('theme = "castle"\n')
    user_folder().mkdir(parents=True)
    mine = user_folder() / "mine.toml"
    mine.write_text('name = "mine"\nprimary = "#123456"\n')
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await list_of_themes(pilot)
        await pilot.press(*"mine")
        await until(pilot, lambda: app.theme == "mine", "the preview")
        mine.unlink()
        await until(pilot, lambda: app.theme == "castle", "the chosen theme")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, CommandPalette), "the end of the list")
        assert app.theme == "castle"
    assert load_settings()[0].theme == "castle"


@pytest.mark.long
async def test_a_users_theme_comes_changes_and_goes_while_it_runs(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        folder = user_folder()
        folder.mkdir(parents=True)
        path = folder / "mine.toml"
        path.write_text('name = "mine"\nprimary = "#123456"\nbackground = "#010203"\n')
        await until(pilot, lambda: "mine" in app.available_themes, "the theme")
        app.theme = "mine"
        await until(pilot, lambda: app.screen.styles.background.hex == "#010203", "its colours")
        path.write_text('name = "mine"\nprimary = "#123456"\nbackground = "#040506"\n')
        await until(pilot, lambda: app.screen.styles.background.hex == "#040506", "its new colours")
        path.write_text('name = "mine"\nprimary = "nonsense"\n')
        await until(pilot, lambda: "mine.toml: primary must be a colour" in said(app), "the complaint")
        assert app.theme == DEFAULT_THEME
        assert not app._exit


def test_there_are_six_themes_that_one_can_read() -> None:
    themes, complaints = load_themes()
    assert complaints == []
    assert {theme.name for theme in themes} == {path.stem for path in package_folder().glob("*.toml")}
    assert len(themes) >= 6
    for theme in themes:
        if not theme.ansi:
            colours = theme.to_color_system().generate()
            for name in ("primary", "secondary", "accent", "warning", "error", "success", "foreground"):
                assert contrast(getattr(theme, name), colours["background"]) >= 4.5, (theme.name, name)  # WCAG AA
                assert contrast(getattr(theme, name), colours["surface"]) >= 4.5, (theme.name, name)


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    from textual.color import Color

    def luminance(text: str) -> float:
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in Color.parse(text).normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.process
def test_no_color_means_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal(cwd=tmp_path)
    terminal.wait_for("No runs yet")
    terminal.send("n")
    terminal.wait_for("apex-classic", "Start")
    os.kill(terminal.pid, 15)
    assert terminal.wait() == 0
    styles = re.findall(rb"\x1b\[([\d;]*)m", bytes(terminal.raw))
    assert styles
    colours = [style for style in styles if re.search(rb"(^|;)(3[0-8]|4[0-8]|9\d|10\d)(;|$)", style)]
    assert colours == []
