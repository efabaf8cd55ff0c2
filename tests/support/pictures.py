"""The pictures of the documentation, of a real run.

    python -m tests.support.pictures [--steps N] [--tutorial]

trains for a minute or two and writes `docs/images/*.svg`; with `--tutorial` until Mario reaches the flag, which takes
some minutes, and writes the pictures of `docs/tutorial.md` instead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from engine.config.reading import make_config
from engine.host.client import HostProcess
from engine.protocol.messages import Evaluation
from engine.runs.registry import create_run
from mario_tui.app import MarioApp
from mario_tui.widgets.panels.game import GameView

FOLDER = Path(__file__).parents[2] / "docs" / "images"
SIZE, TUTORIAL_SIZE = (120, 40), (80, 24)
RUN = {"eval_every": 25_000, "steps": 10_000_000}


async def until(pilot: Pilot[Any], condition: Callable[[], Any]) -> None:
    while not condition():
        await pilot.pause(0.05)


async def settle(pilot: Pilot[Any]) -> None:
    """No notices, nothing that moves."""
    pilot.app.clear_notifications()
    await until(pilot, lambda: not pilot.app.screen.query("Toast"))
    await pilot.wait_for_scheduled_animations()


async def take(pilot: Pilot[Any], name: str) -> None:
    await settle(pilot)
    path = FOLDER / f"{name}.svg"
    path.write_text(pilot.app.export_screenshot(title="mario-tui"), encoding="utf-8")
    print(f"{path.name}: {path.stat().st_size / 1024:.0f} KiB")


async def take_all(steps: int) -> None:
    """Dashboard with the game, and a chart alone."""
    host = HostProcess(create_run(make_config(RUN)))
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=SIZE) as pilot:
        dashboard: Any = app.screen
        feed, game = dashboard.feed, dashboard.query_one(GameView)
        await until(pilot, lambda: (now := feed.snapshot().progress) is not None and now.env_steps >= steps)
        await pilot.press("g")
        await until(pilot, lambda: game.frame is not None and game.frame.thought is not None)
        await pilot.press("f")
        await take(pilot, "dashboard")
        await pilot.press("f", "g", "4", "z", "m", *["left"] * 20)
        await take(pilot, "chart")
        await pilot.press("escape", "escape", "x", "y")
        await until(pilot, lambda: feed.snapshot().end is not None)


async def take_tutorial() -> None:
    """A run that has just begun, its game, and the first evaluation with a clear, in the dashboard and at home."""
    host = HostProcess(create_run(make_config({})))
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=TUTORIAL_SIZE) as pilot:
        dashboard: Any = app.screen
        feed, game = dashboard.feed, dashboard.query_one(GameView)
        await until(pilot, lambda: (now := feed.snapshot().progress) is not None and now.updates > 100)
        await pilot.press("escape")  # closes the card over a first dashboard
        await take(pilot, "tutorial-dashboard")
        await pilot.press("g")
        await until(pilot, lambda: game.frame is not None and game.frame.thought is not None)
        await take(pilot, "tutorial-game")
        await pilot.press("g")
        await until(
            pilot,
            lambda: any(isinstance(event, Evaluation) and event.clears for event in feed.snapshot().others),
        )
        await pilot.press("7")  # in 80 columns it opens on the whole screen
        await take(pilot, "tutorial-flag")
        await pilot.press("z", "x", "y")
        await until(pilot, lambda: feed.snapshot().end is not None)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tests.support.pictures", description="write the pictures of the documentation"
    )
    parser.add_argument("--steps", type=int, default=80_000, help="environment steps before the pictures are taken")
    parser.add_argument("--tutorial", action="store_true", help="the pictures of docs/tutorial.md")
    options = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        os.chdir(folder)
        asyncio.run(take_tutorial() if options.tutorial else take_all(options.steps))


if __name__ == "__main__":
    main()
