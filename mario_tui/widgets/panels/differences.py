"""What differs between the configurations of compared runs: a row per option, a column per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from engine.config.fields import flag
from mario_tui.data.format import counted, shortened
from mario_tui.widgets.base.line_widget import LineWidget
from mario_tui.widgets.charts.comparison import Series

_WIDEST = 16
"""Width of a value's column at most; a longer value is cut."""


class DifferencesPanel(LineWidget):
    """Columns have the runs' colours and markers; those that do not fit are counted."""

    def __init__(self) -> None:
        super().__init__("Configuration", id="differences", number=2)
        self._runs: Sequence[Series] = ()
        self._options: Mapping[str, Sequence[str]] = {}

    def show(self, runs: Sequence[Series], options: Mapping[str, Sequence[str]]) -> None:
        """Show the values of each option, in the order of the runs."""
        runs = [Series(run.name, run.index, pinned=run.pinned) for run in runs]
        if (runs, options) != (self._runs, self._options) or not self._lines:
            height = self.get_content_height(None, None, 0)
            self._runs, self._options = runs, options
            self.repaint()
            if self.get_content_height(None, None, 0) != height and self.styles.is_auto_height:
                self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return max(1, len(self._options) + bool(self._options)) + self.framed

    def repaint(self) -> None:
        width, height = self.body
        if not height:
            return
        if not self._options:
            few = "only one line is shown" if self._runs else "no line is shown"
            text = "no option differs" if len(self._runs) > 1 else few
            self.paint(self.text_lines(Text(text, style="dim"), width))
            return
        named = {flag(name).removeprefix("--"): values for name, values in self._options.items()}
        first = min(max(map(len, named)), max(8, width // 3))
        widths = [
            min(_WIDEST, max(1, *(len(values[at]) for values in named.values()))) for at in range(len(self._runs))
        ]
        shown = 0
        while shown < len(widths) and first + sum(widths[: shown + 1]) + 2 * (shown + 1) <= width:
            shown += 1
        head = Text(" " * first)
        for run, room in zip(self._runs[:shown], widths, strict=False):
            head.append(f"  {run.marker:>{room}}", style=f"bold {run.colour}")
        lines = [head]
        for name, values in named.items():
            line = Text(f"{shortened(name, first):<{first}}")
            for value, room in zip(values[:shown], widths, strict=False):
                line.append(f"  {shortened(value, room):>{room}}")
            lines.append(line)
        rows = lines[:height]
        notes = []
        if len(rows) < len(lines):
            rows[-1] = Text(f"{counted(len(lines) - height + 1, 'more option')}", style="dim")
        if shown < len(widths):
            notes.append(f"{counted(len(widths) - shown, 'run')} not shown")
        self.paint(self.text_lines(Text("\n", no_wrap=True).join(rows), width), note=", ".join(notes))
