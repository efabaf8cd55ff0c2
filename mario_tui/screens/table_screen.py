"""A screen that shows what lies on disk in a table, which has marks and can be sorted."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from textual.binding import Binding, BindingType
from textual.events import Key, Paste
from textual.widgets import DataTable

from engine.errors import UserError
from engine.runtime.processes import how_it_ended
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.base.marked_table import MarkedTable

NUMBERS: list[BindingType] = [Binding(str(n), f"sort_by({n})", show=False) for n in range(1, 10)]
"""Of the columns."""
SHARE = 20
"""Reading takes at most 1 / `SHARE` of a core's time, however much there is."""
OLD_S = 5.0
"""Seconds after which the screen says when it has read what it shows."""
_REFRESH_S = 1.0
_POLL_S = 0.2
Reading = TypeVar("Reading")


class TableScreen(PlaceScreen[None], Generic[Reading]):
    """Reads every second, in a thread, while it is visible. Enter on a row does the action `open`."""

    table: MarkedTable[Any]
    """The table that the keys act on, made by `compose`."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read = False
        """Whether it has tried to read once."""
        self._problem = ""
        """Why nothing could be read the last time."""
        self._read_at: float | None = None
        """When reading what is shown began, on the monotonic clock."""
        self._wake = asyncio.Event()

    # ------------------------------------------------------------------------------------------ reading

    @abstractmethod
    def read(self) -> Reading:
        """Read what is shown, in a thread. Raises `UserError`."""

    @abstractmethod
    def take(self, reading: Reading) -> None:
        """Show what was read."""

    def take_problem(self, error: UserError) -> None:
        """If nothing can be read, say so once and keep what is shown."""
        if str(error) != self._problem:
            self.show_error(error)
        self._problem = str(error)

    def read_again(self) -> None:
        """Read now rather than in a second."""
        self._wake.set()

    def on_mount(self) -> None:
        self.run_worker(self._follow(), name="table")
        self.set_interval(1.0, self._show_age)

    def on_screen_resume(self) -> None:
        self.read_again()

    def takes(self, key: Key | Paste) -> bool:
        """Until the table is read, keys wait: most are meant for its rows."""
        return super().takes(key) and self.has_read

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            wait_s = _REFRESH_S
            if self.is_current or not self.has_read:
                began = time.monotonic()
                try:
                    reading, used_s = await asyncio.to_thread(self._timed_read)
                    self._problem = ""
                    taking = time.thread_time()
                    self.take(reading)
                    wait_s = max(_REFRESH_S, SHARE * (used_s + time.thread_time() - taking))
                    self._read_at = began
                    self._show_age()
                except UserError as error:
                    self.take_problem(error)
                if not self.has_read:
                    self.has_read = True
                    self.app.call_next(self.mario.deliver)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait_s)

    def _timed_read(self) -> tuple[Reading, float]:
        """Return what was read, and the seconds of processor time that it took."""
        began = time.thread_time()
        reading = self.read()
        return reading, time.thread_time() - began

    def _show_age(self) -> None:
        age_s = 0.0 if self._read_at is None else time.monotonic() - self._read_at
        self.table.tell(f"read {age_s:.0f} s ago" if age_s > OLD_S else "")

    async def run_command(self, *words: str, done: str = "") -> None:
        """Run a command of mario-tui, and tell what came of it: its errors, else `done` or what it says. It goes on if
        the user leaves meanwhile."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mario_tui", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        while process.poll() is None:
            await asyncio.sleep(_POLL_S)
        said, error = process.communicate()
        done = "" if process.returncode else done
        text = error.strip() or done or said.strip() or f"{words[0]}: {how_it_ended(process.returncode)}"
        self.notify(text, severity="error" if process.returncode else "information")
        self.read_again()

    # ------------------------------------------------------------------------------------------ keys

    def action_down(self) -> None:
        self.table.action_cursor_down()

    def action_up(self) -> None:
        self.table.action_cursor_up()

    def action_first(self) -> None:
        self.table.move_cursor(row=0)

    def action_last(self) -> None:
        self.table.action_scroll_bottom()

    def action_mark(self) -> None:
        self.table.toggle_mark()

    def action_mark_all(self) -> None:
        self.table.toggle_all_marks()

    def action_sort(self) -> None:
        self.table.sort_by_next()

    def action_sort_by(self, number: int) -> None:
        """Sort by a column; if it is sorted by that column already, reverse the order."""
        self.table.sort_by_number(number)

    def action_reverse(self) -> None:
        self.table.sort_by(self.table.sorting[0])

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        await self.run_action("open")
