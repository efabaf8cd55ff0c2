"""Files that a user names: none is waited for or read without bound, and links are followed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.agents.weights import policy_weights
from engine.config.reading import load_toml
from engine.console.cartridge import installed_mario, load_cartridge
from engine.errors import UserError
from engine.games.mario.task import MarioTask
from engine.runs.checkpoints import policy_metadata
from engine.runs.recording import read_recording
from engine.runtime.files import program_folder, read_bounded
from mario_tui.data.differences import _load as load_colours
from mario_tui.data.settings import (
    load_settings,
    load_theme,
    load_themes,
    remember_theme,
    settings_path,
    user_folder,
)
from mario_tui.extras.event_files import problem_of
from mario_tui.screens.panel_grid import Remembered, layout_file, recall
from tests.support.odd_files import ODD_FILES
from tests.support.program import FinishedRun, run_program

pytestmark = pytest.mark.timeout(60)  # what waits for a FIFO waits for ever


@pytest.fixture(params=ODD_FILES)
def make_bad(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Makes a file that can't be read, and returns its path."""

    def make(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        ODD_FILES[request.param](path)
        return path

    return make


REFUSED: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "rom.nes": (load_cartridge, UserError),
    "options.toml": (load_toml, UserError),
    "policy.safetensors": (policy_metadata, UserError),
    "weights.safetensors": (policy_weights, UserError),
    "theme.toml": (load_theme, UserError),
    "history.msgpack": (read_recording, UserError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_bounded_file_is_refused_in_one_line(
    name: str, make_bad: Callable[[Path], Path], tmp_path: Path
) -> None:
    read, error = REFUSED[name]
    with pytest.raises(error) as refused:
        read(make_bad(tmp_path / name))
    assert len(str(refused.value).splitlines()) == 1 and name in str(refused.value)


def test_settings_and_themes_never_hold_up_the_start(make_bad: Callable[[Path], Path]) -> None:
    make_bad(settings_path())
    make_bad(user_folder() / "mine.toml")
    (wrong,) = load_settings()[1]
    assert wrong.startswith(f"{settings_path()}: ")
    with pytest.raises(UserError, match=r"settings\.toml"):
        remember_theme("other")
    (wrong,) = load_themes()[1]
    assert wrong.startswith(f"{user_folder() / 'mine.toml'}: ")


@pytest.mark.parametrize(
    "content", ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a = '\0'"], ids=["nested", "digits", "control"]
)
def test_a_theme_that_no_parser_takes_is_reported(content: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(UserError, match=r"mine\.toml"):
        load_theme(tmp_path / "mine.toml")


def test_what_the_program_keeps_for_itself_is_not_waited_for_either(
    make_bad: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(make_bad(tmp_path / "token")))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    ways = pytest.importorskip("engine.extras.distillation.mario.ways").WayCache("1-1", MarioTask(), 0)
    make_bad(ways._file)
    make_bad(layout_file("dashboard"))
    make_bad(program_folder("STATE") / "colours.json")
    assert ways.load() is None
    assert recall("dashboard") == Remembered()
    assert load_colours() == {}
    assert pytest.importorskip("engine.extras.ray.named_cluster")._token() == ""


def test_an_event_file_that_is_a_fifo_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tfevents")
    assert problem_of(tmp_path / "tfevents") == "is not a regular file"


def test_links_are_followed_for_reading(tmp_path: Path) -> None:
    """Package managers make hard links, and users symbolic ones."""
    (tmp_path / "rom.nes").write_bytes(installed_mario().read_bytes())
    (tmp_path / "hard.nes").hardlink_to(tmp_path / "rom.nes")
    (tmp_path / "soft.nes").symlink_to("hard.nes")
    assert load_cartridge(tmp_path / "soft.nes").program.shape == (2**15,)
    assert read_bounded(tmp_path / "soft.nes", 2**20, links=True) == (tmp_path / "rom.nes").read_bytes()


# ------------------------------------------------------------------------------------------ the program

SNAKE = ("--game", "snake", "--board", "5x5", "--steps", "200")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("--no-ui", "--steps", "100", "--rom", "FIFO.nes"),
    "options": ("--no-ui", "--config", "FIFO.toml"),
    "initial policy": ("--no-ui", *SNAKE, "--initial-policy", "FIFO.safetensors"),
    "eval": ("eval", "mario-1-1", "--episodes", "1", "--rom", "FIFO.nes"),
    "policy": ("eval", "FIFO.safetensors"),
    "play": ("play", "FIFO.safetensors"),
    "distill": ("distill", "FIFO.safetensors", "snake-10x10"),
    "distill from": ("distill", "1-1", "--rom", "FIFO.nes"),
    "events": ("export", "FIFO.tfevents"),
    "report": ("profile", *SNAKE, "--report-file", "FIFO"),
    "trace": ("profile", *SNAKE, "--trace", "FIFO.json"),
}
SHOWN = ("train", "report")


@pytest.mark.parametrize(
    "name", [name if name in SHOWN else pytest.param(name, marks=pytest.mark.long) for name in COMMANDS]
)
@pytest.mark.process
def test_the_program_refuses_a_fifo_at_once(name: str, tmp_path: Path) -> None:
    words = [word.replace("FIFO", str(tmp_path / "fifo")) for word in COMMANDS[name]]
    (path,) = (Path(word) for word in words if word.startswith(str(tmp_path / "fifo")))
    os.mkfifo(path)
    done = run_program(*words, cwd=tmp_path, check=2, timeout_s=60)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("mario-tui: error: ") and "fifo" in done.stderr


@pytest.mark.long
@pytest.mark.process
def test_a_run_whose_options_name_a_fifo_is_not_resumed(finished_run: FinishedRun, tmp_path: Path) -> None:
    run, fifo = tmp_path / "checkpoints" / finished_run.run.name, tmp_path / "fifo.nes"
    shutil.copytree(finished_run.run.path, run)
    os.mkfifo(fifo)
    options = (run / "config.toml").read_text()
    (run / "config.toml").write_text(f"{options}\nrom = {str(fifo)!r}\n")
    done = run_program("--no-ui", "--resume", str(run), "--steps", "3000", cwd=tmp_path, check=2, timeout_s=60)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and "is not a regular file" in done.stderr
