"""The native console and nes-py in lockstep: the same buttons and pokes, compared after every frame."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from engine.console.nes import NesBatch, load_cartridge
from engine.console.view import VIEWS
from tests.support.nes.reference import NesPy

START = 0x08
STAGES = tuple(product(range(1, 9), range(1, 5)))
HELD = np.array([0x00, 0x80, 0x81, 0x82, 0x83, 0x40, 0x41, 0x20, 0x10, 0x08, 0x84], np.uint8)
ODDS = np.array([0.08, 0.16, 0.18, 0.16, 0.22, 0.05, 0.04, 0.05, 0.03, 0.005, 0.025])

MODE, TASK, SPLIT, SCREEN_OFF, PAUSED = 0x770, 0x772, 0x722, 0x774, 0x776
PLAYER, WORLD, STAGE, AREA, TIMER = 0x0E, 0x75F, 0x75C, 0x760, 0x7A0
PLAYING, NORMAL = 1, 8


def area_of(world: int, stage: int) -> int:
    """The area that a stage begins in: worlds 1, 2, 4 and 7 have one more before their second stage."""
    return stage + (world in (1, 2, 4, 7) and stage >= 2)


def shrunk(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [50, 60]: the view of that size of a picture (uint8 [240, 256, 3])."""
    thousandths = rgb[32:232, 8:248].astype(np.int64) @ np.array([299, 587, 114])
    return ((thousandths.reshape(50, 4, 60, 4).sum(axis=(1, 3)) + 8000) // 16000).astype(np.uint8)


class Pair:
    """Two consoles in lockstep. frames, pictures: number of equal RAMs and of equal pictures so far."""

    def __init__(self) -> None:
        self.ours = NesBatch(1, load_cartridge())
        self.theirs = NesPy()
        self._gray = np.zeros((1, 50, 60), np.uint8)
        self.frames = 0
        self.pictures = 0

    def step(self, buttons: int, draw: bool = True) -> None:
        """One frame; all 2048 bytes must be equal afterwards, and all 61,440 pixels if `draw`."""
        self.ours.step(np.array([buttons], np.uint8))
        self.theirs.step(buttons)
        self.frames += 1
        if not np.array_equal(self.ours.ram[0], self.theirs.ram):
            unequal = np.flatnonzero(self.ours.ram[0] != self.theirs.ram)
            raise AssertionError(f"frame {self.frames}: RAM differs at {[hex(a) for a in unequal]}")
        if draw:
            self.pictures += 1
            ours, theirs = self.ours.screen(0), self.theirs.screen()
            if not np.array_equal(ours, theirs):
                pixels = np.argwhere((ours != theirs).any(axis=2))
                raise AssertionError(f"frame {self.frames}: {len(pixels)} pixels differ, first at {pixels[0]}")
            self.ours.picture(VIEWS["50x60"], self._gray)
            if not np.array_equal(self._gray[0], shrunk(theirs)):
                grays = np.argwhere(self._gray[0] != shrunk(theirs))
                raise AssertionError(f"frame {self.frames}: {len(grays)} grays differ, first at {grays[0]}")

    def poke(self, address: int, value: int) -> None:
        """Write to both RAMs."""
        self.ours.ram[0, address] = value
        self.theirs.ram[address] = value

    def enter(self, world: int, stage: int) -> None:
        """Go to the title screen and from there into a stage, as gym_super_mario_bros does."""
        # what the game itself writes when it goes back to the title
        for address, value in ((MODE, 0), (TASK, 0), (SPLIT, 0), (SCREEN_OFF, 1), (PAUSED, 0)):
            self.poke(address, value)
        self.step(0)
        for _ in range(200):
            self.step(START)
            self.poke(WORLD, world - 1)
            self.poke(STAGE, stage - 1)
            self.poke(AREA, area_of(world, stage) - 1)
            self.step(0)
            self.poke(TIMER, 0)
            if self.ours.ram[0, MODE] == PLAYING and self.ours.ram[0, PLAYER] == NORMAL:
                break
        found = (self.ours.ram[0, MODE], self.ours.ram[0, WORLD] + 1, self.ours.ram[0, STAGE] + 1)
        assert found == (PLAYING, world, stage), f"stage {world}-{stage} was not entered: {found}"

    def play(self, frames: int, rng: np.random.Generator) -> None:
        """Random buttons, each held for 1 to 30 frames, mostly to the right; half of the frames are drawn."""
        until = self.frames + frames
        while self.frames < until:
            buttons = int(rng.choice(HELD, p=ODDS))
            for _ in range(min(int(rng.integers(1, 31)), until - self.frames)):
                self.step(buttons, draw=bool(rng.integers(2)))

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
