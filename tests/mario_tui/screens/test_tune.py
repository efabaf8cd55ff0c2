"""The dialog that changes training settings of a live run."""

from __future__ import annotations

from textual.pilot import Pilot
from textual.widgets import Input, Static

from engine.protocol.commands import Set, Tunable
from mario_tui.app import MarioApp
from mario_tui.screens.dialogs import SETTINGS, TuneScreen
from tests.support.app import shown_as, until

NOW: dict[Tunable, float] = {"learning_rate": 5e-4, "epsilon_scale": 1.0, "beta": 0.4, "gamma": 0.9}
"""What is in force; the replay ratio is not known yet."""


async def opened(pilot: Pilot[None], answers: list[list[Set] | None]) -> TuneScreen:
    pilot.app.push_screen(TuneScreen(NOW), answers.append)
    return await shown_as(pilot, TuneScreen)


ACCEPTED = {
    "learning_rate": "learning rate must be between 1e-08 and 1",
    "epsilon_scale": "epsilon scale must be between 0 and 10",
    "beta": "beta must be between 0 and 1",
    "replay_ratio": "replay ratio must be between 0.01 and 1,024",
    "gamma": "gamma must be between 0 and 1",
}


async def test_each_setting_has_its_bounds_and_what_is_wrong_is_said_in_full() -> None:
    assert ACCEPTED.keys() == SETTINGS.keys()
    answers: list[list[Set] | None] = []
    async with MarioApp().run_test(size=(40, 12)) as pilot:
        dialog = await opened(pilot, answers)
        complaint = dialog.query_one("#error", Static)
        for name, (_, low, high) in SETTINGS.items():
            field = dialog.query_one(f"#{name}", Input)
            now = field.value
            for wrong in (f"{low - 1e-9:.12g}", f"{high * 1.001:g}", "nan", "many", *([""] if now else [])):
                field.value = wrong
                said = f"{ACCEPTED[name]}, got {wrong!r}"
                await until(pilot, lambda said=said: str(complaint.render()) == said, said)
                await until(pilot, lambda said=said: complaint.size.area >= len(said), "room for it")
            await pilot.press("enter")
            assert dialog.is_current, name
            field.value = now
        lowest = {name: low for name, (_, low, _) in SETTINGS.items()}
        for values in (lowest, {name: high for name, (_, _, high) in SETTINGS.items()}):
            for name, value in values.items():
                dialog.query_one(f"#{name}", Input).value = f"{value:g}"
            await pilot.press("enter")
            expected = [Set(name=name, value=value) for name, value in values.items() if value != NOW.get(name)]
            await until(pilot, lambda: answers, "the answer")
            assert answers.pop() == expected
            dialog = await opened(pilot, answers)


async def test_only_what_was_changed_is_returned() -> None:
    answers: list[list[Set] | None] = []
    async with MarioApp().run_test(size=(80, 24)) as pilot:
        dialog = await opened(pilot, answers)
        assert {field.id: field.value for field in dialog.query(Input)} == {
            "learning_rate": "0.0005", "epsilon_scale": "1", "beta": "0.4", "replay_ratio": "", "gamma": "0.9",
        }  # fmt: skip
        await pilot.press("enter")
        await opened(pilot, answers)
        await pilot.press("down", "down", *["backspace"] * 3, *"0.6", "tab", *"8", "up", "up", "enter")
        await until(pilot, lambda: len(answers) == 2, "both answers")
    assert answers == [[], [Set(name="beta", value=0.6), Set(name="replay_ratio", value=8.0)]]
