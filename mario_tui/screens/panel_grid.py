"""A screen of numbered panels: each can be selected, maximised or hidden, and all charts share one x-range.

The layout is saved for the next start.
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
from mario_tui.widgets.charts.curves import AXES, SMOOTHINGS, ZOOM, ChartView, Curves, Window
from mario_tui.widgets.panels.actors import ActorsPanel

_PAN = 0.25  # of the visible range

DIGITS: list[BindingType] = [Binding(str(n), f"panel({n})", show=False) for n in range(1, 10)]
DIGITS += [Binding(letter, f"panel({n})", show=False) for n, letter in LETTERS.items()]


class PanelGrid(PlaceScreen[None]):
    """`panels` are in the order of their numbers; `curves` is the charts' data."""

    panels: Sequence[LineWidget]
    charts: Sequence[Chart]
    actors: ActorsPanel
    curves: Curves

    def __init__(self) -> None:
        super().__init__()
        self.remembered: Remembered = recall()
        self.view = ChartView(axis=self.remembered.axis, smoothing=self.remembered.smoothing)
        self.curves = Curves()

    def restore(self) -> None:
        """Apply the saved layout, once the panels exist."""
        for chart in self.charts:
            chart.logarithmic = chart.id in self.remembered.logarithmic
        self.actors.sort, self.actors.reverse = self.remembered.sort, self.remembered.turned
        self._lay_out()

    # ------------------------------------------------------------------------------------------ panels

    @property
    def maximised(self) -> LineWidget | None:
        """The maximised panel; None if there is none, or if it has nothing to show at the moment."""
        return next((panel for panel in self.present() if panel.id == self.remembered.maximised), None)

    def present(self) -> list[LineWidget]:
        """The panels with content: a run with one process, for example, has no processes panel."""
        return [panel for panel in self.panels if not panel.has_class("-off")]

    def active_panel(self) -> LineWidget | None:
        """The panel that keys act on: the maximised one, else the focused one."""
        return self.maximised or next((panel for panel in self.panels if panel is self.focused), None)

    def action_panel(self, number: int) -> None:
        for panel in self.panels:
            if panel.number == number:
                self.go_to(panel)

    def go_to(self, panel: LineWidget) -> None:
        """Focus a panel. A hidden one is shown again; one without room in the layout is maximised."""
        if not self.make_present(panel):
            return
        if panel.id in self.remembered.hidden:
            self.remembered.hidden.remove(str(panel.id))
        if self.maximised is not None:
            self.remembered.maximised = str(panel.id)
        self._lay_out()
        if not all(widget.display for widget in panel.ancestors_with_self if isinstance(widget, Widget)):
            self.remembered.maximised = str(panel.id)
            self._lay_out()
        self.save_layout()
        self.set_focus(panel)

    def make_present(self, panel: LineWidget) -> bool:
        """Called before a panel gets the focus; returns False if it can't be shown."""
        if panel not in self.present():
            self.notify(f"{panel.title}: nothing to show", timeout=3)
            return False
        return True

    def action_next_panel(self) -> None:
        if self.maximised is None:
            self.focus_next()
            return
        panels = self.present()
        self.go_to(panels[(panels.index(self.maximised) + 1) % len(panels)])

    def action_maximise(self) -> None:
        """Maximise the active panel, or restore all panels."""
        if self.maximised is not None:
            self.remembered.maximised = ""
        elif (panel := self.active_panel()) is not None:
            self.remembered.maximised = str(panel.id)
        else:
            self.notify(f"Select a panel first: 1 to 9, or {self.mario.key('dashboard.next_panel')}", timeout=3)
        self._lay_out()
        self.save_layout()

    def action_hide(self) -> None:
        panel = self.active_panel()
        if panel is None:
            self.notify(f"Select a panel first: 1 to 9, or {self.mario.key('dashboard.next_panel')}", timeout=3)
            return
        self.remembered.hidden = sorted({*self.remembered.hidden, str(panel.id)})
        self.remembered.maximised = ""
        self._lay_out()
        self.save_layout()
        self.set_focus(None)
        self.notify(f"{panel.title} hidden; press {panel.key} to show it again", timeout=4)

    def action_show_all(self) -> None:
        self.remembered.hidden, self.remembered.maximised = [], ""
        self._lay_out()
        self.save_layout()

    def save_layout(self) -> None:
        """Save the layout; not in read-only mode, where a visitor would change the owner's layout."""
        self.remembered.axis, self.remembered.smoothing = self.view.axis, self.view.smoothing
        self.remembered.logarithmic = [str(chart.id) for chart in self.charts if chart.logarithmic]
        self.remembered.sort, self.remembered.turned = self.actors.sort, self.actors.reverse
        if not self.mario.read_only:
            remember(self.remembered)

    def _lay_out(self) -> None:
        """Set the style sheet's classes: hidden and maximised panels, and containers without a visible panel."""
        maximised = self.maximised
        self.set_class(maximised is not None, "-one")
        for panel in self.panels:
            panel.set_class(panel.id in self.remembered.hidden, "-hidden")
            panel.set_class(panel is maximised, "-alone")
        self.app.stylesheet.update(self)  # at once: the next key may arrive before the next refresh
        boxes = list(self.query(Container))
        for box in boxes:
            box.set_class(not any(panel.display for panel in self.panels if box in panel.ancestors), "-empty")
        self.app.stylesheet.update_nodes(boxes)

    def on_resize(self) -> None:
        """Lay out again: at another size, other panels fit."""
        self.call_after_refresh(self._lay_out)

    # ------------------------------------------------------------------------------------------ charts

    def action_zoom_in(self) -> None:
        self._zoom(1 / ZOOM)

    def action_zoom_out(self) -> None:
        self._zoom(ZOOM)

    def action_whole(self) -> None:
        self.view.window = Window()
        self.draw_charts()

    def action_pan_left(self) -> None:
        self.view.window.pan(-_PAN, *self.curves.reach(self.view.axis))
        self.draw_charts()

    def action_pan_right(self) -> None:
        self.view.window.pan(_PAN, *self.curves.reach(self.view.axis))
        self.draw_charts()

    def action_cursor_left(self) -> None:
        self._move_cursor(-1)

    def action_cursor_right(self) -> None:
        self._move_cursor(1)

    def action_smoothing(self) -> None:
        at = SMOOTHINGS.index(self.view.smoothing)
        self.view.smoothing = SMOOTHINGS[(at + 1) % len(SMOOTHINGS)]
        self.draw_charts()
        self.save_layout()

    def action_log_axis(self) -> None:
        """Switch the active chart; all charts if the active panel is not a chart."""
        panel = self.active_panel()
        charts = [panel] if isinstance(panel, Chart) else self.charts
        to = not all(chart.logarithmic for chart in charts)
        for chart in charts:
            chart.logarithmic = to
        self.draw_charts()
        self.save_layout()

    def action_x_axis(self) -> None:
        self.view.axis = AXES[(AXES.index(self.view.axis) + 1) % len(AXES)]
        self.view.window, self.view.cursor = Window(), None
        self.draw_charts()
        self.save_layout()

    def on_chart_moved(self) -> None:
        self.draw_charts()

    def draw_charts(self) -> None:
        for chart in self.charts:
            chart.repaint()

    def _zoom(self, factor: float) -> None:
        self.view.window.zoom(factor, self.view.cursor, *self.curves.reach(self.view.axis))
        self.draw_charts()

    def _move_cursor(self, cells: int) -> None:
        """Move the crosshair by cells of the active chart; at the edge the window scrolls."""
        view = self.view
        first, last = self.curves.reach(view.axis)
        low, high = view.window.bounds(first, last)
        panel = self.active_panel()
        chart = panel if isinstance(panel, Chart) else next((c for c in self.charts if c.columns > 0), None)
        if chart is None or chart.columns <= 0 or high <= low:
            return
        cell = (high - low) / chart.columns
        view.cursor = high - cell / 2 if view.cursor is None else min(max(view.cursor + cells * cell, first), last)
        if not low <= view.cursor <= high:
            view.window.pan((view.cursor - (low if cells < 0 else high)) / (high - low), first, last)
        self.draw_charts()

    # ------------------------------------------------------------------------------------------ the table

    def action_sort(self) -> None:
        self.actors.next_sort()
        self.save_layout()

    def action_turn_sort(self) -> None:
        self.actors.turn_sort()
        self.save_layout()

    def on_actors_panel_sorted(self) -> None:
        self.save_layout()
