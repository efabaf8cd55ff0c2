"""The dashboard of one run: panels fed from one snapshot a tick, and the keys that command the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import work
from textual.app import ComposeResult
from textual.containers import Container, VerticalScroll
from textual.widgets import Footer

from engine.client import HostClient, HostProcess, read_recording
from engine.errors import UserError
from engine.messages import Checkpoint, Command, Failed, Finished, Pause, Render, Resume, Save, State, Stop
from engine.runs import Run
from mario_tui.feed import Feed, Snapshot
from mario_tui.keys import bindings
from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.dialogs import ConfirmScreen
from mario_tui.widgets.actors import ActorsPanel
from mario_tui.widgets.chart import Chart
from mario_tui.widgets.game import GameView
from mario_tui.widgets.header import RunHeader
from mario_tui.widgets.log import LogPanel
from mario_tui.widgets.machine import MachinePanel
from mario_tui.widgets.panel import Panel
from mario_tui.widgets.replay import ReplayPanel

if TYPE_CHECKING:
    from mario_tui.app import MarioApp

TICK_S = 0.25


class DashboardScreen(PlaceScreen[None]):
    """Follows `run`: through `host` if this process has just started it, else by attaching, else from its recording."""

    PLACE = "dashboard"
    BINDINGS = bindings("dashboard")
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (108, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]

    def __init__(self, run: Run, host: HostProcess | None = None) -> None:
        super().__init__()
        self.run = run
        self._host = host
        self.feed = Feed()
        self.shown = Snapshot()
        """What the panels show."""
        self._panels: list[Panel] = []
        self._charts: list[tuple[str, Chart]] = []
        self._told_end = False

    def compose(self) -> ComposeResult:
        self._header = RunHeader()
        self._header.fallback = (self.run.name, self._record_state())
        self._actors, self._replay, self._machine, self._log = ActorsPanel(), ReplayPanel(), MachinePanel(), LogPanel()
        self._panels = [self._header, self._actors, self._replay, self._machine, self._log]
        self._charts = [
            ("mean_return", Chart("Mean return", "green", id="chart-return")),
            ("loss", Chart("TD loss", "red", id="chart-loss")),
            ("q_mean", Chart("Q estimate", "cyan", id="chart-q")),
        ]
        self._game = GameView()
        yield self._header
        with Container(id="body"):
            with Container(id="left"):
                with VerticalScroll(id="actors-scroll"):
                    yield self._actors
                yield self._replay
                yield self._machine
            with Container(id="right"):
                yield self._game
                with Container(id="charts"):
                    for _, chart in self._charts:
                        yield chart
                yield self._log
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self._game.display = False
        self._connect()
        self.set_interval(TICK_S, self.tick)
        self.set_interval(1 / 15, self._show_frame)

    def on_unmount(self) -> None:
        self.feed.close()

    @work(thread=True)
    def _connect(self) -> None:
        """In a thread: a host that starts takes a second or two to answer, and the screen is up before."""
        try:
            if self._host is not None:
                client = self._host.connect()
            elif self.run.is_alive():
                client = HostClient(self.run)
            else:
                self.feed.replay(read_recording(self.run.history_path))
                return
        except UserError as error:
            self.app.call_from_thread(self._failed_to_connect, str(error))
            return
        self.feed.follow(client)
        if client.hello.render:
            self.app.call_from_thread(self.action_toggle_game)

    def _failed_to_connect(self, reason: str) -> None:
        self._header.fallback = (self.run.name, self._record_state())
        self._header.show(self.shown)
        self.notify(reason, severity="error", timeout=30)

    def tick(self) -> None:
        """Show the newest snapshot; nothing else touches the panels."""
        snapshot = self.feed.snapshot()
        if snapshot is self.shown:
            return
        points_changed = snapshot.points != self.shown.points
        self.shown = snapshot
        for panel in self._panels:
            panel.show(snapshot)
        if points_changed:
            xs = [float(point.env_steps) for point in snapshot.points]
            for name, chart in self._charts:
                chart.show(xs, [getattr(point, name) for point in snapshot.points])
        self._tell_end(snapshot)

    def _show_frame(self) -> None:
        if self._game.display:
            self._game.show(self.feed.frame())

    def _tell_end(self, snapshot: Snapshot) -> None:
        """Once: how the run ended, or that its host is gone."""
        if self._told_end or snapshot.hello is None:
            return
        if isinstance(snapshot.end, Failed):
            self.notify(
                f"The run failed: {snapshot.end.reason}\nLog: {snapshot.end.log_path}", severity="error", timeout=60
            )
        elif isinstance(snapshot.end, Finished):
            self.notify(f"The run is finished: {snapshot.end.summary.reason}")
        elif not snapshot.connected:
            self._header.fallback = (self.run.name, self._record_state())
            self._header.show(snapshot)
            self.notify(
                f"The run has no host any more; resume it from home.\nLog: {self.run.log_path}", severity="warning"
            )
        else:
            return
        self._told_end = True

    # ------------------------------------------------------------------------------------------ actions

    def action_toggle_pause(self) -> None:
        progress = self.feed.snapshot().progress  # the newest, not the one on the screen: keys come faster than ticks
        paused = progress is not None and progress.state == "paused"
        self._send(Resume() if paused else Pause(), "going on" if paused else "pausing")

    def action_save(self) -> None:
        self._send(Save(), "saving the policy")

    def action_checkpoint(self) -> None:
        self._send(Checkpoint(), "writing a checkpoint")

    def action_toggle_game(self) -> None:
        show = not self._game.display
        if self._send(Render(on=show, fps=self._mario.settings.game_fps), "game on" if show else "game off"):
            self._game.display = show
            self.set_class(show, "-game")

    def action_stop(self) -> None:
        def answered(yes: bool | None) -> None:
            if yes:
                self._send(Stop(reason="stopped from the dashboard"), "stopping after a last checkpoint")

        if self._is_live():
            self.app.push_screen(
                ConfirmScreen(f"Stop {self.run.name}?", "It writes a checkpoint and ends; it can be resumed."), answered
            )
        else:
            self._send(Stop(), "")

    def action_home(self) -> None:
        self._mario.go_home()

    def action_detach(self) -> None:
        self.app.exit()

    def _send(self, command: Command, done: str) -> bool:
        if self._mario.read_only and not isinstance(command, Render):
            return False
        if not self._is_live() or not self.feed.send(command):
            self.notify("The run is not running; resume it from home.", severity="warning")
            return False
        self.notify(done.capitalize(), timeout=2)
        return True

    def _is_live(self) -> bool:
        snapshot = self.feed.snapshot()
        return snapshot.connected and snapshot.end is None

    @property
    def _mario(self) -> MarioApp:
        from mario_tui.app import MarioApp

        assert isinstance(self.app, MarioApp)
        return self.app

    def _record_state(self) -> State:
        try:
            return self.run.record().state
        except UserError:
            return "lost"
