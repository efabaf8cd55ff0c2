"""`mario-tui serve` in headless Chromium: what a visitor sees and types, page and terminal widget included."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.app import folder_of_runs
from tests.support.program import PATIENCE_S
from tests.support.web import Served

playwright = pytest.importorskip("playwright.async_api", reason="make test-long installs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]


class Screen:
    """A page of the server in a browser, and what the terminal in it was sent."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.received = b""
        self.news = asyncio.Event()
        page.on("websocket", lambda socket: socket.on("framereceived", self._receive))

    def _receive(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes):
            self.received += frame
            self.news.set()

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while text.encode() not in self.received:
                self.news.clear()
                await self.news.wait()

    async def press(self, key: str) -> None:
        self.received = b""
        await self.page.keyboard.press(key)

    async def colours(self) -> int:
        """Different colours in what is painted: a blank page has one."""
        picture = await self.page.screenshot(type="png")
        count: int = await self.page.evaluate(_COUNT_COLOURS, list(picture))
        return count


_COUNT_COLOURS = """async bytes => {
    const bitmap = await createImageBitmap(new Blob([new Uint8Array(bytes)], {type: "image/png"}));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    canvas.drawImage(bitmap, 0, 0);
    const pixels = new Uint32Array(canvas.getImageData(0, 0, bitmap.width, bitmap.height).data.buffer);
    return new Set(pixels).size;
}"""


@pytest.fixture
async def screen(served: Served, tmp_path: Path) -> AsyncIterator[Screen]:
    folder_of_runs(tmp_path / "runs", first="finished", second="failed")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        visited = Screen(page)
        await page.goto(served.whole_address)
        yield visited
        await browser.close()


async def test_a_visitor_sees_the_runs_and_opens_one(screen: Screen) -> None:
    await screen.wait_for("second")
    assert await screen.colours() > 50
    await screen.press("Enter")  # without a click
    await screen.wait_for("TD loss")
    await screen.press("?")
    await screen.wait_for("Pause or resume training")


async def test_a_browser_that_has_visited_needs_no_token_and_another_one_does(screen: Screen, served: Served) -> None:
    await screen.wait_for("second")
    screen.received = b""
    await screen.page.goto(served.address)
    await screen.wait_for("second")
    browser = screen.page.context.browser
    assert browser is not None
    other = await (await browser.new_context()).new_page()
    answer = await other.goto(served.address)
    assert answer is not None
    assert answer.status == 403
    assert await other.inner_text("body") == "Open the whole address printed by mario-tui serve, including its token."


async def test_the_terminal_follows_the_window(screen: Screen) -> None:
    await screen.wait_for("second")
    screen.received = b""
    await screen.page.set_viewport_size({"width": 700, "height": 500})
    await screen.wait_for("second")  # painted anew


async def test_a_closed_page_ends_its_client(screen: Screen, served: Served) -> None:
    await screen.wait_for("second")
    (app,) = served.apps()
    await screen.page.close()
    assert await asyncio.to_thread(app.wait, PATIENCE_S) is None
