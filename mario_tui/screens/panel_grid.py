"""A screen of numbered panels: each can be selected, maximised or hidden. The layout is saved for the next start."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from mario_tui.screens.chart_screen import ChartScreen
from mario_tui.screens.remembered import Remembered, recall, remember
from mario_tui.widgets.base.filter_input import FilterInput
from mario_tui.widgets.base.line_widget import LETTERS, LineWidget
from mario_tui.widgets.charts.plot import Plot

DIGITS: list[BindingType] = [Binding(str(n), f"panel({n})", show=False) for n in range(1, 10)]
DIGITS += [Binding(letter, f"panel({n})", show=False) for n, letter in LETTERS.items()]


class PanelGrid(ChartScreen):
    """`panels` are in the order of their numbers."""

    panels: Sequence[LineWidget]
    filter: FilterInput

    def __init__(self) -> None:
        super().__init__()
        self.remembered: Remembered = recall(self.PLACE)
        self.view.axis, self.view.smoothing = self.remembered.axis, self.remembered.smoothing

    def plots(self) -> list[Plot]:
        return [panel for panel in self.panels if isinstance(panel, Plot)]

    def active_plot(self) -> Plot | None:
        panel = self.active_panel()
        return panel if isinstance(panel, Plot) else None

    def restore(self) -> None:
        """Apply the saved layout, once the panels exist."""
        for plot in self.plots():
            plot.logarithmic = plot.id in self.remembered.logarithmic
        self.lay_out()

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
        self.lay_out()
        if not all(widget.display for widget in panel.ancestors_with_self if isinstance(widget, Widget)):
            self.remembered.maximised = str(panel.id)
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
            self.remembered.maximised = ""
        elif (panel := self.active_panel()) is not None:
            self.remembered.maximised = str(panel.id)
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
        self.remembered.maximised = ""
        self.lay_out()
        self.save_layout()
        self.set_focus(None)
        self.notify(f"{panel.title} hidden; press {panel.key} to show it again", timeout=4)

    def action_show_all(self) -> None:
        self.remembered.hidden, self.remembered.maximised = [], ""
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
        self.call_after_refresh(self.lay_out)
