"""`mario-tui play`: watch a policy, or play yourself, in real time."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rich.text import Text
from textual.app import ComposeResult, SystemCommand
from textual.events import Key
from textual.screen import Screen
from textual.widgets import Static

from engine.config.capabilities import DOWN, LEFT, RIGHT, SELECT, START, UP, A, B, HasStages, PersonKeys
from engine.config.game import game_of
from engine.errors import UserError
from engine.protocol.commands import Pause, Resume
from engine.protocol.framing import pack
from engine.protocol.messages import Episode, Failed, Frame, Log
from engine.protocol.results import Begin, Filmed, PlayCommand, Playing, PlayOrder, Press, Speed, Step
from engine.runtime.text import printable
from mario_tui.data.format import duration
from mario_tui.data.keys import bindings, keys_in
from mario_tui.data.settings import DEFAULT_THEME, load_settings, load_themes
from mario_tui.extras.play.film import RECORDING_TIMEOUT_S, Results, facts, film_text, start_game
from mario_tui.screens.dialogs import HelpScreen
from mario_tui.terminal.picture import BYTES_PER_S
from mario_tui.terminal.safe_app import SafeApp
from mario_tui.widgets.base.footer import KeyFooter
from mario_tui.widgets.panels.game import GameView

_BUTTON_NAMES = {
    "left": LEFT, "right": RIGHT, "up": UP, "down": DOWN,
    "A": A, "B": B, "start": START, "select": SELECT,
}  # fmt: skip
_SLOWEST, _FASTEST = 1 / 8, 8.0
_PICTURES_PER_S = 30  # of a video
_HUMAN_BYTES_PER_S = 160 * 1024
"""Of images; a person needs more of them per second to play. Half blocks take as much."""


class PlayApp(SafeApp[None]):
    """The game full-screen, its state, values from its memory, and the results of its episodes.

    Terminals report key presses but not releases: a key counts as held for `hold_s` seconds after its last press. While
    the game is paused it counts as held in the next single step.
    """

    CSS_PATH = "../../app.tcss"
    CSS = """
    #state, #memory, #episodes { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    Footer.-compact FooterLabel { margin: 0 1 0 0; }
    Footer.-compact KeyGroup.-compact { padding-left: 0; }
    """
    BINDINGS = [*bindings("play"), *bindings("everywhere")]

    def __init__(self, title: str, order: PlayOrder, *, keys: PersonKeys | None, game: str, hold_s: float) -> None:
        settings = load_settings()[0]
        super().__init__(graphics_setting=settings.graphics)
        self._title, self._order, self._hold_s = title, order, hold_s
        described = game_of(game)
        self._stages = described if isinstance(described, HasStages) else None
        self._human, self._keys = keys is not None, keys or PersonKeys({}, {})
        self._frame: Frame | None = None
        self._state: Playing | None = None
        self._results = self._results_shown = Results()
        self._warnings: list[str] = []
        self._filmed: Filmed | None = None
        self._failure: Failed | None = None
        self._leaving = False
        self._paused, self._speed = False, 1.0
        self._episode, self._stage = 1, ""
        """The newest that was asked for, or else that is played."""
        self._adopted: Playing | None = None
        self._until: dict[int, float] = {}  # button -> time at which it counts as released
        self._next_step = 0  # buttons pressed during the pause
        self._sent = 0
        for theme in load_themes()[0]:
            self.register_theme(theme)
        self.theme = settings.theme if settings.theme in self.available_themes else DEFAULT_THEME
        self._key_map = _free_keys(settings.keys, self._keys.buttons) if self._human else dict(settings.keys)

    def compose(self) -> ComposeResult:
        self._game = GameView(bytes_per_s=_HUMAN_BYTES_PER_S if self._human else BYTES_PER_S)
        self._game.title, self._game.key = self._title, ""
        yield self._game
        yield Static("starting", id="state")
        yield Static("", id="memory")
        yield Static(Text(self._keys.line() if self._human else "no episode has ended yet"), id="episodes")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.set_keymap(self._key_map)
        self.set_interval(1 / 60, self._tick)

    # ------------------------------------------------------------------------------------------ keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Not every game has stages, or worlds."""
        if action in ("previous_stage", "next_stage"):
            return self._stages is not None
        if action in ("previous_world", "next_world"):
            return self._stages is not None and self._stages.stages_of_world > 1
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Commands of the palette: the actions of the game, and the help."""
        for key in (*keys_in("play"), *keys_in("everywhere")):
            if key.action != "command_palette" and self.check_action(key.action, ()):
                yield SystemCommand(key.label, key.help, getattr(self, f"action_{key.action}"))

    def on_key(self, event: Key) -> None:
        button = self._keys.buttons.get(event.key.lower())
        if not self._human or button is None or len(self.screen_stack) > 1:
            return
        if not self._keys.held:
            self._send(Press(buttons=button))
        elif self._paused:
            self._next_step |= button
        else:
            self._until[button] = time.monotonic() + self._hold_s
        event.stop()
        event.prevent_default()

    def action_toggle_pause(self) -> None:
        self._pause(not self._paused)

    def action_step(self) -> None:
        self._pause(True)
        self._send(Step(buttons=self._next_step))
        self._next_step = 0

    def action_slower(self) -> None:
        self._set_speed(self._speed / 2)

    def action_faster(self) -> None:
        self._set_speed(self._speed * 2)

    def action_normal_speed(self) -> None:
        self._set_speed(1.0)

    def action_restart(self) -> None:
        self._send(Begin(episode=self._episode))

    def action_next_episode(self) -> None:
        self._episode += 1
        self.action_restart()

    def action_previous_stage(self) -> None:
        self._go(-1)

    def action_next_stage(self) -> None:
        self._go(1)

    def action_previous_world(self) -> None:
        self._go(-(self._stages.stages_of_world if self._stages else 1))

    def action_next_world(self) -> None:
        self._go(self._stages.stages_of_world if self._stages else 1)

    def action_help(self) -> None:
        """Show the help. A person's game waits for them."""
        if self._human:
            self._pause(True)
        if not isinstance(self.screen, HelpScreen):
            own = self._keys.help if self._human else {}
            self.push_screen(
                HelpScreen("play", self._key_map, own, works=lambda key: self.check_action(key.action, ()))
            )

    def action_leave(self) -> None:
        self.exit()

    def action_help_quit(self) -> None:
        """Ctrl-C: quit without asking, because nothing can be lost."""
        self.exit()

    def _pause(self, paused: bool) -> None:
        if paused == self._paused:
            return
        self._paused = paused
        self._until.clear()
        self._next_step = 0
        self._send(Pause() if paused else Resume())

    def _set_speed(self, speed: float) -> None:
        self._speed = min(max(speed, _SLOWEST), _FASTEST)
        self._send(Speed(times=self._speed))

    def _go(self, by: int) -> None:
        """Play the stage that is `by` after the current one; the first follows the last."""
        if self._state is None or self._stages is None:
            return  # the engine has not started the first
        stages = self._stages.stages
        stage = self._stage if self._stage in stages else self._state.place
        self._stage = stages[(stages.index(stage) + by) % len(stages)] if stage in stages else stages[0]
        self._send(Begin(episode=self._episode, stage=self._stage))

    def _send(self, command: PlayCommand) -> None:
        with contextlib.suppress(OSError):  # `_read` handles it
            self._game_process.send(pack(command))

    # ------------------------------------------------------------------------------------------ reports

    def run_in_terminal(self) -> int:
        """Play until the user quits. Returns the exit status."""
        self._game_process = start_game(self._order)
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        try:
            self.run()
        finally:
            self._leaving = True
            self._game_process.close()
            reader.join()
        if self.is_read:
            with contextlib.suppress(OSError):  # the terminal may be gone
                return self._print_outcome()
        return self.return_code or 0

    def _print_outcome(self) -> int:
        """Print results, where the video is, and why the game failed; return the exit status. Raises `UserError`."""
        if self._failure is not None and self._failure.usage:
            raise UserError(self._failure.reason)
        if summary := self._results.summary():
            print(printable(f"{self._title}: {summary}"))
        if self._filmed is not None:
            print(film_text(self._filmed), file=sys.stderr)
        if self._failure is not None:
            print(f"mario-tui: the game failed: {self._failure.reason}", file=sys.stderr)
            return 1
        if self._filmed is None and self._order.record is not None:
            print(f"mario-tui: the video could not be finished within {RECORDING_TIMEOUT_S:.0f} s", file=sys.stderr)
            return 1
        return self.return_code or 0

    def _read(self) -> None:
        for report in self._game_process.messages():
            match report:
                case Frame():
                    self._frame = report
                case Playing():
                    self._state = report
                    self._results = replace(self._results, outcome=report.outcome)
                case Episode():
                    self._results = self._results.added(report)
                case Log():
                    self._warnings.append(report.text)
                case Filmed():
                    self._filmed = report
                case Failed():
                    self._failure = report
        if not self._leaving and self._failure is None:
            self._failure = Failed(reason=self._game_process.crash_reason())

    def _tick(self) -> None:
        if self._failure is not None:
            self.exit()
            return
        now = time.monotonic()
        held = sum(button for button, until in self._until.items() if until > now)
        if held != self._sent:
            self._sent = held
            self._send(Press(buttons=held))
        frame, state = self._frame, self._state
        while self._warnings:
            self.notify(printable(self._warnings.pop(0)), severity="warning", markup=False)
            self._adopted = None
        if frame is None or state is None:
            return
        before, self._adopted = self._adopted, state
        if before is None or (before.episode, before.stage) != (state.episode, state.stage):
            self._episode, self._stage = state.episode, state.stage
        self._game.names = state.actions
        self._game.show(frame)
        self._set_line("state", _state_text(state, self._next_step))
        self._set_line("memory", Text(printable(facts(frame.facts))))
        if self._results.episodes != self._results_shown.episodes:
            self._results_shown = self._results
            self._set_line("episodes", Text(self._results_shown.line()))

    def _set_line(self, name: str, text: Text) -> None:
        line = self.query_one(f"#{name}", Static)
        if line.content != text:
            line.update(text)


def _free_keys(keymap: Mapping[str, str], buttons: Mapping[str, int]) -> dict[str, str]:
    """The key map of a person, whose `buttons` can't be keys of anything else."""
    free = {}
    for key in (*keys_in("play"), *keys_in("everywhere")):  # all, because Textual moves those of a key map to the end
        names = keymap.get(key.id, key.keys).split(",")
        free[key.id] = ",".join(name for name in names if name.lower() not in buttons)
    return free


def _state_text(state: Playing, next_step: int) -> Text:
    """The line below the game: video, pause and speed, then what is played."""
    line = Text(no_wrap=True, overflow="ellipsis")
    if state.filmed is not None:
        line.append(f"● REC {duration(state.filmed / _PICTURES_PER_S)}", style="bold red").append("  ")
    if state.paused:
        line.append("‖ paused", style="bold yellow").append("  ")
        if next_step:
            buttons = [name for name, bit in _BUTTON_NAMES.items() if bit & next_step]
            line.append(f"next step: {'+'.join(buttons)}  ")
    else:
        line.append("▶", style="bold green").append(" ")
    line.append(f"1/{1 / state.speed:.0f}x" if state.speed < 1 else f"{state.speed:.0f}x", style="bold")
    line.append(f"  stage {state.stage}" if state.stage else "")
    return line.append(f"  episode {state.episode:,}  seed {state.seed}  step {state.steps:,}")
