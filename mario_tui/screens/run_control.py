"""The keys that control a run: what a run that is alive can be told, and what one that has ended can be used for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from textual.events import Key

from engine.config.command_line import command_line
from engine.config.reported_loop import NOT_TRAINED, what_it_obeys
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.protocol.commands import (
    Checkpoint,
    Command,
    Evaluate,
    Pause,
    Render,
    Resume,
    Save,
    Set,
    Stop,
    Tunable,
)
from engine.protocol.messages import Changed, State
from engine.runs.checkpoints import find_policy
from engine.runs.run import Run
from mario_tui.data.feed import Feed
from mario_tui.data.keys import keys_in
from mario_tui.data.run_status import RunStatus
from mario_tui.screens.compare import compare_with_others
from mario_tui.screens.dialogs import ConfirmScreen, TextScreen
from mario_tui.screens.evaluation import EvaluationScreen
from mario_tui.screens.panel_grid import PanelGrid
from mario_tui.screens.resuming import resume
from mario_tui.screens.tune import TuneScreen

_ONLY_LIVE = ("toggle_pause", "save", "checkpoint", "tune", "stop")
_ONLY_OVER = ("resume_run",)
_PAUSABLE = ("running", "paused")
_COMMANDS: dict[str, type[Command]] = {
    "toggle_pause": Pause,
    "save": Save,
    "checkpoint": Checkpoint,
    "evaluate": Evaluate,
    "tune": Set,
    "toggle_game": Render,
    "stop": Stop,
}
"""What actions send to a run that is alive."""


class RunControl(PanelGrid):
    """Sends commands through `feed`. What is available depends on the state of the run."""

    def __init__(self, run: Run, host: HostProcess | None) -> None:
        super().__init__()
        self.run = run
        self.feed = Feed(run, host)
        self.is_over = False
        """Whether the run has ended."""
        self._obeys: list[str] | None = None
        """See `Hello.obeys`."""
        self._stopping = False
        self._requested: State | None = None
        """The state requested by a key, until the run has reached it."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A run that has ended can't be paused, but resumed. What a loop outside the program can't do is greyed out."""
        fits = action not in (_ONLY_LIVE if self.is_over else _ONLY_OVER) and super().check_action(action, parameters)
        return None if fits and self._is_beyond_the_loop(action) else fits

    def _is_beyond_the_loop(self, action: str) -> bool:
        if self._obeys is None:
            return False
        command = _COMMANDS.get(action)
        return action in _ONLY_OVER or (command is not None and (self.is_over or command.__name__ not in self._obeys))

    def on_key(self, event: Key) -> None:
        """Say why a key that is greyed out does nothing."""
        keymap = self.mario.settings.keys
        for key in keys_in(self.PLACE):
            if event.key in keymap.get(key.id, key.keys).split(",") and self.check_action(key.action, ()) is None:
                why = NOT_TRAINED if self.is_over else what_it_obeys(self._obeys or [])
                self.notify(f"{key.label}: {self.run.name} {why}", severity="warning")

    def saved_in(self) -> Path:
        return self.run.path / "pictures"

    def update_keys(self) -> None:
        """Offer the keys that fit the state of the run, and forget what was requested once it has come about."""
        snapshot = self.feed.snapshot()
        state = None if snapshot.progress is None else snapshot.progress.state
        if state == self._requested or state not in _PAUSABLE:
            self._requested = None
        fitting = snapshot.status.is_over, None if snapshot.hello is None else snapshot.hello.obeys
        if fitting != (self.is_over, self._obeys):
            self.is_over, self._obeys = fitting
            self.refresh_bindings()

    def forget_requests(self) -> None:
        """Forget what was requested here, because the run has been resumed elsewhere."""
        self._stopping, self._requested = False, None

    def action_toggle_pause(self) -> None:
        paused = self.state == "paused"
        if self.send(Resume() if paused else Pause(), "resuming" if paused else "pausing"):
            self._requested = "running" if paused else "paused"

    def action_save(self) -> None:
        self.send(Save(), "saving the policy")

    def action_checkpoint(self) -> None:
        self.send(Checkpoint(), "writing a checkpoint")

    def action_evaluate(self) -> None:
        if not self.is_over:
            self.send(Evaluate(), "evaluating")
        else:
            self.with_policy(lambda policy: self.app.push_screen(EvaluationScreen(policy)))

    def action_resume_run(self) -> None:
        def started(host: HostProcess | None) -> None:
            if host is not None:
                self.dismiss(None)
                self.mario.open_dashboard(self.run, host)

        resume(self, self.run, started)

    def action_copy(self) -> None:
        """Show and copy the command that starts a run like this one."""
        try:
            self.app.push_screen(TextScreen(self.run.name, command_line(self.run.config())))
        except UserError as error:
            self.notify(str(error), severity="error", timeout=10)

    def action_compare(self) -> None:
        compare_with_others(self, self.run)

    def action_tune(self) -> None:
        def answered(changes: list[Set] | None) -> None:
            for change in changes or ():
                self.send(change, f"setting {change.name.replace('_', ' ')} to {change.value:g}")

        self.app.push_screen(TuneScreen(self._current_settings()), answered)

    def action_stop(self) -> None:
        """Stop the run after a checkpoint; if it is stopping already, end it at once."""

        is_loop, starting = self._obeys is not None, self.feed.snapshot().status is RunStatus.STARTING
        at_once = self._is_stopping() and not is_loop
        after = "" if starting or is_loop else " after a final checkpoint"

        def answered(yes: bool | None) -> None:
            if yes:
                done = "ending at once" if at_once else f"stopping{after}"
                self._stopping = self.send(Stop(reason="stopped from the dashboard", at_once=at_once), done)

        if not self.is_live():
            self.notify(self._why_not(), severity="warning")
        elif is_loop:
            ends = "Its training loop is asked to end, and does so when it looks. Nothing is saved here."
            self.app.push_screen(ConfirmScreen(f"Stop {self.run.name}?", ends), answered)
        elif at_once:
            lost = "It is already stopping. No final checkpoint is written; progress since the newest one is lost."
            self.app.push_screen(ConfirmScreen(f"End {self.run.name} at once?", lost, irreversible=True), answered)
        elif starting:
            none = "It is not training yet, so it ends without writing a checkpoint."
            self.app.push_screen(ConfirmScreen(f"Stop {self.run.name}?", none), answered)
        else:
            kept = "It writes a checkpoint and ends. You can resume it later."
            self.app.push_screen(ConfirmScreen(f"Stop {self.run.name}?", kept), answered)

    @property
    def state(self) -> State | None:
        """The run's state as reported by its host, or as just requested here; None without a host."""
        snapshot = self.feed.snapshot()  # not `shown`: keys arrive faster than ticks
        if not snapshot.live or snapshot.progress is None:
            return None
        state = snapshot.progress.state
        return self._requested or state if state in _PAUSABLE else state

    def with_policy(self, use: Callable[[Path], object]) -> None:
        """Find the best policy of the run and use it; if there is none, show a message. The search may verify a whole
        checkpoint."""
        self.run_job(
            f"Looking for the policy of {self.run.name}",
            lambda progress: find_policy(str(self.run.path), None, progress),
            use,
            lambda error: self.notify(str(error), severity="warning", timeout=6),
        )

    def watch_play(self, policy: Path) -> None:
        """Let the policy play, in the terminal of this program."""
        self.play(str(policy), shown=self.run.name)

    def _current_settings(self) -> dict[Tunable, float]:
        """The training settings in effect, as far as they are known."""
        now: dict[Tunable, float] = {"epsilon_scale": 1.0}
        with contextlib.suppress(UserError):
            config = self.run.config()
            now["replay_ratio"], now["gamma"] = config.replay_ratio, config.gamma
        for event in self.feed.snapshot().others:
            if isinstance(event, Changed):
                now[event.name] = event.value
        progress = self.feed.snapshot().progress
        if progress is not None:
            now["learning_rate"], now["beta"] = progress.learning_rate, progress.beta
        return now

    def send(self, command: Command, done: str) -> bool:
        if self.mario.read_only and not isinstance(command, Render):
            return False
        if not self.is_live() or not self.feed.send(command):
            self.notify(self._why_not(), severity="warning")
            return False
        if done:
            self.notify(done.capitalize(), timeout=2)
        return True

    def is_live(self) -> bool:
        return self.feed.snapshot().live

    def _why_not(self) -> str:
        """Why a command can't be sent, consistent with the header."""
        snapshot = self.feed.snapshot()
        if snapshot.hello is None and snapshot.status in (RunStatus.STARTING, RunStatus.CONNECTING):
            return "The run's host has not responded yet; try again in a moment."
        if snapshot.status is RunStatus.UNREACHABLE:
            return f"The run can't be reached: {snapshot.reason}"
        return f"The run is not running; press {self.mario.key('dashboard.resume_run')} to resume it."

    def _is_stopping(self) -> bool:
        """Whether this or another client has requested a stop."""
        progress = self.feed.snapshot().progress
        return self._stopping or (progress is not None and progress.state == "stopping")
