"""Tells a user who is not watching that something has happened: the terminal's bell, and a desktop notification (OSC 9)
in terminals that show them."""

from __future__ import annotations

import os
from typing import Any

from textual.app import App

from engine.runtime.text import printable
from mario_tui.terminal.internals import driver_of

_MOST = 200
"""Maximum length of a notification."""


def alert(app: App[Any], text: str) -> None:
    """Ring the bell and send the notification. In a browser the bell is all there is."""
    app.bell()
    driver = driver_of(app)
    if driver is None or app.is_web or app.is_headless:
        return
    # The text ends at the bell character, so it must not contain any; `printable` leaves no control characters.
    notification = f"\x1b]9;{printable(text)[:_MOST]}\x07"
    if os.environ.get("TMUX"):  # tmux passes it on only if it is wrapped, and if `allow-passthrough` is on
        notification = f"\x1bPtmux;{notification.replace(chr(27), chr(27) * 2)}\x1b\\"
    driver.write(notification)
    driver.flush()
