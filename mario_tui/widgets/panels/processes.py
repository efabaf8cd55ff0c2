"""The members of a run with several processes: speed, returns, waiting time and restarts."""

from __future__ import annotations

import math

from rich.text import Text

from engine.protocol.messages import Member
from mario_tui.data.feed import Snapshot
from mario_tui.data.format import counted, number, short
from mario_tui.widgets.base.panel import Panel


class ProcessesPanel(Panel):
    """One row per actor, worker or rank. Hidden in runs with one process, and after the end of a run."""

    def __init__(self) -> None:
        super().__init__("Processes", id="processes", number=11)

    def is_needed(self, snapshot: Snapshot) -> bool:
        return snapshot.members is not None and snapshot.live

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        members = snapshot.members
        if members is None:
            return text
        role = members.members[0].role
        wide = width >= 52
        text.append(
            f"{role:<6} {'steps/s':>7} {'mean':>5} {'lag':>4} {'waits':>5} {'lost':>4}{'  epsilon' if wide else ''}",
            style="bold",
        )
        for member in members.members:
            text.append("\n").append_text(_row(member, wide, snapshot.running))
        inserts, samples = (members.inserts_per_s, members.samples_per_s) if snapshot.running else (0.0, 0.0)
        text.append(f"\n{short(inserts)} in/s, {short(samples)} samples/s", style="dim")
        if math.isfinite(members.ratio):
            text.append(f", ratio {members.ratio:.2f}", style="dim")
        if role == "actor":
            text.append(f"\nlearner waits {members.learner_waiting_percent:.0f}%", style="dim")
        machines = {member.machine for member in members.members if member.machine}
        if machines:
            if role == "actor":
                wire = short(members.wire_bytes_per_s if snapshot.running else 0.0)
                text.append(f", {wire}B/s", style="dim")
            text.append(f", {counted(len(machines), 'machine')}", style="dim")
        return text


def _row(member: Member, wide: bool, running: bool) -> Text:
    if not member.ready:
        lost = f", lost {counted(member.restarts, 'time')}" if member.restarts else ""
        what = "waits for a core" if member.waits_for_core else "starting"
        return Text(f"{member.index:<6} {what}{lost}", "dim")
    rate = number(member.env_steps_per_s if running else None)
    text = Text(f"{member.index:<6} {rate:>7} {number(member.mean_return):>5} ")
    text.append(f"{short(member.lag):>4} {member.waiting_percent:>4.0f}% ", style="dim")
    text.append(f"{member.restarts:>4}", style="bold yellow" if member.restarts else "dim")
    if wide:
        text.append(f"  {member.epsilon_high:.3f} to {member.epsilon_low:.3f}", style="dim")
    return text
