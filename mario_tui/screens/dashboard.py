"""The dashboard of a run: panels that show one snapshot per tick, and keys that control the run."""

from __future__ import annotations

import contextlib
import time

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Footer

from engine.errors import UserError
from engine.host.client import HostProcess
from engine.protocol.messages import (
    Changed,
    Checkpoint,
    Command,
    Evaluate,
    Failed,
    Finished,
    Hello,
    Lane,
    Pause,
    Render,
    Resume,
    Save,
    Set,
    State,
    Stop,
    Tunable,
)
from engine.runs.run import ACTIVE, Run
from mario_tui.data.feed import Feed, Snapshot
from mario_tui.data.keys import bindings
from mario_tui.data.standing import Standing, is_complete, standing
from mario_tui.screens.actor import ActorScreen
from mario_tui.screens.dialogs import ConfirmScreen
from mario_tui.screens.panel_grid import DIGITS, PanelGrid
from mario_tui.screens.tune import TuneScreen
from mario_tui.terminal.backpressure import Pace, busy, survive_hang_up
from mario_tui.widgets.base.line_widget import LineWidget
from mario_tui.widgets.base.panel import Panel
from mario_tui.widgets.charts.chart import Chart
from mario_tui.widgets.charts.curves import Curves
from mario_tui.widgets.panels.actors import ActorsPanel
from mario_tui.widgets.panels.curriculum import CurriculumPanel
from mario_tui.widgets.panels.evaluations import EvaluationsPanel
from mario_tui.widgets.panels.game import GameView, save_picture
from mario_tui.widgets.panels.header import RunHeader
from mario_tui.widgets.panels.log import LogPanel
from mario_tui.widgets.panels.machine import MachinePanel
from mario_tui.widgets.panels.processes import ProcessesPanel
from mario_tui.widgets.panels.replay import ReplayPanel
from mario_tui.widgets.panels.time_split import TimePanel

TICK_S = 0.25
_RECONNECT_EVERY_S = 2.0
NOT_RUNNING = "The run is not running; resume it from home."


class DashboardScreen(PanelGrid):
    """Shows `run`: through `host` if this process has just started it, else by attaching, else from its recording."""

    PLACE = "dashboard"
    BINDINGS = [*DIGITS, *bindings("dashboard")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (108, "-wide"), (170, "-huge")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (18, "-short"), (34, "-tall")]

    def __init__(self, run: Run, host: HostProcess | None = None) -> None:
        super().__init__()
        self.run = run
        self._host = host
        self.feed = Feed()
        self.shown = Snapshot()
        """The snapshot that the panels show."""
        self.curves = Curves()
        self._texts: list[Panel | ActorsPanel] = []
        self._end_announced = False
        self._was_gone = False
        self._checked_at = 0.0
        self._stopping = False
        self._requested: State | None = None
        """The state requested by a key, until the run has reached it."""

    def compose(self) -> ComposeResult:
        self._header = RunHeader(self.mario.read_only)
        self._set_fallback()
        self.actors = ActorsPanel()
        evaluate = "" if self.mario.read_only else self.mario.key("dashboard.evaluate")
        replay, machine, evaluations, log = ReplayPanel(), MachinePanel(), EvaluationsPanel(evaluate), LogPanel()
        processes, stages, curriculum = ProcessesPanel(), TimePanel(), CurriculumPanel()
        view = self.view
        self.charts = (
            Chart("Mean return", "mean_return", view, id="chart-return", number=4, short="Return", best="high",
                  evaluated=True),
            Chart("TD loss", "loss", view, id="chart-loss", number=5, short="Loss", best="low"),
            Chart("Q estimate", "q_mean", view, id="chart-q", number=6, short="Q", best="high"),
        )  # fmt: skip
        self._game = GameView()
        self._texts = [self._header, self.actors, processes, replay, machine, evaluations, log, stages, curriculum]
        self.panels = (
            self.actors, replay, machine, *self.charts, evaluations, log, self._game, stages, processes, curriculum
        )  # fmt: skip
        yield self._header
        with Container(id="body"):
            with Container(id="left"):
                yield self.actors
                yield processes
                yield curriculum
                yield evaluations
                yield stages
                yield replay
                yield machine
            with Container(id="rest"):
                with Container(id="plots"):
                    yield self._game
                    with Container(id="charts"):
                        yield from self.charts
                yield log
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._game.add_class("-off")
        self.actors.sort, self.actors.reverse = self.remembered.sort, self.remembered.turned
        self.restore()
        self.call_after_refresh(survive_hang_up, self.app)
        self.feed.connect(self.run, self._host)
        self.set_interval(TICK_S, self.tick)
        self._pace = Pace(self.mario.settings.game_fps)
        self.set_interval(1 / (2 * self._pace.most), self._show_frame)

    def on_unmount(self) -> None:
        self.feed.close()

    def reach(self) -> tuple[float, float]:
        return self.curves.reach(self.view.axis)

    def save_layout(self) -> None:
        self.remembered.sort, self.remembered.turned = self.actors.sort, self.actors.reverse
        super().save_layout()

    def _set_fallback(self, problem: str = "") -> None:
        """Set the header's text for a run without a connected host; it never claims that the run is reachable.

        `problem`: why the host can't be reached.
        """
        state: Standing
        try:
            record = self.run.record()
            state, reason = standing(record), record.reason
        except UserError as error:
            state, reason = "lost", str(error)
        if state in ACTIVE and (problem or self._end_announced):
            state, reason = "unreachable", problem
        elif state not in ACTIVE and self._host is not None and self._host.process.poll() is None:
            state = "starting"
        elif state in ACTIVE and state != "starting":
            state = "connecting"
        self._header.fallback = (self.run.name, state, reason or problem)

    def tick(self) -> None:
        """Show the newest snapshot; nothing else updates the panels. Skipped while a slow link is still busy."""
        survive_hang_up(self.app)
        if busy(self.app):
            return
        self._reconnect()
        snapshot = self.feed.snapshot()
        if snapshot is self.shown:
            return
        before, self.shown = self.shown, snapshot
        if snapshot.problem and snapshot.problem != before.problem:
            self._set_fallback(snapshot.problem)
            self.notify(snapshot.problem, severity="error", timeout=30)
        present = self.present()
        if snapshot.hello is not None:
            self._game.names = snapshot.hello.actions
            if snapshot.connected and snapshot.hello is not before.hello:
                self._on_hello(snapshot.hello)
        for panel in self._texts:
            panel.show(snapshot)
        if self.present() != present:
            self.lay_out()
        if snapshot.points is not before.points or snapshot.others is not before.others:
            self.curves = Curves(snapshot.points, snapshot.others)
            self.view.reach = self.reach()
            for chart in self.charts:
                chart.show_curves(self.curves)
        self._announce_end(snapshot)

    def _on_hello(self, hello: Hello) -> None:
        """A host has connected: request frames if the run was started with --render, or if the game is shown."""
        if hello.render or not self._game.has_class("-off"):
            self._set_game(True)

    def _reconnect(self) -> None:
        """Follow the run again if it has ended here and was resumed elsewhere."""
        now = time.monotonic()
        if not self._end_announced or now - self._checked_at < _RECONNECT_EVERY_S:
            return
        self._checked_at = now
        if not self.run.is_alive():
            self._was_gone = True
            self._set_fallback()  # a host closes its connections shortly before it releases its lock
            self._header.show(self.shown)
        elif self._was_gone:  # otherwise it is the old host, still exiting
            self.feed.close()
            self.feed, self._host = Feed(), None
            self._end_announced = self._stopping = self._was_gone = False
            self._requested = None
            self._set_fallback()
            self.feed.connect(self.run)

    def _show_frame(self) -> None:
        """Draw the newest frame; it is dropped if an earlier one is still being written, so frames never queue."""
        frame = self.feed.frame()
        if not self._game.display or not self._game.is_new(frame):
            return
        behind = busy(self.app)
        if self._pace.offered(behind, time.monotonic()):
            slow = self._pace.fps < self._pace.most
            self._game.remark = f"{self._pace.fps:.0f}/s: slow link" if slow else ""
            self.feed.send(Render(on=True, fps=self._pace.fps))
        if not behind:
            self._game.show(frame)

    def _announce_end(self, snapshot: Snapshot) -> None:
        """Notify once how the run ended, or that its host is gone."""
        if self._end_announced or snapshot.hello is None:
            return
        if isinstance(snapshot.end, Failed):
            self.notify(
                f"The run failed: {snapshot.end.reason}\nLog: {snapshot.end.log_path}", severity="error", timeout=60
            )
        elif isinstance(snapshot.end, Finished):
            summary = snapshot.end.summary
            stopped = f"stopped at {summary.env_steps:,} of {snapshot.hello.steps:,} steps"
            self.notify(f"The run {'finished' if is_complete(summary.reason) else stopped}: {summary.reason}")
        elif not snapshot.connected:
            self._end_announced = True
            self._set_fallback()
            self._header.show(snapshot)
            self.notify(
                f"The run's host is gone; resume the run from home.\nLog: {self.run.log_path}", severity="warning"
            )
        else:
            return
        self._end_announced = True

    # ------------------------------------------------------------------------------------------ actions

    def action_toggle_pause(self) -> None:
        paused = self.state == "paused"
        if self._send(Resume() if paused else Pause(), "resuming" if paused else "pausing"):
            self._requested = "running" if paused else "paused"

    def action_save(self) -> None:
        self._send(Save(), "saving the policy")

    def action_checkpoint(self) -> None:
        self._send(Checkpoint(), "writing a checkpoint")

    def action_evaluate(self) -> None:
        self._send(Evaluate(), "evaluating")

    def action_tune(self) -> None:
        def answered(changes: list[Set] | None) -> None:
            for change in changes or ():
                self._send(change, f"setting {change.name.replace('_', ' ')} to {change.value:g}")

        self.app.push_screen(TuneScreen(self._current_settings()), answered)

    def action_toggle_game(self) -> None:
        self._set_game(self._game.has_class("-off"))

    def make_present(self, panel: LineWidget) -> bool:
        if panel is self._game and panel not in self.present():
            return self._set_game(True)
        return super().make_present(panel)

    def action_hide(self) -> None:
        """Hide the active panel; for the game, also stop its frames."""
        if self.active_panel() is self._game and self._set_game(False):
            self.set_focus(None)
        else:
            super().action_hide()

    def _set_game(self, show: bool) -> bool:
        """Show or hide the game, and start or stop its frames; False if the command to start them can't be sent."""
        if (show or self._is_live()) and not self._send(
            Render(on=show, fps=self._pace.fps), "game on" if show else "game off"
        ):
            return False
        self._game.set_class(not show, "-off")
        self.set_class(show, "-game")
        if show and self._game.id in self.remembered.hidden:
            self.remembered.hidden.remove(self._game.id)
        if not show and self.remembered.maximised == self._game.id:
            self.remembered.maximised = ""
        self.lay_out()
        return True

    def action_hold_game(self) -> None:
        self._game.freeze(not self._game.frozen)

    def action_eyes(self) -> None:
        if self._game.has_class("-off"):
            self.notify(f"The game is hidden; press {self._game_key} to show it", severity="warning", timeout=4)
            return
        self._game.set_agent_view(not self._game.agent_view)

    def action_save_picture(self) -> None:
        frame = self._game.frame
        if frame is None or self._game.has_class("-off"):
            self.notify(f"No picture to save; press {self._game_key} to show the game", severity="warning", timeout=4)
            return
        try:
            path = save_picture(frame, self.run.path / "pictures")
        except OSError as error:
            self.notify(f"The picture could not be saved: {error}", severity="error")
            return
        self.notify(f"Saved {path}", timeout=6)

    def action_open_selected(self) -> None:
        """Enter: open the selected actor, or maximise the active panel."""
        if self.active_panel() is not self.actors:
            self.action_maximise()
            return
        selected = self.actors.selected
        if selected is None:
            return
        place = selected.actor, selected.lane

        def newest() -> Lane | None:
            lanes = self.feed.snapshot().lanes
            return next((lane for lane in lanes.lanes if (lane.actor, lane.lane) == place), None) if lanes else None

        self.app.push_screen(ActorScreen(newest, lambda: self.feed.episodes_of(*place)))

    def action_sort(self) -> None:
        self.actors.next_sort()
        self.save_layout()

    def action_turn_sort(self) -> None:
        self.actors.turn_sort()
        self.save_layout()

    def on_actors_panel_sorted(self) -> None:
        self.save_layout()

    async def on_list_panel_opened(self) -> None:
        await self.run_action("open_selected")

    def action_stop(self) -> None:
        """Stop the run after a checkpoint; the second time, end it at once (the host treats a second Stop so)."""

        def answered(yes: bool | None) -> None:
            if yes:
                done = "ending at once" if self._is_stopping() else "stopping after a final checkpoint"
                self._stopping = self._send(Stop(reason="stopped from the dashboard"), done)

        if not self._is_live():
            self._send(Stop(), "")
        elif self._is_stopping():
            lost = "It is already stopping. No final checkpoint is written; progress since the newest one is lost."
            self.app.push_screen(ConfirmScreen(f"End {self.run.name} at once?", lost), answered)
        else:
            kept = "It writes a checkpoint and ends. You can resume it later."
            self.app.push_screen(ConfirmScreen(f"Stop {self.run.name}?", kept), answered)

    def action_back(self) -> None:
        """Hide the crosshair, else restore all panels, else go home."""
        if self.hide_cursor():
            return
        if self.maximised is not None:
            self.action_maximise()
        else:
            self.action_home()

    def action_home(self) -> None:
        self.mario.go_home()

    def action_detach(self) -> None:
        self.app.exit()

    @property
    def _game_key(self) -> str:
        return self.mario.key("dashboard.toggle_game")

    @property
    def state(self) -> State | None:
        """The run's state as reported by its host, or as just requested here; None without a host."""
        snapshot = self.feed.snapshot()  # not `shown`: keys arrive faster than ticks
        if not snapshot.live or snapshot.progress is None:
            return None
        state = snapshot.progress.state
        if state == self._requested or state not in ("running", "paused"):
            self._requested = None
        return self._requested or state

    def _current_settings(self) -> dict[Tunable, float]:
        """The training settings in effect, as far as they are known."""
        now: dict[Tunable, float] = {"epsilon_scale": 1.0}
        with contextlib.suppress(UserError):
            now["replay_ratio"] = self.run.config().replay_ratio
        for event in self.feed.snapshot().others:
            if isinstance(event, Changed):
                now[event.name] = event.value
        progress = self.feed.snapshot().progress
        if progress is not None:
            now["learning_rate"], now["beta"] = progress.learning_rate, progress.beta
        return now

    def _send(self, command: Command, done: str) -> bool:
        if self.mario.read_only and not isinstance(command, Render):
            return False
        if not self._is_live() or not self.feed.send(command):
            self.notify(self._why_not(), severity="warning")
            return False
        self.notify(done.capitalize(), timeout=2)
        return True

    def _is_live(self) -> bool:
        return self.feed.snapshot().live

    def _why_not(self) -> str:
        """Why a command can't be sent, consistent with the header."""
        _, state, reason = self._header.fallback
        if self.feed.snapshot().hello is None and state in ("starting", "connecting"):
            return "The run's host has not responded yet; try again in a moment."
        return f"The run can't be reached: {reason}" if state == "unreachable" else NOT_RUNNING

    def _is_stopping(self) -> bool:
        """Whether this or another client has requested a stop."""
        progress = self.feed.snapshot().progress
        return self._stopping or (progress is not None and progress.state == "stopping")
