"""The contestants of the emulation benchmark: ours and other packages, ready to step."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench.turns import Contestant, cores, not_installed
from engine.console.view import VIEWS
from engine.envs.lanes import FrameStack
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.runtime.threads import cpu_seconds

OURS, NES_PY = "ours", "nes-py through our protocol"
PACKAGE, RETRO, CYNES = "gym-super-mario-bros 7.4", "stable-retro 1.0.0", "cynes 0.1"
TURBO = "env-supermariobrosnes-turbo-emu 0.7"
ACTIONS = 5  # right-only
CORES = cores()
WHOLE_SCREEN, DEFAULT_VIEW = "84x84", "50x60-red"
NEEDED = {
    PACKAGE: {
        "gym": "gym-super-mario-bros==7.4.0, below Python 3.13",
        "gymnasium": "gymnasium",
        "cv2": "opencv-python-headless",
    },
    CYNES: {"gymnasium": "gymnasium", "cv2": "opencv-python-headless", "cynes": "cynes==0.1.*"},
    RETRO: {"gymnasium": "gymnasium", "cv2": "opencv-python-headless", "stable_retro": "stable-retro==1.0.0"},
    TURBO: {"gymnasium": "gymnasium", "env_supermariobrosnes_turbo_emu": "env-supermariobrosnes-turbo-emu==0.7.*"},
}


@dataclass(kw_only=True)
class MarioContestant(Contestant):
    """A row of the table. `step` steps all lanes; rates are environment steps per second."""

    how: str
    cores: int
    view: str = WHOLE_SCREEN


def ours(cleanup: contextlib.ExitStack, lanes: int, threads: int, view: str, emulator: str) -> Callable[[], Any]:
    env = MarioLanes(MarioTask(view=VIEWS[view]), lanes, threads=threads, emulator=emulator)
    cleanup.callback(env.close)
    stack = FrameStack(env.reset(), env.spec.stack)
    rng = np.random.default_rng(0)

    def step() -> None:
        outcome = env.step(rng.integers(0, ACTIONS, lanes))
        stack.push(outcome.frames, outcome.terminated | outcome.truncated)

    return step


def in_process(cleanup: contextlib.ExitStack, make: Callable[[], Any]) -> Callable[[], Any]:
    """One environment of a peer in this process, without communication between processes."""
    env = make()
    cleanup.callback(env.close)
    env.reset()
    rng = np.random.default_rng(0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(rng.integers(0, ACTIONS))
        if terminated or truncated:
            env.reset()

    return step


def in_workers(cleanup: contextlib.ExitStack, make: Callable[[], Any], workers: int) -> Callable[[], Any]:
    """One process per environment."""
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode

    envs = AsyncVectorEnv([make] * workers, context="spawn", autoreset_mode=AutoresetMode.SAME_STEP)
    cleanup.callback(envs.close)
    envs.reset()
    rng = np.random.default_rng(0)
    return lambda: envs.step(rng.integers(0, ACTIONS, workers))


def turbo(cleanup: contextlib.ExitStack, lanes: int, threads: int) -> Callable[[], Any]:
    """Batched lanes, which a second call resets. Raises `ValueError` if the user has not imported a cartridge."""
    from env_supermariobrosnes_turbo_emu import EnvSuperMarioBrosNesTurboEmuVecEnv

    env = EnvSuperMarioBrosNesTurboEmuVecEnv(
        "SuperMarioBros-Nes-v0",
        state="Level1-1",
        use_restricted_actions=[[], ["RIGHT"], ["RIGHT", "A"], ["RIGHT", "B"], ["RIGHT", "A", "B"]],
        num_envs=lanes,
        num_threads=threads,
    )
    cleanup.callback(env.close)
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(rng.integers(0, ACTIONS, lanes))
        if (ended := terminated | truncated).any():
            env.reset(options={"reset_mask": ended})

    return step


def line_up(cleanup: contextlib.ExitStack) -> list[MarioContestant]:
    """All contestants, ready to step."""
    rows: list[MarioContestant] = []
    clock = partial(cpu_seconds, psutil.Process())

    def add(kind: str, how: str, lanes: int, threads: int, view: str = WHOLE_SCREEN) -> MarioContestant:
        row = MarioContestant(kind, count=lanes, cpu_clock=clock, how=how, cores=min(threads, CORES), view=view)
        row.missing = not_installed(NEEDED.get(kind, {}))
        rows.append(row)
        return row

    def add_ours(kind: str, lanes: int, threads: int, view: str = WHOLE_SCREEN) -> None:
        emulator = "native" if kind == OURS else "nes-py"
        add(kind, "one call", lanes, threads, view).step = ours(cleanup, lanes, threads, view, emulator)

    def add_peer(kind: str, make: Callable[[], Any], workers: int) -> None:
        """Add a peer; with 0 workers it runs in this process."""
        how = f"AsyncVectorEnv, {workers} worker{'s' * (workers > 1)}" if workers else "in process"
        row = add(kind, how, max(workers, 1), max(workers, 1))
        if not row.missing:
            row.step = in_workers(cleanup, make, workers) if workers else in_process(cleanup, make)

    def add_turbo(lanes: int, threads: int) -> None:
        row = add(TURBO, "one call", lanes, threads)
        if not row.missing:
            try:
                row.step = turbo(cleanup, lanes, threads)
            except ValueError:
                row.missing = "needs a cartridge of your own: smb-turbo import FILE.nes"

    for view in (WHOLE_SCREEN, DEFAULT_VIEW):
        for lanes, threads in ((1, 1), (16, 1), (256, 1), (16, 2), (256, 2)):
            add_ours(OURS, lanes, threads, view)
    for threads in (1, 2):
        add_ours(NES_PY, 16, threads)
    for lanes, threads in ((1, 1), (256, 1), (256, 2)):
        add_turbo(lanes, threads)
    for workers in (0, 1, 2, 4):
        add_peer(PACKAGE, package_mario, workers)
    for workers in (0, 2):
        add_peer(CYNES, cynes_mario, workers)
    folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
    if not not_installed(NEEDED[RETRO]):
        from bench.peers import make_retro_folder

        make_retro_folder(folder)
    for workers in (2, 0):  # in this order: AsyncVectorEnv also opens an environment in this process, and closes it
        add_peer(RETRO, partial(retro_mario, folder), workers)
    return rows


def package_mario() -> Any:
    from bench.peers import PackageMario

    return PackageMario()


def cynes_mario() -> Any:
    from bench.peers import CynesMario

    return CynesMario()


def retro_mario(folder: Path) -> Any:
    from bench.peers import RetroMario

    return RetroMario(folder)
