"""Lines of text on the screen of a sweep: its title, two settings against each other, markers with their settings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from engine.runtime.text import printable
from mario_tui.data.format import counted
from mario_tui.data.sweep_levels import ListedSetting
from mario_tui.data.sweep_statistics import Statistic, improvement
from mario_tui.data.sweep_table import SettingResult, share, shown_setting, states_of, states_text
from mario_tui.widgets.settings_table import marker_of

_BETWEEN, _MOST_LINES = "   ", 2
"""What is between the names of two settings; lines of names at most."""


def title(name: str, results: Sequence[SettingResult], statistic: Statistic, resume: str) -> Text:
    """Name and states of the runs. `resume`: the key that resumes the sweep, if it is stopped."""
    runs = states_of(results).total()
    text = Text.assemble((f"Sweep {printable(name)}", "bold"), no_wrap=True, overflow="ellipsis")
    text.append(f"  {counted(runs, 'run')}{': ' * bool(runs)}{states_text(results)}")
    if statistic == "iqm":
        text.append("  IQM", style="bold")
    if resume:
        text.append(f"  stopped ({resume} resumes)", style="yellow")
    return text


def broken(name: str, reason: str) -> Text:
    """Name of a sweep that can't be read any more, and why."""
    text = Text.assemble((f"Sweep {printable(name)}", "bold"), no_wrap=True, overflow="ellipsis")
    return text.append(f"  {printable(reason)}", style="bold red")


def pair(one: ListedSetting, other: ListedSetting) -> Text:
    """The probability that a run of one setting is better than one of the other, both ways."""
    lines = []
    for ours, theirs in ((one, other), (other, one)):
        found = improvement(ours.result.best, theirs.result.best)
        within = "" if found is None or found.low is None else f" ({found.low:.2f} to {share(found.high)})"
        line = Text.assemble((f"{share(found and found.value)}{within}  ", "bold"), _named(ours))
        lines.append(line.append(" is better than ").append_text(marker_of(theirs)))
    return Text("\n").join(lines)


def reference(than: ListedSetting | None) -> Text:
    """What the column `better` of the table tells."""
    return Text() if than is None else Text("better: probability to be above a run of ").append_text(_named(than))


def named_settings(shown: Sequence[ListedSetting], room: int) -> Text:
    """Markers and settings, as many on a line of `room` cells as fit: what is wrapped could break in between."""
    lines = [Text()]
    for count, name in enumerate(map(_named, shown)):
        if lines[-1] and lines[-1].cell_len + len(_BETWEEN) + name.cell_len > room:
            if len(lines) == _MOST_LINES:
                lines.append(Text(f"and {len(shown) - count:,} more", style="dim"))
                break
            lines.append(Text())
        lines[-1].append(_BETWEEN * bool(lines[-1])).append_text(name)
    return Text("\n").join(lines)


def _named(row: ListedSetting) -> Text:
    return marker_of(row).append(f" {printable(shown_setting(row.result.settings))}", style="not bold default")
