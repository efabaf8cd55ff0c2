"""The keys that control a run: what a run that is alive can be told, and what one that has ended can be used for.

Runs that have ended: resumes one, or several in the background, and evaluates a policy of one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.events import Key
from textual.widgets import Static

from engine.config.command_line import command_line
from engine.config.reading import NOT_TRAINED, rounded_up, tasks_of, what_it_obeys
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.protocol.commands import Checkpoint, Command, Evaluate, Pause, Render, Resume, Save, Set, Stop, Tunable
from engine.protocol.messages import Changed, Episode, Failed, Progress, State
from engine.protocol.outcome import Conditions, Outcome
from engine.protocol.results import Evaluated
from engine.runs.checkpoints import OnProgress, policy_metadata
from engine.runs.lookup import find_policy, origin_of
from engine.runs.run import Run
from engine.runtime.text import printable
from engine.runtime.threads import available_cores
from mario_tui.data.feed import Feed
from mario_tui.data.format import counted, number_or_whole, outcome_of, reached
from mario_tui.data.keys import keys_in
from mario_tui.data.run_status import RunStatus
from mario_tui.evaluate import WantedEvaluation, as_text, result_of
from mario_tui.screens.base import Modal, PlaceScreen
from mario_tui.screens.compare import compare_with_others
from mario_tui.screens.dialogs import ConfirmScreen, TextScreen, TuneScreen
from mario_tui.screens.new_run import NewRunScreen, start_run
from mario_tui.screens.panel_grid import PanelGrid


def resume(screen: PlaceScreen[Any], run: Run, started: Callable[[HostProcess | None], None]) -> None:
    """Resume a run and call `started` with its host. If it has done all its steps or episodes, ask for a higher limit
    first; `started` gets None if the user cancels the form. Errors are shown."""
    try:
        if more := _higher_limits(run):
            screen.app.push_screen(NewRunScreen(resume=run, options=more), started)
        else:
            screen.run_job(f"Resuming {run.name}", partial(start_run, {}, run, None, None), started)
    except UserError as error:
        screen.show_error(error)


def resume_several(screen: PlaceScreen[Any], runs: Sequence[Run], started: Callable[[list[HostProcess]], None]) -> None:
    """Ask, then resume runs in the background, and call `started` with the hosts. Runs that train or have done all
    their steps or episodes are left out. Errors are shown; one run's keeps no other from being resumed."""

    def sorted_out(found: tuple[list[Run], list[str]]) -> None:
        ready, left_out = found
        if not ready:
            screen.notify("\n".join(["None of these can be resumed", *left_out]), severity="warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                screen.run_job(f"Resuming {counted(len(ready), 'run')}", partial(_start_all, ready), done)

        cores = counted(available_cores(), "core")
        together = f"All at once, in the background: they share {cores}, besides what trains already."
        lines = [", ".join(run.name for run in ready), together if len(ready) > 1 else "", *left_out]
        question = f"Resume {counted(len(ready), 'run')}?"
        screen.app.push_screen(ConfirmScreen(question, "\n".join(filter(None, lines))), answered)

    def done(outcomes: list[HostProcess | UserError]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, UserError):
                screen.show_error(outcome)
        started([outcome for outcome in outcomes if isinstance(outcome, HostProcess)])

    screen.run_job("Reading the runs", partial(_sorted_out, runs), sorted_out)


def _sorted_out(runs: Sequence[Run], progress: OnProgress) -> tuple[list[Run], list[str]]:
    """The runs that can be resumed, and why others can't."""
    ready, running, finished, failures = list[Run](), list[str](), list[str](), list[str]()
    for number, run in enumerate(runs):
        progress(number / len(runs))
        try:
            if run.is_alive():
                running.append(run.name)
            elif _higher_limits(run):
                finished.append(run.name)
            else:
                ready.append(run)
        except UserError as error:
            failures.append(str(error))
    left_out = [f"Running already: {', '.join(running)}"] if running else []
    left_out += [f"Finished (resume one alone, to raise its limit): {', '.join(finished)}"] if finished else []
    return ready, left_out + failures


def _start_all(runs: Sequence[Run], progress: OnProgress) -> list[HostProcess | UserError]:
    """A host for each run, or why there is none."""
    outcomes = list[HostProcess | UserError]()
    for number, run in enumerate(runs):
        progress(number / len(runs))
        try:
            outcomes.append(start_run({}, run, None, None, lambda done: None))
        except UserError as error:
            outcomes.append(error)
    return outcomes


def _higher_limits(run: Run) -> dict[str, str]:
    """Options with which a run that has done all its steps or episodes goes on, else none. Raises `UserError`."""
    record, episodes = run.record(), run.config().episodes
    more = {}
    if record.env_steps >= record.steps:
        more["steps"] = str(2 * record.steps)
    if episodes is not None and record.episodes >= episodes:
        more["episodes"] = str(2 * episodes)
    return more


_EPISODES = 20
_TICK_S = 0.25


class EvaluationScreen(Modal[None]):
    """Plays greedy episodes in a process of its own, which ends with the dialog."""

    BINDINGS = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(self, policy: Path) -> None:
        super().__init__()
        self._policy = policy
        self._episodes, self._outcome, self._origin = _EPISODES, Outcome(), policy.name
        with contextlib.suppress(UserError):  # it has just been replaced; the result will tell
            metadata = policy_metadata(policy)
            self._episodes, self._outcome = rounded_up(_EPISODES, tasks_of(metadata)), outcome_of(metadata["game"])
            self._origin = origin_of(policy).name
        self._played: list[Episode] = []
        self._warnings: list[str] = []
        self._result: Evaluated | Failed | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as dialog:
            dialog.border_title = Text(printable(f"Evaluation of {self._origin}"))
            yield Static(id="result")
            yield Static(Text("esc: close", style="dim"))

    def on_mount(self) -> None:
        self._command = WantedEvaluation(self._policy, self._episodes, {"conditions": Conditions()}).command()
        threading.Thread(target=self._read, daemon=True, name="evaluation").start()
        self.set_interval(_TICK_S, self._show)
        self._show()

    def on_unmount(self) -> None:
        self._command.close()

    def _read(self) -> None:
        self._result = result_of(self._command, self._played, self._warnings)

    def _show(self) -> None:
        self.query_one("#result", Static).update(self._describe())

    def _describe(self) -> Text:
        match self._result:
            case Failed(reason=reason):
                return Text(printable(f"The evaluation failed: {reason}"), style="bold red")
            case Evaluated():
                return Text(
                    "\n".join((as_text(self._result, self._played), *map(printable, dict.fromkeys(self._warnings))))
                )
        text = Text(f"{len(self._played)} of {counted(self._episodes, 'episode')} played")
        if self._played:
            last = self._played[-1]
            parts = [f"return {number_or_whole(last.episode_return)}", reached(self._outcome, last.results)]
            text.append(f"; last: {', '.join(filter(None, parts))}", style="dim")
        return text


_ONLY_LIVE = ("toggle_pause", "save", "checkpoint", "tune", "stop")
_ONLY_OVER = ("resume_run",)
_WHILE_TRAINING = ("toggle_pause", "save", "checkpoint", "evaluate", "tune")
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
        self._judging = False
        """Whether training is done, and the final evaluation plays."""
        self._stopping = False
        self._requested: State | None = None
        """The state requested by a key, until the run has reached it."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A run that has ended can't be paused, but resumed. What can't be done any more once training is done, or by a
        loop outside the program, is greyed out."""
        fits = action not in (_ONLY_LIVE if self.is_over else _ONLY_OVER) and super().check_action(action, parameters)
        too_late = self._judging and action in _WHILE_TRAINING
        return None if fits and (too_late or self._is_beyond_the_loop(action)) else fits

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
                why = "has trained; its final evaluation plays" if self._judging else why
                self.notify(f"{key.label}: {self.run.name} {why}", severity="warning")

    def saved_in(self) -> Path:
        return self.run.path / "pictures"

    def update_keys(self) -> None:
        """Offer the keys that fit the state of the run, and forget what was requested once it has come about."""
        snapshot = self.feed.snapshot()
        state = None if snapshot.progress is None else _wanted_state(snapshot.progress)
        if state == self._requested or state not in _PAUSABLE:
            self._requested = None
        obeys = None if snapshot.hello is None else snapshot.hello.obeys
        fitting = snapshot.status.is_over, obeys, snapshot.status is RunStatus.JUDGING
        if fitting != (self.is_over, self._obeys, self._judging):
            self.is_over, self._obeys, self._judging = fitting
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
            self.show_error(error)

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
        after = "" if starting or is_loop or self._judging else " after a final checkpoint"

        def answered(yes: bool | None) -> None:
            if yes:
                done = "ending at once" if at_once else f"stopping{after}"
                self._stopping = self.send(Stop(reason="stopped from the dashboard", at_once=at_once), done)

        if not self.is_live():
            self.notify(self._why_not(), severity="warning")
            return
        question, is_final = f"Stop {self.run.name}?", False
        if is_loop:
            means = "Its training loop is asked to end, and does so when it looks. Nothing is saved here."
        elif self._judging:
            means = "It has trained, and is saved. It ends without the result of its final evaluation."
        elif at_once:
            question, is_final = f"End {self.run.name} at once?", True
            means = "It is already stopping. No final checkpoint is written; progress since the newest one is lost."
        elif starting:
            means = "It is not training yet, so it ends without writing a checkpoint."
        else:
            means = "It writes a checkpoint and ends. You can resume it later."
        self.app.push_screen(ConfirmScreen(question, means, irreversible=is_final), answered)

    @property
    def state(self) -> State | None:
        """The run's state as reported by its host, or as requested; None without a host."""
        snapshot = self.feed.snapshot()  # not `shown`: keys arrive faster than ticks
        if not snapshot.live or snapshot.progress is None:
            return None
        state = _wanted_state(snapshot.progress)
        return self._requested or state if state in _PAUSABLE else state

    @property
    def told_state(self) -> str | None:
        """The same as people are told it: a run that was asked to pause is not paused yet."""
        progress = self.feed.snapshot().progress
        is_paused = progress is not None and progress.state == "paused"
        return RunStatus.PAUSING if self.state == "paused" and not is_paused else self.state

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
        """Return whether this or another client has requested a stop."""
        progress = self.feed.snapshot().progress
        return self._stopping or (progress is not None and progress.state == "stopping")


def _wanted_state(progress: Progress) -> State:
    """The state of a run; of one that is about to pause or to continue, the one that was asked for."""
    return progress.wants or progress.state if progress.state in _PAUSABLE else progress.state
