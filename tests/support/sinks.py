"""What sinks are told in tests, and packages that bring sinks of their own."""

from __future__ import annotations

from pathlib import Path

from engine.config.reading import make_config
from engine.host import host_events
from engine.protocol.sinks import Begin
from engine.runs.run import Run
from engine.sinks.files import TensorBoard


def begin(folder: Path, game: str = "snake") -> Begin:
    """What the host of a run in this folder tells first."""
    return host_events.begin(Run(folder), make_config({"game": game}), created_at=1.0)


def tensorboard(folder: Path) -> TensorBoard:
    """A sink that has begun."""
    sink = TensorBoard(folder)
    sink.begin(begin(folder))
    return sink


def install(folder: Path, source: str, **sinks: str) -> None:
    """Install a package `sinks_of_others` with this source in a folder; `sinks`: the class of each, by its name."""
    (folder / "sinks_of_others.py").write_text(source)
    info = folder / "sinks_of_others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sinks-of-others\nVersion: 1.0\n")
    lines = [f"{name} = sinks_of_others:{kind}\n" for name, kind in sinks.items()]
    (info / "entry_points.txt").write_text("[mario_tui.sinks]\n" + "".join(lines))
