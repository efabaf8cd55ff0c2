"""Keys typed while a screen closes reach the screen below it."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key, Paste
from textual.screen import Screen
from textual.widgets import Input

from mario_tui.terminal.safe_app import TypeAheadApp
from tests.support.app import until


class Deep(Screen[None]):
    """A key takes many messages from the focused input to the app: the screen is removed before it gets there."""

    def compose(self) -> ComposeResult:
        inner: Container | Input = Input()
        for _ in range(20):
            inner = Container(inner)
        yield inner


class Hearing(TypeAheadApp[None]):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def on_key(self, event: Key) -> None:
        self.heard.append(event.key)


async def test_keys_that_a_closing_screen_did_not_handle_are_delivered_in_order() -> None:
    app = Hearing()
    async with app.run_test() as pilot:
        await app.push_screen(Deep())
        for key in ("f1", "x", "f2"):  # the input takes the letter
            app.post_message(Key(key, None))
        app.call_later(app.pop_screen)
        for key in ("f3", "y"):
            app.post_message(Key(key, None))
        app.call_later(app.post_message, Key("z", None))  # in the queue when the others are delivered
        await until(pilot, lambda: {"f1", "z"} <= set(app.heard), "the last key")
        await pilot.pause()
    assert app.heard == ["f1", "f2", "f3", "y", "z"]


@pytest.mark.parametrize("passed", [False, True], ids=["on their way", "back in the app's queue"])
async def test_the_field_of_the_screen_below_takes_what_was_typed_for_it(passed: bool) -> None:
    app = Hearing()

    async def close() -> None:
        while passed and app._message_queue.qsize() < 2:
            await asyncio.sleep(0)
        app.pop_screen()
        app.post_message(Key("c", None))

    async with app.run_test() as pilot:
        await app.push_screen(Deep())
        below = app.screen.query_one(Input)
        await app.push_screen(Screen())
        for key in ("a", "b"):  # the screen that closes passes them on to the app
            app.post_message(Key(key, None))
        app.call_later(close)
        await until(pilot, lambda: below.value.endswith("c"), "the last letter")
    assert (below.value, app.heard) == ("abc", [])


async def test_keys_and_pasted_text_go_where_the_key_before_them_leads() -> None:
    app = Hearing()
    async with app.run_test() as pilot:
        await app.push_screen(Deep())
        await app.screen.mount(Input(id="next"))
        for event in (Key("a", "a"), Key("tab", None), Key("b", "b"), Paste("c"), Key("d", "d"), Key("f1", None)):
            app.post_message(event.set_sender(app))
        await until(pilot, lambda: "f1" in app.heard, "the last key")
        assert [field.value for field in app.screen.query(Input)] == ["a", "bcd"]


async def test_a_key_whose_widget_was_removed_is_forgotten() -> None:
    app = Hearing()
    async with app.run_test() as pilot:
        await app.push_screen(Deep())
        app.post_message(Key("f1", None))
        app.call_later(app.screen.query_one(Container).remove)
        await until(pilot, lambda: not app.screen.query(Container), "the removal")
        await app.pop_screen()
        app.post_message(Key("f2", None))
        await until(pilot, lambda: "f2" in app.heard, "the next key")
        await pilot.pause()
    assert app.heard == ["f2"]
