"""A screen of numbered panels: one can be chosen, have the screen for itself, or be hidden, and charts look together.

How it is left is remembered for the next start.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from mario_tui.screens.base import PlaceScreen
from mario_tui.screens.remembered import Remembered, recall, remember
from mario_tui.widgets.base.line_widget import LETTERS, LineWidget
from mario_tui.widgets.charts.chart import Chart
from mario_tui.widgets.charts.curves import AXES, SMOOTHINGS, ZOOM, Curves, Outlook, Window
from mario_tui.widgets.panels.actors import ActorsPanel

_PAN = 0.25  # of what is shown

DIGITS: list[BindingType] = [Binding(str(n), f"panel({n})", show=False) for n in range(1, 10)]
DIGITS += [Binding(letter, f"panel({n})", show=False) for n, letter in LETTERS.items()]


class PanelGrid(PlaceScreen[None]):
    """`panels` in the order of their numbers; `curves` is what the charts show."""

    panels: Sequence[LineWidget]
    charts: Sequence[Chart]
    actors: ActorsPanel
    curves: Curves

    def __init__(self) -> None:
        super().__init__()
        self.remembered: Remembered = recall()
        self.outlook = Outlook(axis=self.remembered.axis, smoothing=self.remembered.smoothing)
        self.curves = Curves()

    def restore(self) -> None:
        """Once the panels are there: as it was left."""
        for chart in self.charts:
            chart.logarithmic = chart.id in self.remembered.logarithmic
        self.actors.sort, self.actors.reverse = self.remembered.sort, self.remembered.turned
        self._lay_out()

    # ------------------------------------------------------------------------------------------ panels

    @property
    def alone(self) -> LineWidget | None:
        """The panel that has the screen for itself; one that has nothing to show waits for its turn."""
        return next((panel for panel in self.present() if panel.id == self.remembered.maximised), None)

    def present(self) -> list[LineWidget]:
        """The panels that have something to show: a run with one process has no table of processes."""
        return [panel for panel in self.panels if not panel.has_class("-off")]

    def panel_in_hand(self) -> LineWidget | None:
        """What a key about panels means: the maximised one, else the focused one."""
        return self.alone or next((panel for panel in self.panels if panel is self.focused), None)

    def action_panel(self, number: int) -> None:
        for panel in self.panels:
            if panel.number == number:
                self.go_to(panel)

    def go_to(self, panel: LineWidget) -> None:
        """Focus a panel. A hidden one is shown; one for which this screen is too small gets all of it."""
        if not self.bring(panel):
            return
        if panel.id in self.remembered.hidden:
            self.remembered.hidden.remove(str(panel.id))
        if self.alone is not None:
            self.remembered.maximised = str(panel.id)
        self._lay_out()
        if not all(widget.display for widget in panel.ancestors_with_self if isinstance(widget, Widget)):
            self.remembered.maximised = str(panel.id)
            self._lay_out()
        self.keep()
        self.set_focus(panel)

    def bring(self, panel: LineWidget) -> bool:
        """Called before a panel is gone to; False if it can't be shown now."""
        if panel not in self.present():
            self.notify(f"{panel.title}: nothing to show", timeout=3)
            return False
        return True

    def action_next_panel(self) -> None:
        if self.alone is None:
            self.focus_next()
            return
        panels = self.present()
        self.go_to(panels[(panels.index(self.alone) + 1) % len(panels)])

    def action_maximise(self) -> None:
        """The panel in hand gets the screen; if one has it, all come back."""
        if self.alone is not None:
            self.remembered.maximised = ""
        elif (panel := self.panel_in_hand()) is not None:
            self.remembered.maximised = str(panel.id)
        else:
            self.notify(f"Choose a panel first: 1 to 9, or {self.mario.key('dashboard.next_panel')}", timeout=3)
        self._lay_out()
        self.keep()

    def action_hide(self) -> None:
        panel = self.panel_in_hand()
        if panel is None:
            self.notify(f"Choose a panel first: 1 to 9, or {self.mario.key('dashboard.next_panel')}", timeout=3)
            return
        self.remembered.hidden = sorted({*self.remembered.hidden, str(panel.id)})
        self.remembered.maximised = ""
        self._lay_out()
        self.keep()
        self.set_focus(None)
        self.notify(f"{panel.title} is hidden; {panel.key} shows it again", timeout=4)

    def action_show_all(self) -> None:
        self.remembered.hidden, self.remembered.maximised = [], ""
        self._lay_out()
        self.keep()

    def keep(self) -> None:
        """Remember how the screen looks; not what a visitor made of it, who would change it for its owner."""
        self.remembered.axis, self.remembered.smoothing = self.outlook.axis, self.outlook.smoothing
        self.remembered.logarithmic = [str(chart.id) for chart in self.charts if chart.logarithmic]
        self.remembered.sort, self.remembered.turned = self.actors.sort, self.actors.reverse
        if not self.mario.read_only:
            remember(self.remembered)

    def _lay_out(self) -> None:
        """Classes for the style sheet: what is hidden, what is alone, which columns have nothing left."""
        alone = self.alone
        self.set_class(alone is not None, "-one")
        for panel in self.panels:
            panel.set_class(panel.id in self.remembered.hidden, "-hidden")
            panel.set_class(panel is alone, "-alone")
        self.app.stylesheet.update(self)  # now: the next key may come before the next refresh
        boxes = list(self.query(Container))
        for box in boxes:
            box.set_class(not any(panel.display for panel in self.panels if box in panel.ancestors), "-empty")
        self.app.stylesheet.update_nodes(boxes)

    def on_resize(self) -> None:
        """On another size other panels have room."""
        self.call_after_refresh(self._lay_out)

    # ------------------------------------------------------------------------------------------ charts

    def action_zoom_in(self) -> None:
        self._zoom(1 / ZOOM)

    def action_zoom_out(self) -> None:
        self._zoom(ZOOM)

    def action_whole(self) -> None:
        self.outlook.window = Window()
        self.draw_charts()

    def action_pan_left(self) -> None:
        self.outlook.window.pan(-_PAN, *self.curves.reach(self.outlook.axis))
        self.draw_charts()

    def action_pan_right(self) -> None:
        self.outlook.window.pan(_PAN, *self.curves.reach(self.outlook.axis))
        self.draw_charts()

    def action_cursor_left(self) -> None:
        self._move_cursor(-1)

    def action_cursor_right(self) -> None:
        self._move_cursor(1)

    def action_smoothing(self) -> None:
        at = SMOOTHINGS.index(self.outlook.smoothing)
        self.outlook.smoothing = SMOOTHINGS[(at + 1) % len(SMOOTHINGS)]
        self.draw_charts()
        self.keep()

    def action_log_axis(self) -> None:
        """Of the chart in hand; of all if that is none."""
        panel = self.panel_in_hand()
        charts = [panel] if isinstance(panel, Chart) else self.charts
        to = not all(chart.logarithmic for chart in charts)
        for chart in charts:
            chart.logarithmic = to
        self.draw_charts()
        self.keep()

    def action_x_axis(self) -> None:
        self.outlook.axis = AXES[(AXES.index(self.outlook.axis) + 1) % len(AXES)]
        self.outlook.window, self.outlook.cursor = Window(), None
        self.draw_charts()
        self.keep()

    def on_chart_moved(self) -> None:
        self.draw_charts()

    def draw_charts(self) -> None:
        for chart in self.charts:
            chart.repaint()

    def _zoom(self, factor: float) -> None:
        self.outlook.window.zoom(factor, self.outlook.cursor, *self.curves.reach(self.outlook.axis))
        self.draw_charts()

    def _move_cursor(self, cells: int) -> None:
        """By cells of the chart in hand; at the edge the window moves along."""
        look = self.outlook
        first, last = self.curves.reach(look.axis)
        low, high = look.window.bounds(first, last)
        panel = self.panel_in_hand()
        chart = panel if isinstance(panel, Chart) else next((c for c in self.charts if c.columns > 0), None)
        if chart is None or chart.columns <= 0 or high <= low:
            return
        cell = (high - low) / chart.columns
        look.cursor = high - cell / 2 if look.cursor is None else min(max(look.cursor + cells * cell, first), last)
        if not low <= look.cursor <= high:
            look.window.pan((look.cursor - (low if cells < 0 else high)) / (high - low), first, last)
        self.draw_charts()

    # ------------------------------------------------------------------------------------------ the table

    def action_sort(self) -> None:
        self.actors.next_sort()
        self.keep()

    def action_turn_sort(self) -> None:
        self.actors.turn_sort()
        self.keep()

    def on_actors_panel_sorted(self) -> None:
        self.keep()
