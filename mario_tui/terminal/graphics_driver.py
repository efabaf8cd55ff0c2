"""Textual's driver for terminals, with questions: it takes the terminal's replies out of the keyboard's input.

The application runs on while a reply is under way, so asking costs no time and keys typed meanwhile are not lost.
"""

from __future__ import annotations

import os
from typing import Any

from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from mario_tui.terminal.graphics import Graphics, Replies, choose, questions
from mario_tui.terminal.internals import filter_input


class GraphicsFound(Message):
    """The terminal has replied. `graphics`: how to draw images, None if it shows none."""

    def __init__(self, graphics: Graphics | None) -> None:
        super().__init__()
        self.graphics = graphics


class GraphicsDriver(LinuxDriver):
    """Asks what the terminal shows, and removes images before the application's screen is left."""

    _replies: Replies | None = None
    _setting = "auto"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._kept: set[str] = set()
        """The codes that remove the images which the terminal keeps."""

    def ask(self, setting: str) -> None:
        """Ask the terminal; its replies come as `GraphicsFound`, at once or never."""
        self._setting, self._replies = setting, Replies()
        self.write(questions(os.environ))

    def run_input_thread(self) -> None:
        filter_input(self._without_replies)
        super().run_input_thread()

    def stop_application_mode(self) -> None:
        """Called at the end, also after a crash, and before the program is suspended."""
        for codes in tuple(self._kept):
            self.remove_image(codes)
        super().stop_application_mode()

    def keep_image(self, removal: str) -> None:
        """The terminal keeps an image, until it gets the codes `removal`."""
        self._kept.add(removal)

    def remove_image(self, removal: str) -> None:
        """Remove an image, if the terminal keeps it."""
        if removal in self._kept:
            self._kept.remove(removal)
            self.write(removal)

    def _without_replies(self, text: str) -> str:
        replies = self._replies
        if replies is None:
            return text
        text = replies.taken_from(text)
        if replies.complete:
            self._replies = None
            self.send_message(GraphicsFound(choose(self._setting, replies, os.environ)))
        return text
