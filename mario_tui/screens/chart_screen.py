"""Base class of screens with charts: all of them have the same keys and one x-range."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from mario_tui.data.chart_files import save_chart
from mario_tui.screens.base import PlaceScreen
from mario_tui.widgets.charts.plot import Plot
from mario_tui.widgets.charts.view import AXES, SMOOTHINGS, ZOOM, ChartView, Window

_PAN = 0.25  # of the visible range
_CURVES_PER_TURN = 60
"""Drawing so many takes some hundredths of a second."""
_PAUSE_S = 0.01
"""In which keys are handled."""


class ChartScreen(PlaceScreen[None]):
    """Subclasses provide the charts and the range of their data."""

    STEPS: ClassVar[str] = "env_steps"
    """What the steps of the data are called in saved charts."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ChartView()
        self._undrawn: dict[Plot, None] = {}
        """Charts that wait for their turn."""

    def plots(self) -> Sequence[Plot]:
        """The charts, in their order on the screen."""
        raise NotImplementedError

    def reach(self) -> tuple[float, float]:
        """First and last x of all data, on the axis of the view."""
        raise NotImplementedError

    def active_plot(self) -> Plot | None:
        """The chart that keys act on: the focused one."""
        return self.focused if isinstance(self.focused, Plot) else None

    def view_chosen(self) -> None:
        """The user has chosen another axis, smoothing or scale."""

    def saved_in(self) -> Path:
        """The folder in which charts are saved."""
        return Path.cwd()

    def draw_charts(self) -> None:
        """Draw all charts for the current view."""
        self.view.reach = self.reach()
        self.draw_in_turns(self.plots())

    def draw_in_turns(self, plots: Sequence[Plot]) -> None:
        """Draw charts. If they have many curves, keys are handled in between."""
        under_way = bool(self._undrawn)
        self._undrawn |= dict.fromkeys(plots)
        if not under_way:
            self._draw_next()

    def _draw_next(self) -> None:
        drawn = 0
        while self._undrawn and drawn < _CURVES_PER_TURN:
            plot = next(iter(self._undrawn))
            del self._undrawn[plot]
            plot.draw()
            drawn += plot.curve_count
        if self._undrawn:
            self.set_timer(_PAUSE_S, self._draw_next)

    # ------------------------------------------------------------------------------------------ keys and mouse

    def action_zoom_in(self) -> None:
        self._zoom(1 / ZOOM)

    def action_zoom_out(self) -> None:
        self._zoom(ZOOM)

    def action_whole(self) -> None:
        self.view.window = Window()
        self.draw_charts()

    def action_pan_left(self) -> None:
        self.view.pan(-_PAN)
        self.draw_charts()

    def action_pan_right(self) -> None:
        self.view.pan(_PAN)
        self.draw_charts()

    def action_cursor_left(self) -> None:
        self._move_cursor(-1)

    def action_cursor_right(self) -> None:
        self._move_cursor(1)

    def action_smoothing(self) -> None:
        at = SMOOTHINGS.index(self.view.smoothing)
        self.view.smoothing = SMOOTHINGS[(at + 1) % len(SMOOTHINGS)]
        self.draw_charts()
        self.view_chosen()

    def action_log_axis(self) -> None:
        """Switch the active chart; all charts if the active panel is not a chart."""
        active = self.active_plot()
        plots = self.plots() if active is None else [active]
        to = not all(plot.logarithmic for plot in plots)
        for plot in plots:
            plot.logarithmic = to
        self.draw_charts()
        self.view_chosen()

    def action_x_axis(self) -> None:
        self.view.axis = AXES[(AXES.index(self.view.axis) + 1) % len(AXES)]
        self.view.window, self.view.cursor = Window(), None
        self.draw_charts()
        self.view_chosen()

    def action_save_chart(self) -> None:
        """Save the active chart's points, and the screen; the first chart if none is active."""
        plot = self.active_plot() or next(iter(self.plots()), None)
        if plot is None:
            return
        try:
            picture = self.app.export_screenshot()
            path = save_chart(plot.full_title, plot.lines(), picture, self.saved_in(), steps=self.STEPS)
        except OSError as error:
            self.notify(f"The chart could not be saved: {error}", severity="error")
            return
        self.notify(f"Saved {path}.csv and .svg", timeout=6)

    def on_plot_moved(self) -> None:
        self.draw_charts()

    def hide_cursor(self) -> bool:
        """Hide the crosshair; returns whether there was one."""
        if self.view.cursor is None:
            return False
        self.view.cursor = None
        self.draw_charts()
        return True

    def _zoom(self, factor: float) -> None:
        self.view.zoom(factor, self.view.cursor)
        self.draw_charts()

    def _move_cursor(self, cells: int) -> None:
        """Move the crosshair by cells of the active chart."""
        plot = self.active_plot() or next((plot for plot in self.plots() if plot.columns > 0), None)
        if plot is not None:
            self.view.move_cursor(cells, plot.columns)
            self.draw_charts()
