"""What event files contain besides scalars is named, and hyper-parameters are a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from textual.widgets import Static

from mario_tui.app import MarioApp
from mario_tui.extras.event_files import Session
from mario_tui.extras.event_files.charts import ChartsScreen
from mario_tui.extras.event_files.contents import EventContentsScreen, hyperparameters
from tests.support.app import until


def written(folder: Path) -> None:
    """Two sessions by PyTorch, one of them with an image and a text."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for name, rate in (("one", 0.1), ("two", 0.01)):
            writer.add_hparams({"lr": rate, "net": f"{name}[/b]", "noisy": True}, {"score": rate * 100}, run_name=name)
        writer.add_image("sample", np.zeros((3, 8, 6), np.uint8), 5)
        writer.add_text("config", "first\n\x1b[31msecond", 7)
    with SummaryWriter(str(folder / "one")) as writer:
        writer.add_scalar("score", float("nan"), 1)  # the newest finite value is shown


@pytest.mark.long
async def test_hyperparameters_and_other_kinds_are_one_key_away(tmp_path: Path) -> None:
    written(tmp_path)
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        screen: Any = app.screen
        assert isinstance(screen, ChartsScreen)
        wanted = "also hyper-parameters of 2 sessions, 1 image, 1 text (i)"
        await until(pilot, lambda: wanted in str(screen.query_one("#title", Static).render()), "what there is")
        await pilot.press("i")
        assert isinstance(app.screen, EventContentsScreen)
        others = str(app.screen.query_one("#others", Static).render())
        assert "sample  image, 6x8, 1 time, newest at step 5" in others
        assert "first" in others and "\x1b" not in others
        table = hyperparameters(screen.events)
        assert table is not None
        assert [str(column.header) for column in table.columns] == ["session", "status", "score", "lr", "net", "noisy"]
        rows = list(zip(*([str(cell) for cell in column.cells] for column in table.columns), strict=True))
        assert rows == [
            ("one", "success", "10.0", "0.100", "one[/b]", "1.00"),
            ("two", "success", "1.00", "0.010", "two[/b]", "1.00"),
        ]
        await pilot.press("escape")
        assert app.screen is screen
        screen.events.sessions["one"].parameters |= {f"option_{number}": number for number in range(70)}
        await pilot.press("i")
        await until(pilot, lambda: app.screen.query_one(".dialog").max_scroll_x > 0, "room to scroll")
        shown = app.screen.query_one("#hyperparameters", Static)
        assert shown.size.width > 70 * len("option_1") and shown.size.height == 3  # however many there are
        await pilot.press("escape")
        for number in range(250):
            screen.events.sessions[f"more{number}"] = Session({"lr": 0.5})
        await pilot.press("i")
        assert str(app.screen.query_one("#more-sessions", Static).render()) == "and 52 more sessions"
