"""The native console compared with the installed nes-py, frame by frame: every byte of RAM and every pixel."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.nes.play import STAGES, Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    consoles = Pair()
    yield consoles
    consoles.close()


@pytest.mark.long
def test_power_on_title_screen_and_demo_are_equal(pair: Pair) -> None:
    for _ in range(1500):
        pair.step(0)
    assert pair.pictures == 1500


@pytest.mark.parametrize(
    ("world", "stage"),
    [(1, 1), *(pytest.param(*each, marks=pytest.mark.long) for each in [(1, 2), (2, 2), (4, 4), (8, 3)])],
)
def test_random_play_is_equal_in_every_byte_and_pixel(pair: Pair, world: int, stage: int) -> None:
    for _ in range(60):
        pair.step(0)
    pair.enter(world, stage)
    pair.play(2000, np.random.default_rng(10 * world + stage))
    assert pair.frames > 2000 and pair.pictures > 900


@pytest.mark.long
def test_all_stages_are_equal_while_the_frame_border_moves_through_the_whole_picture(pair: Pair) -> None:
    rng = np.random.default_rng(1985)
    for _ in range(60):
        pair.step(0)
    for world, stage in STAGES:
        pair.enter(world, stage)
        pair.play(6250, rng)
    # 1.5 dots a frame: the border has been at every dot of the picture
    assert pair.frames > 200_000 and pair.pictures > 90_000
