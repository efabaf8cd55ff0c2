"""The game in real pixels: what terminals are asked, and what is sent to those that draw images, decoded again."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from engine.runs.run import Run
from mario_tui.data.settings import settings_path
from mario_tui.terminal.graphics import PLACEHOLDER, Graphics, Replies, choose, iterm2_image, kitty_image, sixel_image
from tests.support.app import recorded_run
from tests.support.images import CELL, REPLIES, decoded, image_commands, scaled
from tests.support.program import Terminal, wait_until
from tests.support.source import serving

QUESTION = b"\x1b[c"
REPLY = re.compile(r"\x1b[_P].*?\x1b\\|\x1b\[[\d;?]*[a-zA-Z]")
DELETION = re.compile(rb"\x1b_Ga=d,d=I,i=(\d+),q=2\x1b\\")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with serving(tmp_path_factory.mktemp("served"), "--rate", "50", "--lanes", "8", "--history", "20000") as run:
        yield run


def watching(run: Run, folder: Path, replies: bytes) -> Terminal:
    """A dashboard that shows the game."""
    terminal = Terminal("attach", str(run.path), cwd=folder, columns=100, replies=replies, cell=CELL)
    terminal.wait_for("● running", "steps/s")
    assert QUESTION not in terminal.raw  # nothing is asked for a game that is not shown
    terminal.send("g")
    return terminal


def saved_picture(terminal: Terminal, run: Run) -> np.ndarray:
    """What f12 writes."""
    folder = run.path / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    terminal.send("P")

    def whole() -> Path | None:
        terminal.text()
        return next((path for path in folder.glob("*.png") if b"IEND" in path.read_bytes()), None)

    return np.asarray(Image.open(wait_until(whole, "the saved picture")))


# ---------------------------------------------------------------------------------------------- in the program


@pytest.mark.parametrize("protocol", ["kitty", "sixel", pytest.param("iterm2", marks=pytest.mark.long)])
@pytest.mark.process
def test_the_terminal_gets_the_frame_that_is_shown_and_keeps_none(protocol: str, served: Run, tmp_path: Path) -> None:
    terminal = watching(served, tmp_path, REPLIES[protocol])
    wait_until(lambda: terminal.text() and image_commands(protocol, bytes(terminal.raw)), "an image")
    terminal.send("f")
    terminal.wait_for("frozen")
    frame = saved_picture(terminal, served)

    def shown() -> bool:
        terminal.text()
        image = decoded(protocol, image_commands(protocol, bytes(terminal.raw))[-1])
        difference = np.abs(scaled(frame, *image.shape[:2]).astype(int) - image)
        return bool(difference.max() <= (2 if protocol == "sixel" else 0))  # Sixel's colours are whole percents

    wait_until(shown, "the frozen frame")
    assert (PLACEHOLDER in terminal.text()) == (protocol == "kitty")
    terminal.send("a")  # the agent's view
    wait_until(lambda: terminal.text() and not shown(), "what the agent sees")
    terminal.send("a")
    wait_until(shown, "the game again")
    terminal.send("x")
    terminal.wait_for("Stop mario", "▀▀▀")  # dimmed half blocks below the dialog
    wait_until(lambda: PLACEHOLDER not in terminal.text(), "no cells of the image")
    sent = len(terminal.raw)
    terminal.send("n")
    wait_until(lambda: terminal.text() and image_commands(protocol, bytes(terminal.raw[sent:])), "the image again")
    wait_until(lambda: "▀▀▀" not in terminal.text(), "no half blocks")
    sent = len(terminal.raw)
    terminal.send("q")
    assert terminal.wait() == 0
    rest, left, _ = bytes(terminal.raw[sent:]).partition(b"\x1b[?1049l")
    assert left
    if protocol == "kitty":
        (deleted,) = DELETION.findall(rest)
        assert b",i=" + deleted + b"," in image_commands(protocol, bytes(terminal.raw))[-1]
        assert rest.rindex(b"a=d") > rest.rfind(b"a=T")


@pytest.mark.process
def test_pictures_go_on_after_a_visit_to_another_dashboard_and_none_is_kept(served: Run, tmp_path: Path) -> None:
    recorded_run(served.path.parent)  # of the same game, so its comparison lists it
    terminal = watching(served, tmp_path, REPLIES["kitty"])
    terminal.wait_for(PLACEHOLDER)
    terminal.send("c")
    terminal.wait_for("Compare")
    terminal.send("\x1b[A")  # there are two runs: the other one, or this one once more
    terminal.send("\r")
    terminal.wait_for("Actors")
    terminal.send("\x1b")
    terminal.wait_for("Compare")
    terminal.send("\x1b")
    terminal.wait_for("● running", PLACEHOLDER)
    sent = len(terminal.raw)
    wait_until(lambda: terminal.text() and image_commands("kitty", bytes(terminal.raw[sent:])), "the next image")
    terminal.send("q")
    assert terminal.wait() == 0
    drawn = set(re.findall(rb"a=T,[^;]*i=(\d+)", bytes(terminal.raw)))
    assert drawn == set(DELETION.findall(terminal.raw))


@pytest.mark.process
def test_a_terminal_without_images_gets_half_blocks(served: Run, tmp_path: Path) -> None:
    terminal = watching(served, tmp_path, REPLIES["text"])
    terminal.wait_for("▀▀▀")
    assert QUESTION in terminal.raw
    terminal.send("q")
    assert terminal.wait() == 0
    assert not any(image_commands(protocol, bytes(terminal.raw)) for protocol in ("kitty", "sixel", "iterm2"))


@pytest.mark.parametrize("how", ["setting", pytest.param("NO_COLOR", marks=pytest.mark.long)])
@pytest.mark.process
def test_whoever_wants_half_blocks_is_not_asked(
    how: str, served: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        settings_path().parent.mkdir(parents=True)
        settings_path().write_text('graphics = "blocks"\n')
    terminal = watching(served, tmp_path, REPLIES["kitty"])
    terminal.wait_for("▀▀▀")
    terminal.send("q")
    assert terminal.wait() == 0
    assert QUESTION not in terminal.raw


@pytest.mark.process
def test_keys_among_late_replies_are_keys_and_replies_are_not(served: Run, tmp_path: Path) -> None:
    terminal = watching(served, tmp_path, b"")
    terminal.wait_for("▀▀▀")
    first, name, rest = REPLIES["kitty"].partition(b"\x1bP>|kitty")
    terminal.send((first + b"f" + name).decode())
    terminal.wait_for("frozen")
    terminal.send(rest.decode())
    terminal.wait_for(PLACEHOLDER, "frozen")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 0
    assert DELETION.search(terminal.raw)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("passthrough", ["on", pytest.param("off", marks=pytest.mark.long)])
@pytest.mark.process
def test_in_tmux_kitty_gets_the_image_if_tmux_passes_it_on(passthrough: str, served: Run, tmp_path: Path) -> None:
    options = tmp_path / "tmux.conf"
    options.write_text(f"set -g allow-passthrough {passthrough}\n")
    tmux = ("env", "-u", "TMUX", "tmux", "-S", str(tmp_path / "tmux"), "-f", str(options), "new-session")
    name = b"\x1bP>|kitty(0.36.4)\x1b\\\x1b[?62;c"
    terminal = Terminal("attach", str(served.path), cwd=tmp_path, replies=name, cell=CELL, under=tmux)
    terminal.wait_for("● running", "steps/s")
    terminal.send("g")
    if passthrough == "on":
        terminal.wait_for(PLACEHOLDER)
        wait_until(lambda: terminal.text() and image_commands("kitty", bytes(terminal.raw)), "an image")
        assert decoded("kitty", image_commands("kitty", bytes(terminal.raw))[-1]).shape == (240, 293, 3)
    else:
        assert PLACEHOLDER not in terminal.wait_for("▀▀▀")
    terminal.send("q")
    assert terminal.wait() == 0
    assert bool(DELETION.search(terminal.raw)) == (passthrough == "on")


@pytest.mark.long
@pytest.mark.process
def test_play_draws_images(tmp_path: Path) -> None:
    terminal = Terminal("play", cwd=tmp_path, replies=REPLIES["kitty"], cell=CELL)
    terminal.wait_for("lives 3", PLACEHOLDER)
    wait_until(lambda: terminal.text() and image_commands("kitty", bytes(terminal.raw)), "an image")
    terminal.send("q")
    assert terminal.wait() == 0
    assert DELETION.search(terminal.raw)


# ---------------------------------------------------------------------------------------------- codes


def picture(height: int, width: int, colours: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (colours, 3), np.uint8)[random.integers(0, colours, (height, width))]


@settings(max_examples=40)
@given(
    height=st.integers(1, 40), width=st.integers(1, 40), colours=st.integers(1, 64), seed=st.integers(0, 2**32),
    drawn=st.tuples(st.integers(6, 90), st.integers(1, 90)),
)  # fmt: skip
def test_images_come_out_as_they_went_in(
    height: int, width: int, colours: int, seed: int, drawn: tuple[int, int]
) -> None:
    rgb = picture(height, width, colours, seed)
    assert (decoded("iterm2", iterm2_image(rgb, 4, 2).encode()) == rgb).all()
    stretched = decoded("kitty", "".join(kitty_image(rgb, 8 / 7, 4, 2, 5)).encode())
    assert (stretched == scaled(rgb, height, round(width * 8 / 7))).all()
    tall, wide = drawn
    image = decoded("sixel", sixel_image(rgb, wide, tall, 64).encode())
    assert image.shape == (tall - tall % 6, wide, 3)
    assert np.abs(image.astype(int) - scaled(rgb, *image.shape[:2])).max() <= 2


def test_a_picture_of_many_colours_is_sent_with_fewer() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    image = decoded("sixel", sixel_image(rgb, 80, 60, 64).encode())
    assert 32 <= len(np.unique(image.reshape(-1, 3), axis=0)) <= 64
    assert np.abs(image.astype(int) - rgb).max() < 128
    assert decoded("kitty", "".join(kitty_image(rgb, 1.0, 4, 2, 5)).encode()).shape == rgb.shape


# ---------------------------------------------------------------------------------------------- replies


@pytest.mark.parametrize(
    ("said", "protocol"),
    [
        ("\x1b_Gi=31;OK\x1b\\\x1bP>|WezTerm 20240203\x1b\\\x1b[?65;4;6;18;22c", "iterm2"),  # draws no placeholders
        ("\x1b_Gi=31;OK\x1b\\\x1bP>|Konsole 24.2\x1b\\\x1b[6;20;10t\x1b[?62;1;4c", "sixel"),
        ("\x1b_Gi=31;OK\x1b\\\x1bP>|ghostty 1.0.1\x1b\\\x1b[?62;22c", "kitty"),
        ("\x1b_Gi=31;ENOTSUPPORTED:x\x1b\\\x1bP>|kitty(0.1)\x1b\\\x1b[?62;c", None),
        ("\x1bP>|XTerm(390)\x1b\\\x1b[6;20;10t\x1b[?1;0;16S\x1b[?64;4;6;9c", "sixel"),
        ("\x1b[?64;4c", None),  # Sixel, but nothing says how large a cell is
        ("\x1b[6;9999;1t\x1b[?64;4c", None),
        ("\x1b[6;20;10t\x1b[?4c", None),  # the first number is the terminal's class
        ("\x1bP>|tmux 3.4\x1b\\\x1b[6;20;10t\x1b[?1;2;4c", "sixel"),
    ],
)
def test_the_protocol_is_chosen_by_what_the_terminal_says(said: str, protocol: str | None) -> None:
    replies = Replies()
    for sequence in REPLY.findall(said):
        replies.take(sequence)
    found = choose("auto", replies, {"TERM": "xterm-256color"})
    assert (found.protocol if found else None) == protocol
    by_hand = choose("sixel", replies, {})
    assert by_hand is not None and by_hand.protocol == "sixel"
    if "XTerm" in said:
        assert found == Graphics("sixel", (10, 20), colours=16)
