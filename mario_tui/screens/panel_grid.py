"""Base classes of screens with charts, which have the same keys and one x-range, and of screens with numbered panels:
each can be selected, maximised or hidden.

Layout and axes are saved for the next start in `$XDG_STATE_HOME/mario-tui/<place>.json`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import msgspec
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from engine.runtime.files import program_folder, write_if_possible
from engine.runtime.formats import read_json
from mario_tui.data.chart_files import Line, Picture, save_chart
from mario_tui.data.keys import Place
from mario_tui.screens.base import PlaceScreen
from mario_tui.terminal.internals import AbstractMeta
from mario_tui.widgets.base.footer import FilterInput
from mario_tui.widgets.base.panel import LineWidget
from mario_tui.widgets.charts.axes import AXES, AXIS_NAMES, SMOOTHINGS, ZOOM, Axis, ChartView
from mario_tui.widgets.charts.plot import Plot
from mario_tui.widgets.panels.actors import COLUMNS

_PAN = 0.25  # of the visible range
_CURVES_PER_TURN = 60
"""Drawing so many takes some hundredths of a second."""
_PAUSE_S = 0.01
"""In which keys are handled."""


class ChartScreen(PlaceScreen[None], metaclass=AbstractMeta):
    """Subclasses provide the charts and the range of their data."""

    STEPS: ClassVar[str] = "env_steps"
    """What the steps of the data are called in saved charts."""

    def __init__(self) -> None:
        super().__init__()
        self.view = ChartView()
        self._undrawn: dict[Plot, None] = {}
        """Charts that wait for their turn."""
        self._saving = asyncio.Lock()

    @abstractmethod
    def plots(self) -> Sequence[Plot]:
        """The charts, in their order on the screen."""

    @abstractmethod
    def reach(self) -> tuple[float, float]:
        """First and last x of all data, on the axis of the view."""

    def active_plot(self) -> Plot | None:
        """The chart that keys act on: the focused one."""
        return self.focused if isinstance(self.focused, Plot) else None

    @property
    def is_maximised(self) -> bool:
        """Return whether a panel or chart has the screen for itself."""
        return False

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Return those of Textual; the key that maximises a panel is named after what it does now."""
        found = super().active_bindings
        for key, bound in found.items():
            if self.is_maximised and bound.binding.action == "maximise":
                found[key] = bound._replace(binding=replace(bound.binding, description="Restore"))
        return found

    def view_chosen(self) -> None:
        """The user has chosen another axis, smoothing or scale."""

    def saved_in(self) -> Path:
        """The folder in which charts are saved."""
        return Path.cwd()

    def draw_charts(self) -> None:
        """Draw all charts for the current view."""
        self.view.reach = self.reach()
        self.draw_in_turns(self.plots())

    def on_mount(self) -> None:
        self.screen_layout_refresh_signal.subscribe(self, self.draw_due)

    def draw_due(self, _: object) -> None:
        """Draw the charts that have come into sight: by scrolling, by another size, or in the place of others."""
        for plot in self.plots():
            plot.draw_if_due()

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
        self.view.show_all()
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
        self.view.cursor = None
        self.view.show_all()
        self.draw_charts()
        self.view_chosen()

    def action_save_chart(self) -> None:
        """Save the active chart as a table and a picture; the first chart if none is active."""
        plot = self.active_plot() or next(iter(self.plots()), None)
        if plot is not None:
            axis = self.view.axis
            x_label = self.STEPS.replace("env_", "environment ") if axis == "steps" else f"{AXIS_NAMES[axis]} (s)"
            curves = plot.picture_curves()
            picture = Picture(plot.full_title, x_label, self.view.bounds, plot.logarithmic, curves)
            # Of the program, because a screen that is left ends its own workers.
            self.app.run_worker(self._save_chart(plot.lines(), picture), name="save chart")

    async def _save_chart(self, lines: Sequence[Line], picture: Picture) -> None:
        try:
            async with self._saving:  # two would choose the same name
                path, problem = await asyncio.to_thread(
                    save_chart, picture.title, lines, picture, self.saved_in(), steps=self.STEPS
                )
        except OSError as error:
            self.app.notify(f"The chart could not be saved: {error}", severity="error")
            return
        what = f".csv; {problem}" if problem else ".csv, .svg and .pdf"
        self.app.notify(f"Saved {path}{what}", timeout=6)

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


SORTS = [column.name for column in COLUMNS]
_MAX_BYTES = 2**16


class Remembered(msgspec.Struct):
    """The saved layout. Unknown keys are ignored, so that an older version can read a newer file."""

    hidden: list[str] = []
    logarithmic: list[str] = []
    smoothing: float = 0.0
    axis: Axis = "steps"
    sort: str = "lane"  # of the actors
    turned: bool = False
    introduced: bool = False
    """Whether the panels have been explained."""


def layout_file(place: Place) -> Path:
    return program_folder("STATE") / f"{place}.json"


def recall(place: Place) -> Remembered:
    """Load the saved layout; the default if the file is missing or invalid."""
    try:
        found = read_json(layout_file(place), Remembered, _MAX_BYTES, links=True)
    except (OSError, ValueError):
        return Remembered()
    if found.smoothing not in SMOOTHINGS or found.sort not in SORTS:
        return Remembered()
    return found


def remember(place: Place, state: Remembered) -> None:
    """Save the layout, if the user's home can be written."""
    write_if_possible(layout_file(place), msgspec.json.encode(state))


def panel_keys(keys: str) -> list[BindingType]:
    """Return the bindings of keys that select panels."""
    return [Binding(key, f"panel({key!r})", show=False) for key in keys]


class PanelGrid(ChartScreen):
    """`panels` are in the order of their keys."""

    panels: Sequence[LineWidget]
    filter: FilterInput

    def __init__(self) -> None:
        super().__init__()
        self.remembered: Remembered = recall(self.PLACE)
        self.view.axis, self.view.smoothing = self.remembered.axis, self.remembered.smoothing
        self._alone = ""
        """The maximised panel. It is not saved: the next run opens with all panels."""

    def plots(self) -> list[Plot]:
        return [panel for panel in self.panels if isinstance(panel, Plot)]

    def active_plot(self) -> Plot | None:
        panel = self.active_panel()
        return panel if isinstance(panel, Plot) else None

    def restore(self) -> None:
        """Apply the saved layout, once the panels exist."""
        self._restore_scales(self.plots())
        self.lay_out()

    def add_plots(self, new: Sequence[Plot], area: Container) -> None:
        """Show more charts in an area of the screen."""
        self.panels = (*self.panels, *new)
        self._restore_scales(new)
        area.mount_all(new)

    def _restore_scales(self, plots: Sequence[Plot]) -> None:
        for plot in plots:
            plot.logarithmic = plot.id in self.remembered.logarithmic

    # ------------------------------------------------------------------------------------------ panels

    @property
    def is_maximised(self) -> bool:
        return bool(self._alone) and self.maximised is not None

    @property
    def maximised(self) -> LineWidget | None:
        """The maximised panel; None if there is none, or if it has nothing to show at the moment."""
        return next((panel for panel in self.present() if panel.id == self._alone), None)

    def present(self) -> list[LineWidget]:
        """The panels with content: a run with one process, for example, has no processes panel."""
        return [panel for panel in self.panels if not panel.has_class("-off")]

    def active_panel(self) -> LineWidget | None:
        """The panel that keys act on: the maximised one, else the focused one."""
        return self.maximised or next((panel for panel in self.panels if panel is self.focused), None)

    def action_panel(self, key: str) -> None:
        for panel in self.panels:
            if panel.key == key:
                self.go_to(panel)

    def go_to(self, panel: LineWidget) -> None:
        """Focus a panel. A hidden one is shown again; one without room in the layout is maximised."""
        if not self.make_present(panel):
            return
        if panel.id in self.remembered.hidden:
            self.remembered.hidden.remove(str(panel.id))
        if self.maximised is not None:
            self._alone = str(panel.id)
        self.lay_out()
        if not all(widget.display for widget in panel.ancestors_with_self if isinstance(widget, Widget)):
            self._alone = str(panel.id)
            self.lay_out()
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
            self._alone = ""
        elif (panel := self.active_panel()) is not None:
            self._alone = str(panel.id)
        else:
            self._ask_for_panel()
        self.lay_out()
        self.save_layout()

    def _ask_for_panel(self) -> None:
        self.notify(f"Select a panel first: 1 to 9, or {self.mario.key(f'{self.PLACE}.next_panel')}", timeout=3)

    def action_hide(self) -> None:
        panel = self.active_panel()
        if panel is None:
            self._ask_for_panel()
            return
        self.remembered.hidden = sorted({*self.remembered.hidden, str(panel.id)})
        self._alone = ""
        self.lay_out()
        self.save_layout()
        self.set_focus(None)
        key = panel.key or self.mario.key(f"{self.PLACE}.show_all")
        self.notify(f"{panel.title} hidden; press {key} to show it again", timeout=4)

    def action_show_all(self) -> None:
        self.remembered.hidden, self._alone = [], ""
        self.lay_out()
        self.save_layout()

    def action_back(self) -> None:
        """Hide the crosshair, else clear the filter, else restore all panels, else go back."""
        if self.hide_cursor() or self.filter.close():
            return
        if self.maximised is not None:
            self.action_maximise()
        else:
            self.dismiss(None)

    def save_layout(self) -> None:
        """Save the layout; not in read-only mode, where a visitor would change the owner's layout."""
        self.remembered.axis, self.remembered.smoothing = self.view.axis, self.view.smoothing
        self.remembered.logarithmic = [str(plot.id) for plot in self.plots() if plot.logarithmic]
        if not self.mario.read_only:
            remember(self.PLACE, self.remembered)

    def view_chosen(self) -> None:
        self.save_layout()

    def lay_out(self) -> None:
        """Set the style sheet's classes: hidden and maximised panels, and containers without a visible panel."""
        maximised = self.maximised
        if self.has_class("-one") != (maximised is not None):
            self.toggle_class("-one")
            self.refresh_bindings()
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
        self.call_after_refresh(self.lay_out)
