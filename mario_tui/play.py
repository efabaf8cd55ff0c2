"""`mario-tui play`: watch a policy, or play yourself, in real time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Sequence

from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key
from textual.widgets import Footer, Static

from engine.config import joypad
from engine.errors import UserError
from engine.protocol.framing import decode_evaluation
from engine.protocol.messages import Episode, Evaluated, EvaluationReport, Failed, Frame
from mario_tui.data import themes
from mario_tui.data.format import counted, reached
from mario_tui.data.settings import load_settings
from mario_tui.engine_command import EngineCommand
from mario_tui.terminal.safe_app import SafeApp
from mario_tui.widgets.panels.game import GameView

_BUTTONS = {
    "left": joypad.LEFT, "right": joypad.RIGHT, "up": joypad.UP, "down": joypad.DOWN,
    "a": joypad.LEFT, "d": joypad.RIGHT, "w": joypad.UP, "s": joypad.DOWN,
    "z": joypad.B, "x": joypad.A, "o": joypad.B, "p": joypad.A,
    "enter": joypad.START, "tab": joypad.SELECT,
}  # fmt: skip
_HELP = {
    "mario": "arrows or WASD: move   x or p: jump (A)   z or o: run, fire (B)   enter: pause",
    "snake": "arrows or WASD: steer",
    "tetris": "left, right: move   up: rotate   down or x: drop",
}


_RECORDING_TIMEOUT_S, _EXIT_TIMEOUT_S = 30.0, 2.0


def start_game(*arguments: str) -> EngineCommand[EvaluationReport]:
    """Start the engine's game. At its end it gets time to finish the recording, if `arguments` request one."""
    records = any(argument.startswith("--record") for argument in arguments)
    leave_s = _RECORDING_TIMEOUT_S if records else _EXIT_TIMEOUT_S
    return EngineCommand("play", *arguments, decode=decode_evaluation, leave_s=leave_s)


def record(arguments: Sequence[str]) -> int:
    """Record one episode to a file, without a screen. Returns the exit status."""
    played = False
    with start_game(*arguments, "--episodes=1") as game:
        for report in game.messages():
            if isinstance(report, Failed):
                if report.usage:
                    raise UserError(report.reason)
                print(f"mario-tui: the game failed: {report.reason}", file=sys.stderr)
                return 1
            if isinstance(report, Episode):
                played = True
                flag = f", {'flag' if report.flag else 'no flag'}" if report.x_pos else ""
                print(f"return {report.episode_return:.0f}, {reached(report.x_pos, report.score)}{flag}")
        if not played:
            print(f"mario-tui: {game.crash_reason()}", file=sys.stderr)
    return 0 if played else 1


class PlayApp(SafeApp[None]):
    """The game full-screen, values from its memory, and the results of its episodes.

    Terminals report key presses but not releases: a key counts as held for `hold_s` seconds after its last press.
    """

    CSS = "#game { height: 1fr; } #memory, #episodes { height: 1; padding: 0 1; }"
    BINDINGS = [Binding("q,escape", "quit", "Quit")]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, title: str, arguments: Sequence[str], *, human: bool, game: str, hold_s: float) -> None:
        super().__init__()
        self._title, self._arguments, self._human, self._hold_s = title, arguments, human, hold_s
        self._game_name = game
        self._frame: Frame | None = None
        self._episodes: list[Episode] = []
        self._failure: Failed | None = None
        self._leaving = False
        self._until: dict[int, float] = {}  # button -> time at which it counts as released
        self._sent = 0
        for theme in themes.load_themes()[0]:
            self.register_theme(theme)
        chosen = load_settings()[0].theme
        self.theme = chosen if chosen in self.available_themes else themes.DEFAULT

    def compose(self) -> ComposeResult:
        self._game = GameView()
        self._game.title, self._game.number = self._title, 0
        yield self._game
        yield Static("starting", id="memory")
        yield Static(_HELP[self._game_name] if self._human else "first episode", id="episodes")
        yield Footer()

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()  # by default these kill Textual with the terminal unrestored
        for number in (signal.SIGHUP, signal.SIGTERM):
            loop.add_signal_handler(number, self.exit)
        self.set_interval(1 / 60, self._tick)

    def action_help_quit(self) -> None:
        """Ctrl-C: quit without asking, because nothing can be lost."""
        self.exit()

    def on_key(self, event: Key) -> None:
        button = _BUTTONS.get(event.key.lower())
        if self._human and button is not None:
            if self._game_name == "mario":
                self._until[button] = time.monotonic() + self._hold_s
            else:
                self._send(button)
                self._send(0)
            event.stop()
            event.prevent_default()

    def run_in_terminal(self) -> int:
        """Play until the user quits. Returns the exit status."""
        self._game_process = start_game(*self._arguments)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self.run()
        finally:
            self._leaving = True
            self._game_process.close()
        if self._failure is not None:
            if self._failure.usage:
                raise UserError(self._failure.reason)
            print(f"mario-tui: the game failed: {self._failure.reason}", file=sys.stderr)
            return 1
        return self.return_code or 0

    def _read(self) -> None:
        for report in self._game_process.messages():
            match report:
                case Frame():
                    self._frame = report
                case Episode():
                    self._episodes = [*self._episodes, report]
                case Failed():
                    self._failure = report
                case Evaluated():
                    pass
        if not self._leaving and self._failure is None:
            self._failure = Failed(reason=self._game_process.crash_reason(), traceback="", log_path="", checkpoint=None)

    def _tick(self) -> None:
        if self._failure is not None:
            self.exit()
            return
        now = time.monotonic()
        held = sum(button for button, until in self._until.items() if until > now)
        if held != self._sent:
            self._sent = held
            self._send(held)
        frame = self._frame
        if frame is None:
            return
        self._game.show(frame)
        memory = "  ".join(f"{name} {value}" for name, value in frame.info.items() if name != "flag_get")
        self._set_line("memory", memory)
        if self._episodes:
            self._set_line("episodes", _results(self._episodes))

    def _send(self, buttons: int) -> None:
        with contextlib.suppress(OSError):  # `_read` handles it
            self._game_process.send(bytes((buttons,)))

    def _set_line(self, name: str, text: str) -> None:
        line = self.query_one(f"#{name}", Static)
        if str(line.content) != text:
            line.update(text)


def _results(episodes: Sequence[Episode]) -> str:
    """Results of the episodes, in one line."""
    last = episodes[-1]
    if not last.x_pos:
        scores = [episode.score for episode in episodes]
        return (
            f"{counted(len(scores), 'game')}, mean score {sum(scores) / len(scores):.1f}, best {max(scores)}; "
            f"last: {last.score}"
        )
    clears = sum(episode.flag for episode in episodes)
    how = "flag" if last.flag else "died or stuck"
    return f"{clears} of {len(episodes)} cleared; last: {how} at x {last.x_pos}"
