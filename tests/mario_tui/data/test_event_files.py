"""Event files of TensorBoard, as others write them, and the screen that shows a folder of them."""

from __future__ import annotations

import itertools
import random
import re
import struct
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from textual.widgets import Static

from engine.errors import UserError
from engine.monitoring.tensorboard import EPISODE_POINTS, ScalarWriter
from engine.protocol.messages import Episode
from mario_tui.app import MarioApp
from mario_tui.cli import _charts, run
from mario_tui.data.event_files import MOST_POINTS, EventFolder, _records, scalars_of
from mario_tui.data.format import fitting, number
from mario_tui.screens.charts import ChartsScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.charts.comparison import Comparison
from tests.support.app import until
from tests.support.program import FinishedRun, Terminal, run_program


def write(folder: Path, values: dict[str, list[float]], first: int = 0) -> EventFileWriter:
    writer = EventFileWriter(str(folder))
    for tag, numbers in values.items():
        for step, each in enumerate(numbers, first):
            value = Summary.Value(tag=tag, simple_value=each)
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


def test_a_run_writes_means_of_more_and_more_episodes(tmp_path: Path) -> None:
    """However many end: twice as many episodes take `EPISODE_POINTS` points more, not twice as many."""
    told: list[str] = []
    scalars, total = ScalarWriter(tmp_path, told.append), 17 * EPISODE_POINTS
    for episode in range(1, total + 1):
        scalars.episode(
            Episode(
                actor=0, lane=0, env_steps=10 * episode, episode=episode, episode_return=float(episode), length=10,
                x_pos=0, flag=episode % 4 == 0, epsilon=0.1,
            )
        )  # fmt: skip
    scalars.close()
    assert not told
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 200 * (4 * EPISODE_POINTS + EPISODE_POINTS // 4)
    with file.open("rb") as stream:
        records = [list(scalars_of(data)) for data in _records(stream, file.stat().st_size)][1:]
    returns = [(step, value) for record in records for tag, step, _, value in record if tag == "charts/episodic_return"]
    assert returns[:EPISODE_POINTS] == [(10 * episode, episode) for episode in range(1, EPISODE_POINTS + 1)]
    steps = [step for step, _ in returns]
    counts = [(step - before) / 10 for before, step in itertools.pairwise([0, *steps])]
    assert sorted(set(counts)) == [1, 2, 4, 8, 16] and counts == sorted(counts)
    for (step, value), count in zip(returns, counts, strict=True):
        assert value == pytest.approx(step / 10 - (count - 1) / 2)
    assert steps[-1] == 10 * total
    clears = [value for record in records for tag, _, _, value in record if tag == "charts/episodic_clear"]
    assert set(clears[2 * EPISODE_POINTS :]) == {0.25}


def test_episodes_that_wait_for_their_point_are_written_at_the_end(tmp_path: Path) -> None:
    scalars = ScalarWriter(tmp_path, print)
    for episode in range(1, EPISODE_POINTS + 2):
        scalars.episode(
            Episode(
                actor=0, lane=0, env_steps=episode, episode=episode, episode_return=0.0, length=1, x_pos=0, flag=False,
                epsilon=0.1,
            )
        )  # fmt: skip
    scalars.close()
    events = EventFolder(tmp_path)
    news = events.collect()
    assert max(step for _, _, step, _, _ in news.scalars) == EPISODE_POINTS + 1


@pytest.mark.parametrize("content", [b"x" * 100, struct.pack("<QI", 4, 0) + b"\xff\xff\xff\xff" + b"0000"])
def test_a_broken_file_is_named_and_the_others_are_read(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, {"loss": [1]}).close()
    broken = tmp_path / "events.out.tfevents.0.broken"
    broken.write_bytes(content)
    events = EventFolder(tmp_path)
    assert read(events)
    assert values_of(events, "loss") == [1]
    assert list(events.broken) == [broken]


def rule(chart: Comparison) -> str:
    """The first line of a chart: its title, value and note."""
    return str(chart.render()).splitlines()[0] if chart.size.height else ""


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
        await until(pilot, lambda: rule(loss).startswith("─ loss  ●1.00 ▲4.00 ─"), "the last values")
        assert "1 NaN/inf, to 3" in rule(loss)
        assert {"●", "▲"} <= set(str(loss.render()))
        value = Summary.Value(tag="loss", simple_value=9)
        writer.add_event(Event(step=9, summary=Summary(value=[value])))
        writer.flush()
        await until(pilot, lambda: "▲9.00" in rule(loss), "the new value")
        await pilot.press("slash", *"ac")
        await until(pilot, lambda: tags() == ["acc"], "the filter")
        await pilot.press("enter", "t")
        await until(pilot, lambda: "training time" in rule(screen.query_one(Comparison)), "the axis")
        await pilot.press("escape")
        await until(pilot, lambda: tags() == ["acc", "loss"], "all charts")
        await pilot.press("escape")
        assert isinstance(app.screen, HomeScreen)


def test_attach_opens_what_another_program_wrote(finished_run: FinishedRun, tmp_path: Path) -> None:
    file = min(finished_run.run.path.glob("*tfevents*"))  # other tests may have resumed it
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file.name).write_bytes(file.read_bytes())
    terminal = Terminal("attach", "other", cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("other  ", " scalars", "charts/env_steps_per_s")
    terminal.send("q")
    assert terminal.wait() == 0
    (tmp_path / "empty").mkdir()
    done = run_program("attach", "empty", cwd=tmp_path, check=2)
    assert done.stderr == "mario-tui: error: empty: the folder contains neither a run nor event files\n"


def test_one_file_is_attached_to_like_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "a", {"loss": [3, 2]}).close()
    write(tmp_path / "a", {"acc": [1]}).close()
    renamed = tmp_path / "renamed"
    next((tmp_path / "a").iterdir()).rename(renamed)
    for path in (renamed, *(tmp_path / "a").iterdir()):
        assert _charts(path) == path
        events = EventFolder(path)
        assert read(events)
        assert [list(inside) for inside in events.tags.values()] == [["."]]
    for content in (b"", b"x" * 100, b"\x00" * 100):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(UserError, match=r"other: not a TensorBoard event file$"):
            run(["attach", str(tmp_path / "other")])


async def test_every_broken_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"loss": [1]}).close()
    names = [f"{folder}/events.out.tfevents.{'0' * 60}.{folder}" for folder in ("one", "two", "three")]
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x" * 100)
    app = MarioApp(charts=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        broken = app.screen.query_one("#broken", Static)
        await until(pilot, lambda: all(name in str(broken.render()) for name in names), "the names")
        await until(pilot, lambda: broken.size.height >= 2 * len(names), "room for them, in two lines each")
        assert broken.virtual_size.height == broken.size.height


async def test_a_line_has_gaps_where_there_is_no_finite_number(tmp_path: Path) -> None:
    tag = "a/long/tag/" + "x" * 80 + "/end"
    nan, inf = float("nan"), float("inf")
    write(tmp_path, {tag: [1, 1, nan, nan, nan, nan, inf, -inf, 1, 1], "none": [nan, nan]}).close()
    app = MarioApp(charts=tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.screen.query(Comparison)) == 2, "the charts")
        long, none = app.screen.query(Comparison)
        await until(pilot, lambda: "●" in str(long.render()), "the line")
        assert re.fullmatch("─ …x+/end  1.00 ─+ 6 NaN/inf ─", rule(long))
        assert re.search("●\\S* {10,}●", str(long.render()))
        assert "no finite values yet" in str(none.render())


@pytest.mark.parametrize("cells", [6, 7])
@pytest.mark.parametrize("value", [0.0, 12.34, -5e12, 4e12, 3e40, -2e300, 1e-12, -3e-9, 123456.0, -99_999_999.0])
def test_a_label_is_never_cut(value: float, cells: int) -> None:
    text = fitting(value, cells)
    assert len(text) <= cells
    unit = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1)
    assert float(text.rstrip("kMG").replace(",", "")) * unit == pytest.approx(value, rel=0.06)


def test_a_large_number_is_written_as_a_power_of_ten() -> None:
    assert [number(value) for value in (1e40, -2.5e12, 999_999_999.0, 1e-7)] == [
        "1.00e40",
        "-2.50e12",
        "999,999,999",
        "1.0e-7",
    ]


async def test_square_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, {"loss[train]": [4.0], "x[/b]": [1.0]})
    app = MarioApp(charts=tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:

        def titles() -> list[str]:
            return [rule(chart).split(" ─")[0] for chart in app.screen.query(Comparison)]

        await until(pilot, lambda: titles() == ["─ loss[train]  4.00", "─ x[/b]  1.00"], "the charts")
        app.notify("smb [b1].nes [/b]")
        await pilot.pause()
        assert [notice.markup for notice in app._notifications] == [False]
