"""GPUs, processor and memory."""

from __future__ import annotations

from rich.text import Text

from mario_tui.feed import Snapshot
from mario_tui.format import gibibytes
from mario_tui.widgets.panel import Panel, bar


class MachinePanel(Panel):
    """Utilisation, memory and temperature of each GPU, or one honest line; then CPU and memory."""

    def __init__(self) -> None:
        super().__init__("Machine", id="machine")

    def compose_text(self, snapshot: Snapshot, width: int) -> Text:
        system = snapshot.system
        if system is None:
            return Text("not measured yet", style="dim")
        room = max(4, min(24, width - 24))
        text = Text(no_wrap=True, overflow="ellipsis")
        for index, gpu in enumerate(system.gpus):
            heat = "" if gpu.temperature_c is None else f" {gpu.temperature_c:.0f}°C"
            text.append(f"gpu {index}   ").append(bar(gpu.utilisation_percent / 100, room), style="green")
            text.append(f" {gpu.utilisation_percent:.0f}%{heat}\n        ")
            text.append(bar(gpu.memory_used_bytes / gpu.memory_total_bytes, room), style="green")
            text.append(f" {gibibytes(gpu.memory_used_bytes)}/{gibibytes(gpu.memory_total_bytes)}G\n")
        mean = sum(system.cpu_percent) / max(1, len(system.cpu_percent))
        text.append("cpu     ").append(bar(mean / 100, room), style="blue")
        text.append(f" {mean:.0f}% of {len(system.cpu_percent)}\n")
        text.append("memory  ").append(bar(system.memory_used_bytes / system.memory_total_bytes, room), style="blue")
        text.append(f" {gibibytes(system.memory_used_bytes)}/{gibibytes(system.memory_total_bytes)}G\n")
        text.append(
            f"run: {system.run_cpu_percent:.0f}% of a core, {gibibytes(system.run_memory_bytes)}G, "
            f"{system.processes} processes",
            style="dim",
        )
        if not system.gpus:
            text.append(f"\n{system.gpu_note}", style="dim")
        return text
