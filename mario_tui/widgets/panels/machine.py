"""Load of CPU, memory and GPUs, with sparklines of the last minutes."""

from __future__ import annotations

from collections import deque

from rich.text import Text

from engine.protocol.machine import GPU, Machine, System
from mario_tui.data.feed import Snapshot
from mario_tui.data.format import fraction, gibibytes, shortened
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
        super().__init__("Machine", id="machine", number=3)
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
