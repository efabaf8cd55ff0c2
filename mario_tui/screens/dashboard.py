"""The dashboard of a run: panels that show one snapshot per tick, and keys that control the run."""

from __future__ import annotations

import time
from itertools import cycle
from typing import Any

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key, Paste
from textual.widgets import Input

from engine.host.client import HostProcess
from engine.protocol.commands import Render
from engine.protocol.messages import Alert, Evaluation, Failed, Hello, Lane, Log
from engine.protocol.metrics import CHARTS, Metric, own_metric
from engine.runs.run import Run
from mario_tui.data.feed import LOOK_S, read_record
from mario_tui.data.format import judged, out_of
from mario_tui.data.keys import PANEL_KEYS, bindings
from mario_tui.data.run_status import RunStatus, Snapshot
from mario_tui.screens.dialogs import ActorScreen, LogScreen
from mario_tui.screens.panel_grid import panel_keys
from mario_tui.screens.run_control import RunControl
from mario_tui.terminal.picture import Pace, busy, slow
from mario_tui.widgets.base.footer import FilterInput, KeyFooter
from mario_tui.widgets.base.panel import LineWidget, Panel
from mario_tui.widgets.charts.chart import Chart, Curves
from mario_tui.widgets.panels.actors import ActorsPanel
from mario_tui.widgets.panels.evaluations import CurriculumPanel, EvaluationsPanel
from mario_tui.widgets.panels.game import GameView, save_picture
from mario_tui.widgets.panels.machine import MachinePanel, ProcessesPanel, TimeSplitPanel
from mario_tui.widgets.panels.replay import ReplayPanel
from mario_tui.widgets.panels.run import Introduction, LogPanel, RunHeader

TICK_S = 0.25
_COLOURS = ("-first", "-second", "-third", "-fourth")
"""Classes of the charts, each with a colour of its line."""
_FEW = len(CHARTS)
"""Charts that share the height of the screen; more than these are scrolled."""
_LEAST_ROWS, _TWO_COLUMNS = 6, 90
"""Height of a chart then, and the width from which on two stand side by side."""
_NOT_AT_FIRST = ("toggle_pause", "back", "home", "detach", "stop", "open_selected")
"""What a key does not do that is meant to close the introduction."""


class DashboardScreen(RunControl):
    """Shows `run`: through `host` if this process has just started it, else by attaching, else from its recording."""

    PLACE = "dashboard"
    BINDINGS = [*panel_keys(PANEL_KEYS), *bindings("dashboard")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-normal"), (108, "-wide"), (170, "-huge")]
    VERTICAL_BREAKPOINTS = [(0, "-tiny"), (18, "-short"), (34, "-tall")]

    def __init__(self, run: Run, host: HostProcess | None = None) -> None:
        super().__init__(run, host)
        self.shown = Snapshot()
        """The snapshot that the panels show."""
        self.curves = Curves()
        self._texts: list[Panel | ActorsPanel] = []
        self._end_announced = False
        self._looked_at = 0.0
        """When the record was read last; 0 while a host is connected."""
        self._told = ""
        """The newest problem that the user was told of."""
        self._best: Evaluation | None = None
        self._closes_introduction = False
        """Whether the newest key closes it."""

    def compose(self) -> ComposeResult:
        self.header = RunHeader(self.run.name, self.mario.read_only)
        self.feed.update(read_record(self.run))
        self.actors = ActorsPanel()
        evaluate = "" if self.mario.read_only else self.mario.key("dashboard.evaluate")
        replay, machine, evaluations = ReplayPanel(), MachinePanel(), EvaluationsPanel(evaluate)
        log = self._log = LogPanel()
        processes, time_split, curriculum = ProcessesPanel(), TimeSplitPanel(), CurriculumPanel()
        self._colours = cycle(_COLOURS)
        self.charts = [self._chart(metric) for metric in CHARTS]
        # By name, since a screen that is being left has no children any more.
        self._chart_area = Container(*self.charts, id="charts")
        self._game = GameView(freeze_key=self.mario.key("dashboard.hold_game"))
        self._texts = [self.header, self.actors, processes, replay, machine, evaluations, log, time_split, curriculum]
        self.panels = (
            self.actors, replay, machine, *self.charts, evaluations, log, self._game, time_split, processes, curriculum
        )  # fmt: skip
        yield self.header
        left = Container(self.actors, processes, curriculum, evaluations, time_split, replay, machine, id="left")
        plots = Container(self._game, self._chart_area, id="plots")
        yield Container(left, Container(plots, log, id="rest"), id="body")
        self.filter = FilterInput("words of log lines; enter: keep, esc: clear", back=log)
        yield self.filter
        yield KeyFooter()
        if self.feed.was_live and not self.remembered.introduced and not self.mario.read_only:
            yield Introduction(self.mario.key("everywhere.help"), self._game_key)

    def _chart(self, metric: Metric) -> Chart:
        chart = Chart(metric, self.view)
        chart.add_class(next(self._colours))
        return chart

    def takes(self, key: Key | Paste) -> bool:
        """Also close the introduction; the key that closes it controls nothing."""
        self._closes_introduction = bool(self.query(Introduction))
        if self._closes_introduction:
            self.query(Introduction).remove()
            self.remembered.introduced = True
            self.save_layout()
        return super().takes(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return super().check_action(action, parameters) and not (self._closes_introduction and action in _NOT_AT_FIRST)

    def on_mount(self) -> None:
        self._game.add_class("-off")
        self.actors.sort, self.actors.reverse = self.remembered.sort, self.remembered.turned
        self.restore()
        self.feed.connect()
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

    def tick(self) -> None:
        """Show the newest snapshot; nothing else updates the panels. Skipped while a slow link is still busy."""
        if busy(self.app):
            return
        self._look()
        self._show_snapshot()
        self.update_keys()

    def _look(self) -> None:
        """Read the record while no host is connected: it tells the state, and whether to connect again."""
        snapshot, now = self.feed.snapshot(), time.monotonic()
        if snapshot.connected:
            self._looked_at = 0.0
        elif snapshot.hello is None or now - self._looked_at >= LOOK_S:
            self._looked_at = now
            if self.feed.update(read_record(self.run)):
                self._end_announced = False
                self.forget_requests()

    def _show_snapshot(self) -> None:
        snapshot = self.feed.snapshot()
        if snapshot is self.shown:
            return
        before, self.shown = self.shown, snapshot
        if snapshot.problem and snapshot.problem != self._told:
            self.notify(snapshot.problem, severity="error", timeout=30)
            self._told = snapshot.problem
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
            not_finite = None if snapshot.progress is None else snapshot.progress.not_finite
            self.curves = Curves(snapshot.points, snapshot.others, not_finite)
            self.view.reach = self.reach()
            self._show_curves(snapshot)
            self._announce_best(before)
        if snapshot.others is not before.others and before.hello is not None:
            self._tell_errors(before)
        self._announce_end(snapshot)

    def _show_curves(self, snapshot: Snapshot) -> None:
        """Draw the charts. Of a loop outside the program, they are those that have numbers."""
        present, known = self.present(), {chart.metric.name for chart in self.charts}
        if new := [self._chart(own_metric(name)) for name in self.curves.own if name not in known]:
            self.charts += new
            self.add_plots(new, self._chart_area)
        is_reported = snapshot.hello is not None and snapshot.hello.obeys is not None
        for chart in self.charts:
            chart.show_curves(self.curves)
            chart.set_class(is_reported and chart.is_empty, "-off")
        if self.present() != present:
            self.lay_out()

    def _on_hello(self, hello: Hello) -> None:
        """A host has connected: request frames if the run was started with --render, or if the game is shown."""
        if hello.render or not self._game.has_class("-off"):
            self._set_game(True)

    def _show_frame(self) -> None:
        """Draw the newest frame; it is dropped if an earlier one is still being written, so frames never queue."""
        frame = self.feed.frame()
        if not self._game.display or not self._game.is_new(frame):
            return
        if self._pace.offered(slow(self.app), time.monotonic()):
            fewer = self._pace.fps < self._pace.most
            self._game.remark = f"{self._pace.fps:.0f}/s: slow link" if fewer else ""
            self.feed.send(Render(on=True, fps=self._pace.fps))
        if not busy(self.app):
            self._game.show(frame)

    def _announce_best(self, before: Snapshot) -> None:
        """Let the user know of an evaluation that was better than all before; one that is as good replaces the policy,
        and is no news."""
        best, self._best = self._best, self.curves.best
        is_better = self._best is not None and (best is None or _reached(self._best) > _reached(best))
        if self._best is not None and is_better and before.hello is not None and self.is_live():
            self.mario.alert(f"{self.run.name}: best evaluation so far: {judged(before.outcome, self._best)}")

    def _tell_errors(self, before: Snapshot) -> None:
        """Notify of what is wrong since, such as a checkpoint that could not be written; of alerts also outside."""
        known = {event for event in before.others if isinstance(event, Log | Alert)}
        for event in self.shown.others:
            if (isinstance(event, Alert) or (isinstance(event, Log) and event.level == "error")) and event not in known:
                self.notify(f"{self.run.name}: {event.text}", severity="error", timeout=30)
                if isinstance(event, Alert) and self.is_live():
                    self.mario.alert(f"{self.run.name}: {event.text}")

    def _announce_end(self, snapshot: Snapshot) -> None:
        """Notify once how the run ended, or that its host is gone."""
        if self._end_announced or snapshot.hello is None or not snapshot.status.is_over:
            return
        self._end_announced = True
        if isinstance(snapshot.end, Failed):
            self._tell_end(
                f"{self.run.name} failed: {snapshot.end.reason}{self._log_line()}",
                "failed",
                severity="error",
                timeout=60,
            )
        elif snapshot.end is not None:
            stopped = f"stopped at {out_of(snapshot.end.summary.env_steps, snapshot.hello.steps)} steps"
            how = "finished" if snapshot.status is RunStatus.FINISHED else stopped
            self._tell_end(f"{self.run.name} {how}: {snapshot.end.summary.reason}", how)
        else:
            how = f"; {self.mario.key('dashboard.resume_run')} resumes it" if snapshot.hello.obeys is None else ""
            self.notify(f"The host of {self.run.name} is gone{how}.{self._log_line()}", severity="warning")

    def _log_line(self) -> str:
        """Return where the log is, in a line of its own; empty if the folder is gone."""
        return f"\nLog: {self.run.log_path}" if self.run.log_path.exists() else ""

    def _tell_end(self, notice: str, how: str, **more: Any) -> None:
        """Only of a run that has ended here: of a recording, the header says how it ended."""
        if self.feed.was_live:
            self.notify(notice, **more)
            self.mario.alert(f"{self.run.name} {how}")

    # ------------------------------------------------------------------------------------------ actions

    def action_toggle_game(self) -> None:
        if not self.is_over or not self._game.has_class("-off"):
            self._set_game(self._game.has_class("-off"))
        else:
            self.with_policy(self.watch_play)

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
        if (show or self.is_live()) and not self.send(Render(on=show, fps=self._pace.fps), ""):
            return False
        self._game.set_class(not show, "-off")
        self.set_class(show, "-game")
        if show and self._game.id in self.remembered.hidden:
            self.remembered.hidden.remove(self._game.id)
        if not show and self._alone == self._game.id:
            self._alone = ""
        self.lay_out()
        if show:  # on a narrow screen it is below the others
            self.call_after_refresh(self._game.scroll_visible, animate=False)
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

        self.app.push_screen(ActorScreen(newest, lambda: self.feed.episodes_of(*place), self.shown.outcome))

    def action_show_log(self) -> None:
        try:
            self.app.push_screen(LogScreen(self.run))
        except OSError as error:
            self.notify(f"{self.run.log_path}: {error.strerror}", severity="error")

    def action_filter(self) -> None:
        """Filter the log."""
        if not self._log.is_on_screen or not self._log.body[1]:
            self.go_to(self._log)
        self.filter.open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._log.filter(event.value)

    def lay_out(self) -> None:
        """Also name the panels for which there is no room, and divide the room of the charts."""
        super().lay_out()
        area = self._chart_area
        count = sum(chart.display for chart in self.charts)
        area.set_class(count > _FEW and self.maximised is None, "-many")
        columns = 1 + (area.size.width >= _TWO_COLUMNS)
        area.styles.grid_size_columns = columns
        area.styles.grid_rows = str(max(_LEAST_ROWS, area.size.height // max(1, -(-count // columns))))
        unseen = [panel for panel in self.present() if not panel.display and panel.id not in self.remembered.hidden]
        self.header.unseen = [] if self.maximised else [f"{panel.key} {panel.short_title}".strip() for panel in unseen]
        if self.header.is_mounted:
            self.header.repaint()

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

    def action_next_run(self) -> None:
        self._go_beside(1)

    def action_previous_run(self) -> None:
        self._go_beside(-1)

    def _go_beside(self, by: int) -> None:
        """Show the next or the previous run in place of this one."""
        other = self.mario.run_beside(self.run, by)
        if other is None:
            self.notify(f"{self.run.name} is the {'last' if by > 0 else 'first'} run of the list", timeout=3)
            return
        self.dismiss(None)
        self.mario.open_dashboard(other)

    def action_detach(self) -> None:
        self.app.exit()

    @property
    def _game_key(self) -> str:
        return self.mario.key("dashboard.toggle_game")


def _reached(evaluation: Evaluation) -> tuple[float, float]:
    """Return what decides which of two evaluations is better."""
    return evaluation.clears / evaluation.episodes, evaluation.mean_return
