"""What the person at `mario-tui play` asks for: buttons, pause, single steps, speed and episodes."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from engine.protocol.commands import Pause, Resume
from engine.protocol.framing import MAX_COMMAND_BYTES, decode_play_command, read_message
from engine.protocol.play import Begin, PlayCommand, Press, Speed, Step
from engine.runtime.parent import end_with_stdin

_MAX_PENDING = 64
"""Presses and single steps that are kept until the game takes them; older ones are dropped."""
_MAX_DELAY_S = 0.1
"""A game that is later than this does not catch up: the machine is too slow for the speed."""


class Controls:
    """The commands that a thread reads from standard input.

    Args:
        speed: multiple of normal speed; infinity to never wait.
        finish_s: seconds that the process has to exit after standard input has closed.
    """

    def __init__(self, speed: float, finish_s: float) -> None:
        self.paused, self.speed = False, speed
        self.gone = False
        """Whether standard input has closed: there is no person any more."""
        self._held = 0
        self._step: Step | None = None
        self._presses = deque[int](maxlen=_MAX_PENDING)
        self._steps = deque[Step](maxlen=_MAX_PENDING)
        self._begin: Begin | None = None
        self._due = time.monotonic()
        self._changed = threading.Condition()
        end_with_stdin(self._read, self._close, timeout_s=finish_s)

    @property
    def buttons(self) -> int:
        """The buttons that the person holds."""
        return self._held if self._step is None else self._step.buttons

    def presses(self) -> list[int]:
        """Buttons pressed since the last call, in order."""
        return [self._presses.popleft() for _ in range(len(self._presses))]

    def take_begin(self) -> Begin | None:
        """The newest request for an episode since the last call."""
        with self._changed:
            begin, self._begin = self._begin, None
            return begin

    def wait_while_paused(self, before: Callable[[], None]) -> bool:
        """Wait until the game may go on. Returns whether for a single environment step only.

        It may also go on for `take_begin` and when the person has gone. `before` is called before each wait.
        """
        with self._changed:
            self._step = None
            while self.paused and not (self._steps or self._begin or self.gone):
                before()
                self._changed.wait()
                self._due = time.monotonic()
            if self.paused and self._steps:
                self._step = self._steps.popleft()
            return self._step is not None

    def pace(self, seconds: float) -> None:
        """Wait until `seconds` at normal speed have passed since the last call. A pause ends the wait."""
        with self._changed:
            now = time.monotonic()
            self._due = max(self._due + seconds / self.speed, now - _MAX_DELAY_S)
            self._changed.wait_for(lambda: self.paused or self.gone, max(0.0, self._due - now))

    def _read(self) -> None:
        try:
            while True:
                self._obey(read_message(sys.stdin.buffer, decode_play_command, MAX_COMMAND_BYTES))
        except EOFError:
            pass
        except ValueError as error:
            print(f"invalid command: {error}", file=sys.stderr)

    def _obey(self, command: PlayCommand) -> None:
        with self._changed:
            match command:
                case Pause():
                    self.paused = True
                case Resume():
                    self.paused = False
                    self._steps.clear()
                    self._presses.clear()  # during the pause, they were for single steps
                case Step():
                    self._steps.append(command)
                case Speed():
                    self.speed = command.times
                case Press():
                    self._held = command.buttons
                    if command.buttons:
                        self._presses.append(command.buttons)
                case Begin():
                    self._begin = command
            self._changed.notify()

    def _close(self) -> None:
        with self._changed:
            self.gone = True
            self._changed.notify()
