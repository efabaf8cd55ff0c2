"""Shows clients what the first lane of member 0 plays."""

from __future__ import annotations

import time

from engine.runners.actor import Actor
from engine.runners.frame_mailbox import FrameMailbox
from engine.runners.shared_state import SharedState


class LiveScreen:
    """Writes the frames and decisions of member `index` into a mailbox, if it is member 0 and a client wants them."""

    def __init__(self, shared_state: SharedState, index: int, actor: Actor, mailbox: FrameMailbox) -> None:
        self._shared_state, self._index, self._actor, self._mailbox = shared_state, index, actor, mailbox
        self._shown_at = float("-inf")  # CLOCK_MONOTONIC

    def show(self) -> None:
        """Show the frame if it is time. Called between decision and step, so frame and decision match; in a pause the
        frame is one step ahead."""
        fps = 0.0 if self._index else self._shared_state.screen_fps
        now = time.monotonic()
        if fps and now - self._shown_at >= 1 / fps:
            self._shown_at = now
            self._mailbox.write(*self._actor.show(0))
