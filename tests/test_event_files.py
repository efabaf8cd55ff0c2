"""Event files of TensorBoard, as others write them, and the screen that shows a folder of them."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import pytest
from rich.text import Text
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from textual.widgets import Static

from mario_tui.app import MarioApp
from mario_tui.event_files import MOST_POINTS, EventFolder
from mario_tui.screens.charts import ChartsScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.comparison import Comparison
from tests.conftest import FinishedRun
from tests.support import Terminal, run_program
from tests.test_tui import until


def write(folder: Path, values: dict[str, list[float]], first: int = 0) -> EventFileWriter:
    writer = EventFileWriter(str(folder))
    for tag, numbers in values.items():
        for step, number in enumerate(numbers, first):
            value = Summary.Value(tag=tag, simple_value=number)
            writer.add_event(Event(wall_time=1000 + step, step=step, summary=Summary(value=[value])))
    writer.flush()
    return writer


def read(events: EventFolder) -> bool:
    return events.take_in(events.collect())


def values_of(events: EventFolder, tag: str, inside: str = ".") -> list[float]:
    return [value for _, _, value in events.tags[tag][inside].points]


def test_what_pytorch_writes_is_read(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "train")) as writer:
        for step in range(5):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_histogram("weights", __import__("torch").arange(10.0), 0)
        writer.add_text("notes", "hello")
    events = EventFolder(tmp_path)
    assert read(events)
    assert values_of(events, "loss", "train") == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
    assert list(events.tags) == ["loss"]
    assert events.broken == {}


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dtype=1, float_val=[2.5]),
        TensorProto(dtype=1, tensor_content=struct.pack("<f", 2.5)),
        TensorProto(dtype=2, double_val=[2.5]),
        TensorProto(dtype=2, tensor_content=struct.pack("<d", 2.5)),
    ],
)
def test_scalars_as_tensors_are_read(tensor: TensorProto, tmp_path: Path) -> None:
    writer = EventFileWriter(str(tmp_path))
    writer.add_event(Event(step=7, summary=Summary(value=[Summary.Value(tag="loss", tensor=tensor)])))
    writer.close()
    events = EventFolder(tmp_path)
    read(events)
    assert [(step, value) for step, _, value in events.tags["loss"]["."].points] == [(7, 2.5)]


def test_only_what_is_new_is_read_and_half_a_record_waits(tmp_path: Path) -> None:
    write(tmp_path / "whole", {"loss": [1, 2, 3]}).close()
    (source,) = (tmp_path / "whole").iterdir()
    content = source.read_bytes()
    source.unlink()
    growing = tmp_path / "events.out.tfevents.1.x"
    events = EventFolder(tmp_path)
    seen = []
    for end in [*sorted(random.Random(0).sample(range(len(content)), 20)), len(content)]:
        growing.write_bytes(content[:end])
        read(events)
        seen.append(len(events.tags["loss"]["."].points) if events.tags else 0)
    assert seen == sorted(seen)
    assert values_of(events, "loss") == [1, 2, 3]
    assert not read(events)
    assert events.broken == {}


def test_a_long_history_is_thinned_evenly(tmp_path: Path) -> None:
    write(tmp_path, {"loss": list(range(10_000))}).close()
    events = EventFolder(tmp_path)
    read(events)
    values = values_of(events, "loss")
    assert MOST_POINTS / 2 <= len(values) < MOST_POINTS
    assert {b - a for a, b in itertools.pairwise(values)} <= {4.0}


@pytest.mark.parametrize("content", [b"x" * 100, struct.pack("<QI", 4, 0) + b"\xff\xff\xff\xff" + b"0000"])
def test_a_broken_file_is_named_and_the_others_are_read(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, {"loss": [1]}).close()
    broken = tmp_path / "events.out.tfevents.0.broken"
    broken.write_bytes(content)
    events = EventFolder(tmp_path)
    assert read(events)
    assert values_of(events, "loss") == [1]
    assert list(events.broken) == [broken]


async def test_a_folder_is_shown_and_followed(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "a", {"loss": [3, 2, 1], "acc": [0, 1, 2]})
    writer = write(tmp_path / "logs" / "b", {"loss": [4, 4, 4, float("nan")]})
    app = MarioApp(charts=tmp_path / "logs")
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, ChartsScreen)

        def tags() -> list[str | None]:
            return [chart.name for chart in screen.query(Comparison)]

        await until(pilot, lambda: tags() == ["acc", "loss"], "the charts")
        loss = screen.query(Comparison).last()
        await until(pilot, lambda: loss.border_title == "loss 4.00", "the last value")
        assert {"●", "▲"} <= set(str(loss.render()))
        value = Summary.Value(tag="loss", simple_value=9)
        writer.add_event(Event(step=9, summary=Summary(value=[value])))
        writer.flush()
        await until(pilot, lambda: loss.border_title == "loss 9.00", "the new value")
        await pilot.press("slash", *"ac")
        await until(pilot, lambda: tags() == ["acc"], "the filter")
        await pilot.press("enter", "x")
        await until(pilot, lambda: "over time" in str(screen.query_one("#title", Static).render()), "the axis")
        await pilot.press("escape")
        await until(pilot, lambda: tags() == ["acc", "loss"], "all charts")
        await pilot.press("escape")
        assert isinstance(app.screen, HomeScreen)


def test_attach_opens_what_another_program_wrote(finished_run: FinishedRun, tmp_path: Path) -> None:
    (file,) = finished_run.run.path.glob("*tfevents*")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file.name).write_bytes(file.read_bytes())
    terminal = Terminal("attach", "other", cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("other  ", "scalars over steps", "charts/env_steps_per_s")
    terminal.send("q")
    assert terminal.wait() == 0
    (tmp_path / "empty").mkdir()
    done = run_program("attach", "empty", cwd=tmp_path, check=2)
    assert "empty: no such run" in done.stderr


async def test_square_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, {"loss[train]": [4.0], "x[/b]": [1.0]})
    app = MarioApp(charts=tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:

        def titles() -> list[str]:
            return [Text.from_markup(chart.border_title or "").plain for chart in app.screen.query(Comparison)]

        await until(pilot, lambda: titles() == ["loss[train] 4.00", "x[/b] 1.00"], "the charts")
        app.notify("smb [b1].nes [/b]")
        await pilot.pause()
        assert [notice.markup for notice in app._notifications] == [False]
