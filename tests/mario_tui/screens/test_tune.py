"""The dialog that changes a run's numbers, without a run."""

from __future__ import annotations

from textual.widgets import Input, Static

from mario_tui.app import MarioApp
from mario_tui.screens.tune import TuneScreen


async def test_an_emptied_field_is_complained_about_and_one_that_was_empty_is_not() -> None:
    app = MarioApp()
    async with app.run_test(size=(80, 24)) as pilot:
        answers: list[object] = []
        app.push_screen(TuneScreen({"learning_rate": 5e-4, "beta": 0.4}), answers.append)
        await pilot.pause()
        dialog = app.screen
        field, complaint = dialog.query_one("#learning_rate", Input), dialog.query_one("#error", Static)
        field.value = ""
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is dialog
        assert str(complaint.render()) == "learning rate must be between 1e-08 and 1, got ''"
        field.value = "0.0005"
        await pilot.press("enter")
        await pilot.pause()
        assert answers == [[]]  # nothing changed; the replay ratio, which is not known yet, may stay empty
