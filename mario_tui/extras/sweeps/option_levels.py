"""What the runs of a sweep reach with each value of each option: mean and interval on one scale, and the settings.

A setting has one marker under each option, at its own result, beside the value that it has: a parallel plot without
crossing lines, whose labels can be read in a terminal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.style import Style
from rich.text import Text

from engine.runtime.text import printable
from mario_tui.data.format import fraction, number, shortened
from mario_tui.data.seed_statistics import Statistic
from mario_tui.extras.sweeps.levels import Level, OptionLevels
from mario_tui.extras.sweeps.results import SHORTER, Shown
from mario_tui.widgets.base.panel import MovableLines
from mario_tui.widgets.charts.axes import round_ticks, tick_labels
from mario_tui.widgets.charts.comparison import Series

_METRICS = {"result": "result", "best": "best evaluation", "last": "last episodes"}
_RUNS, _VALUE = 5, 9
_LEAST_PLOT = 12
_COLUMNS_PER_TICK = 10


class OptionLevelsPanel(MovableLines):
    """Two lines for each value: the interval with the mean, and the markers of its settings."""

    def __init__(self) -> None:
        super().__init__("Options", id="levels")
        self.short_title = "Options"
        self._options: Sequence[OptionLevels] = ()
        self._marked: Collection[int] = ()
        self._statistic: Statistic = "mean"
        self._top = 0

    def show(
        self, options: Sequence[OptionLevels], metric: Shown, marked: Collection[int], statistic: Statistic
    ) -> None:
        """Show what these options have reached; the markers of settings that are not `marked` are dim, if any is."""
        self.title = f"Options and {_METRICS[metric]}"
        if (options, marked, statistic) != (self._options, self._marked, self._statistic) or not self._lines:
            self._options, self._marked, self._statistic = options, marked, statistic
            self.repaint()

    def action_move(self, lines: int) -> None:
        self._top += lines
        self.repaint()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.body[1] - 2))

    def repaint(self) -> None:
        width, height = self.body
        if not height:
            return
        levels = [level for option in self._options for level in option.levels]
        ends = [end for level in levels if level.reached is not None for end in level.reached if end is not None]
        ends += [value for level in levels for _, value in level.settings]
        if not ends:
            why = "no run has a result yet" if levels else "no option varies between the settings"
            self.paint(self.text_lines(Text(why, style="dim"), width))
            return
        longest = max(len(printable(level.label)) for level in levels)
        room = min(longest, max(8, width - _RUNS - _VALUE - 4 - _LEAST_PLOT)) + 2
        columns = max(_LEAST_PLOT, width - room - _RUNS - _VALUE - 2)
        scale = _Scale(min(ends), max(ends), columns)
        lines = list[Text]()
        for option in self._options:
            lines.append(Text(printable(option.name), style="bold"))
            for level in option.levels:
                lines += self._level(level, room, scale)
        self._top = max(0, min(self._top, len(lines) - height + 1))
        head = Text(f"{'':{room}}{'runs':>{_RUNS}}{self._statistic:>{_VALUE}}  {scale.labels()}", style="dim")
        shown = lines[self._top : self._top + height - 1]
        is_whole = len(shown) == len(lines)
        note = "95 % intervals" if is_whole else f"{self._top + 1}–{self._top + len(shown)} of {len(lines)}"
        if any(level.is_shorter for level in levels):
            note = f"{SHORTER} trained less, {note}"
        self.paint(self.text_lines(Text("\n", no_wrap=True).join([head, *shown]), width), note=note)

    def _level(self, level: Level, room: int, scale: _Scale) -> list[Text]:
        best = level.reached
        line = Text(f"  {shortened(printable(level.label), room - 2):<{room - 2}}{level.runs:>{_RUNS}}")
        line.append(f"{number(None if best is None else best.value):>{_VALUE}}", style="bold")
        line.append(f"{SHORTER * level.is_shorter:<2}")
        cells = [" "] * scale.columns
        if best is not None:
            if best.low is not None and best.high is not None:
                low, high = scale.column(best.low), scale.column(best.high)
                cells[low : high + 1] = "─" * (high - low + 1)
                if low < high:
                    cells[low], cells[high] = "├", "┤"
            cells[scale.column(best.value)] = "┃"
        line.append("".join(cells).rstrip(), style=self.ink("line-widget--title"))
        return [line, self._markers(level, room, scale)] if level.settings else [line]

    def _markers(self, level: Level, room: int, scale: _Scale) -> Text:
        """The settings' markers; where several have the same place, a marked one is seen."""
        found: dict[int, tuple[str, Style]] = {}
        for index, value in sorted(level.settings, key=lambda setting: setting[0] in self._marked):
            series = Series("", index)
            is_dim = bool(self._marked) and index not in self._marked
            found[scale.column(value)] = series.marker, Style(color=series.colour, bold=not is_dim, dim=is_dim)
        text = Text(" " * (room + _RUNS + _VALUE + 2))
        for column in range(max(found, default=-1) + 1):
            text.append(*found.get(column, (" ", None)))
        return text


class _Scale:
    """Columns of a plot, from the lowest to the highest value."""

    def __init__(self, low: float, high: float, columns: int) -> None:
        margin = 0.0 if low < high else abs(low) / 10 or 1.0
        self._low, self._high, self.columns = low - margin, high + margin, columns

    def column(self, value: float) -> int:
        return round(fraction(value - self._low, self._high - self._low) * (self.columns - 1))

    def labels(self) -> str:
        """Round numbers at their places."""
        ticks = round_ticks(self._low, self._high, max(1, self.columns // _COLUMNS_PER_TICK))
        line = [" "] * self.columns
        for value, text in zip(ticks, tick_labels(ticks, _COLUMNS_PER_TICK - 2), strict=True):
            at = min(max(0, self.column(value) - len(text) // 2), self.columns - len(text))
            line[at : at + len(text)] = text
        return "".join(line)
