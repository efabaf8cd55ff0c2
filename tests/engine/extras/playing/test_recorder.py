"""Videos: what is filmed, and what happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.envs.played_game import PICTURES_PER_S
from engine.errors import UserError
from engine.extras.playing.play import Recording


def test_a_gif_shows_every_picture_as_it_was_for_as_long(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    colours = random.integers(0, 256, (60, 3), np.uint8)
    recording, shown = Recording(tmp_path / "film.gif"), []
    picture = colours[random.integers(0, 60, (40, 50))]
    for number in range(20):
        if number % 3:  # the others are the same as before
            picture = picture.copy()
            row, column = random.integers(0, 30, 2)
            picture[row : row + number, column : column + 5] = colours[number]
        recording.video.add(picture)
        shown.append(picture)
    filmed = recording.finish()
    assert (filmed.pictures, filmed.seconds) == (20, 20 / PICTURES_PER_S)
    assert filmed.size_bytes == (tmp_path / "film.gif").stat().st_size
    at_ms = 0
    with Image.open(tmp_path / "film.gif") as film:
        for frame in range(film.n_frames):  # type: ignore[attr-defined]
            film.seek(frame)
            number = round(at_ms * PICTURES_PER_S / 1000)
            assert np.array_equal(np.asarray(film.convert("RGB")), shown[number])
            at_ms += film.info["duration"]
    assert at_ms == round(1000 * filmed.seconds, -1)
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


def test_an_earlier_film_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    film.write_text("earlier")
    assert Recording(film).finish().pictures == 0
    assert film.read_text() == "earlier"
    recording = Recording(film)
    recording.video.add(np.zeros((4, 4, 3), np.uint8))
    assert film.read_text() == "earlier"
    recording.finish()
    assert film.read_bytes().startswith(b"GIF89a")


def test_a_target_that_can_not_be_written_is_refused_before_the_game(tmp_path: Path) -> None:
    (tmp_path / "folder.gif").mkdir()
    os.mkfifo(tmp_path / "pipe.gif")
    for name in ("folder.gif", "pipe.gif", "missing/film.gif", "film.avi"):
        with pytest.raises(UserError, match="--record"):
            Recording(tmp_path / name)
