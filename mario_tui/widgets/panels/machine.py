"""Load of CPU, memory and GPUs; the members of a run with several processes; and where the processes' time goes."""

from __future__ import annotations

import math
from collections import deque

from rich.text import Text

from engine.protocol.messages import GPU, Machine, Member, Split, System
from mario_tui.data.format import counted, fraction, gibibytes, number, short, shortened
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.base.panel import Panel, bar, sparkline

_KEPT = 240  # samples, one per second
_NAMED = 9  # width of the name column
_OTHER_LINES = 8
"""Lines that the rest of the panel needs at most, without GPUs."""


class MachinePanel(Panel):
    """Cores, memory and the run's share of them; utilisation, memory and temperature of each GPU, or why there is none.
    A line for each other machine of the run.

    When maximised, it shows a bar per core and a longer history.
    """

    def __init__(self) -> None:
        super().__init__("Machine", id="machine", key="3")
        self._past: deque[System] = deque(maxlen=_KEPT)

    def show(self, snapshot: Snapshot) -> None:
        if (snapshot.system, snapshot.live) == (self._snapshot.system, self._snapshot.live) and self._lines:
            return
        if snapshot.system is not None and snapshot.system is not self._snapshot.system:
            self._past.append(snapshot.system)
        super().show(snapshot)

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        system = snapshot.system
        if snapshot.hello is not None and not snapshot.live:
            return Text("measured only during the run", style="dim")
        if system is None:
            return Text("not measured yet", style="dim")
        large = self.has_class("-alone")
        room = max(4, min(60 if large else 24, (width - _NAMED - 13) // (2 if width >= 48 else 1)))
        past = max(0, min(_KEPT, width - _NAMED - room - 15))
        text = Text(no_wrap=True, overflow="ellipsis")
        for index, gpu in enumerate(system.gpus):
            if len(system.gpus) > 2 and not large:
                _gpu_in_a_line(text, index, gpu, width)
            else:
                self._gpu(text, index, gpu, room, past)
        self._cores(text, system, width, large)
        mean = _mean(system.cpu_percent)
        cores = f"{mean:.0f}% of {len(system.cpu_percent)}"
        self._line(text, "cpu", mean / 100, cores, room, past, [_mean(s.cpu_percent) / 100 for s in self._past])
        used = f"{gibibytes(system.memory_used_bytes)}/{gibibytes(system.memory_total_bytes)}G"
        shares = [fraction(s.memory_used_bytes, s.memory_total_bytes) for s in self._past]
        share = fraction(system.memory_used_bytes, system.memory_total_bytes)
        self._line(text, "memory", share, used, room, past, shares)
        text.append(
            f"run: {system.run_cpu_percent:.0f}% of a core, {gibibytes(system.run_memory_bytes)}G, "
            f"{system.processes} {'process' if system.processes == 1 else 'processes'}",
            style="dim",
        )
        if not system.gpus:
            text.append(f"\n{system.gpu_note}", style="dim")
        for machine in [] if snapshot.members is None else snapshot.members.machines:
            _machine_in_a_line(text, machine, width)
        return text

    def _gpu(self, text: Text, index: int, gpu: GPU, room: int, past: int) -> None:
        heat = "" if gpu.temperature_c is None else f" {gpu.temperature_c:.0f}°C"
        earlier = [s.gpus[index] for s in self._past if index < len(s.gpus)]
        used = [_utilisation(each) for each in earlier]
        self._line(text, f"gpu {index}", _utilisation(gpu), f"{_percent(gpu)}{heat}", room, past, used, "green")
        shares = [_memory(each) for each in earlier]
        self._line(text, "  memory", _memory(gpu), _size(gpu), room, past, shares, "green")
        if self.has_class("-alone"):
            text.append(f"{'':<{_NAMED}}{gpu.name}\n", style="dim")

    def _cores(self, text: Text, system: System, width: int, large: bool) -> None:
        """One block per core; when maximised, a bar, a number and, if there is room, the history of each core."""
        cores = system.cpu_percent
        if not large:
            blocks = sparkline([percent / 100 for percent in cores], width - _NAMED, 0.0, 1.0)
            text.append(f"{'cores':<{_NAMED}}").append(blocks, style="blue")
            text.append("" if len(cores) <= width - _NAMED else "…").append("\n")
            return
        if len(cores) <= max(1, self.body[1] - _OTHER_LINES):
            for index, percent in enumerate(cores):
                history = [system.cpu_percent[index] / 100 for system in self._past if index < len(system.cpu_percent)]
                text.append(f"{f'core {index}':<{_NAMED}}").append(bar(percent / 100, 12), style="blue")
                text.append(f" {percent:>3.0f}% ")
                text.append(sparkline(history, max(0, width - _NAMED - 20), 0.0, 1.0), style="dim blue").append("\n")
            return
        across = max(1, width // 28)
        for index, percent in enumerate(cores):
            text.append(f"core {index:<3} ").append(bar(percent / 100, 12), style="blue").append(f" {percent:>3.0f}%  ")
            if (index + 1) % across == 0 or index == len(cores) - 1:
                text.append("\n")

    def _line(
        self,
        text: Text,
        name: str,
        share: float,
        value: str,
        room: int,
        past: int,
        history: list[float],
        style: str = "blue",
    ) -> None:
        text.append(f"{name:<{_NAMED}}").append(bar(share, room), style=style).append(f" {value:<12}")
        if past >= 8:
            text.append(" ").append(sparkline(history, past, 0.0, 1.0), style=f"dim {style}")
        text.append("\n")


def _mean(values: list[float]) -> float:
    return sum(values) / max(1, len(values))


def _gpu_in_a_line(text: Text, index: int, gpu: GPU, width: int) -> None:
    """One line per GPU if there are many: `gpu 3  ███▌··  61%  64°C  31.2/80.0G`."""
    heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}°C"
    text.append(f"{f'gpu {index}':<{_NAMED}}")
    text.append(bar(_utilisation(gpu), max(2, min(24, width - _NAMED - 22))), style="green")
    text.append(f" {_percent(gpu):>4} {heat:>4} {_size(gpu):>11}\n")


def _machine_in_a_line(text: Text, machine: Machine, width: int) -> None:
    """Another machine of the run: `node-2    ███▌··  61% of 16   12.1/64.0G, gpu 45%`."""
    used = f"{gibibytes(machine.memory_used_bytes)}/{gibibytes(machine.memory_total_bytes)}G"
    text.append(f"\n{shortened(machine.name, _NAMED - 1):<{_NAMED}}")
    text.append(bar(machine.cpu_percent / 100, max(2, min(12, width - _NAMED - 30))), style="blue")
    text.append(f" {machine.cpu_percent:>3.0f}% of {machine.cores:<3} {used}")
    if machine.gpus:
        text.append(f", gpu {' '.join(map(_percent, machine.gpus))}", style="green")


def _utilisation(gpu: GPU) -> float:
    """Utilisation as a share; 0 if unknown."""
    return (gpu.utilisation_percent or 0.0) / 100


def _memory(gpu: GPU) -> float:
    """Used memory as a share; 0 if unknown."""
    return fraction(gpu.memory_used_bytes or 0, gpu.memory_total_bytes or 0)


def _percent(gpu: GPU) -> str:
    return "n/a" if gpu.utilisation_percent is None else f"{gpu.utilisation_percent:.0f}%"


def _size(gpu: GPU) -> str:
    if gpu.memory_used_bytes is None or gpu.memory_total_bytes is None:
        return "n/a"
    return f"{gibibytes(gpu.memory_used_bytes)}/{gibibytes(gpu.memory_total_bytes)}G"


class ProcessesPanel(Panel):
    """One row per actor, worker or rank. Hidden in runs with one process, and after the end of a run."""

    def __init__(self) -> None:
        super().__init__("Processes", id="processes", key="b")

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


_LEAST = 0.005


class TimeSplitPanel(Panel):
    """Shares of the coordinator's loop as bars, then one line per other process."""

    def __init__(self) -> None:
        super().__init__("Time per section", id="time", key="i")

    def is_needed(self, snapshot: Snapshot) -> bool:
        return snapshot.time_splits is not None  # a recording may not contain them

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        splits = [
            split for split in (snapshot.time_splits.processes if snapshot.time_splits else []) if split.seconds > 0
        ]
        if not splits:
            return Text("not measured yet", style="dim")
        leader, *others = splits
        text = Text(no_wrap=True, overflow="ellipsis")
        room = max(4, min(24, width - 30))
        text.append(f"{leader.process:<12}{'of the loop':<{room + 5}}{'threads':>8}", style="bold")
        for section, share in _largest(leader):
            text.append(f"\n{section:<12}").append(bar(share, room), style="blue")
            text.append(f"{share:>5.0%}{leader.busy.get(section, 0.0):>8.2f}")
        rest = 1 - sum(leader.loop.values())
        text.append(f"\n{'other':<12}{bar(rest, room)}{max(0.0, rest):>5.0%}", style="dim")
        for split in others:
            text.append(f"\n{split.process:<12}", style="bold")
            text.append("  ".join(f"{section} {share:.0%}" for section, share in _largest(split)))
        return text


def _largest(split: Split) -> list[tuple[str, float]]:
    """Sections of the loop, longest first."""
    shares = [(section, share) for section, share in split.loop.items() if share >= _LEAST]
    return sorted(shares, key=lambda each: -each[1])
