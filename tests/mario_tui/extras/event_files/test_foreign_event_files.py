"""Event files that nobody wrote in good faith: each is named, or shown as far as it goes, and none takes the screen
down."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from textual.widgets import Static

from engine.config.game import game_of, games
from engine.protocol.messages import Evaluation
from mario_tui.app import MarioApp
from mario_tui.data import format as written
from mario_tui.data.format import judged, reached
from mario_tui.extras.event_files import EventFolder, event_files, files, folder, problem_of, scan
from mario_tui.extras.event_files.charts import ChartsScreen
from mario_tui.widgets.charts.axes import AXES, ChartView
from mario_tui.widgets.charts.comparison import Comparison, Series, reach_of
from tests.support.app import until
from tests.support.event_files import event, read, record, scalar
from tests.support.program import run_program

GIB = 2**30
LARGEST = 1.7e308


def tensor(sizes: list[int], **content: object) -> bytes:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])
    return event(Summary.Value(tag="tensor", tensor=TensorProto(dtype=1, tensor_shape=shape, **content)))


def sparse(path: Path, head: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (lambda path: os.mkfifo(path), "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), ""),
    "nowhere": (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    "itself": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "noise": (lambda path: path.write_bytes(b"x" * 100), "not a TensorBoard event file"),
    "zeros": (lambda path: sparse(path, b"", 6 * GIB), "not a TensorBoard event file"),
    "no event": (lambda path: path.write_bytes(record(b"\xff" * 30)), "not a TensorBoard event"),
    "endless nesting": (lambda path: path.write_bytes(record(b"\x2b" * 100_000)), "not a TensorBoard event"),
    "too long": (lambda path: path.write_bytes(record(b"", 2**60)), "not a TensorBoard event file"),
}
POOR = {
    "nothing": lambda path: path.write_bytes(b""),
    "a claim": lambda path: path.write_bytes(record(bytes(3000), GIB)),
    "zeros at the end": lambda path: sparse(path, event(), 6 * GIB),
    "half a float": lambda path: path.write_bytes(tensor([1], tensor_content=b"ab")),
    "many sides": lambda path: path.write_bytes(tensor([2**62] * 80_000, float_val=[1.0])),
    "negative sides": lambda path: path.write_bytes(tensor([-1, -1], float_val=[1.0])),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_and_the_others_are_read(kind: str, tmp_path: Path) -> None:
    make, why = BAD[kind]
    bad, good = tmp_path / "1.tfevents", tmp_path / "2.tfevents"
    make(bad)
    good.write_bytes(scalar("loss", 2.5))
    events = EventFolder(tmp_path)
    assert events.take_in(events.collect())
    assert list(events.tags) == ["loss"]
    assert list(events.broken) == [bad]
    assert events.broken[bad].startswith(why)
    assert not events.take_in(events.collect())  # nor is it told again


@pytest.mark.parametrize("kind", POOR)
def test_what_holds_no_scalar_is_no_hindrance(kind: str, tmp_path: Path) -> None:
    POOR[kind](tmp_path / "1.tfevents")
    (tmp_path / "2.tfevents").write_bytes(scalar("loss", 2.5))
    events = EventFolder(tmp_path)
    assert events.take_in(events.collect())
    assert (list(events.tags), events.broken) == (["loss"], {})


@pytest.mark.parametrize("content", [record(b"", GIB)[:12], scalar("loss", 1.0)])
def test_where_zeros_replace_data_the_file_is_damaged(content: bytes, tmp_path: Path) -> None:
    """Also in a record of a gibibyte, of which nothing else is read than its checksum."""
    file = tmp_path / "1.tfevents"
    sparse(file, content, 2 * GIB)
    with file.open("r+b") as stream:
        stream.seek(len(content) + 1000)
        stream.write(scalar("loss", 2.0))
    events = EventFolder(tmp_path)
    read(events)
    assert events.broken[file].endswith("wrong checksum")


@pytest.mark.parametrize("kind", ["fifo", "device", "itself"])
@pytest.mark.process
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    BAD[kind][0](tmp_path / "x")
    assert problem_of(tmp_path / "x")
    done = run_program("attach", "x", cwd=tmp_path, check=2)
    assert len(done.stderr.splitlines()) == 1


def test_folders_without_end_are_left_at_some_depth(tmp_path: Path) -> None:
    (tmp_path / "0.tfevents").write_bytes(scalar("loss", 1.0))
    inner = tmp_path
    for _ in range(2 * files._MAX_DEPTH):
        inner /= "d"
        inner.mkdir()
        (inner / "x.tfevents").touch()
    (tmp_path / "d" / "back").symlink_to(tmp_path)
    found = event_files(tmp_path)
    assert found[0].name == "0.tfevents"
    assert len(found) == 1 + files._MAX_DEPTH


def test_links_between_many_folders_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 20 folders links to all of them; and a link to a large tree is followed only so far."""
    for inside in range(20):
        (tmp_path / "logs" / f"{inside}").mkdir(parents=True)
        (tmp_path / "logs" / f"{inside}" / "x.tfevents").touch()
        for other in range(20):
            (tmp_path / "logs" / f"{inside}" / f"to{other}").symlink_to(f"../{other}")
    assert len(event_files(tmp_path / "logs")) == 20
    monkeypatch.setattr(files, "MOST_LINKED", 30)
    for number in range(100):
        (tmp_path / "large" / f"{number}").mkdir(parents=True)
        (tmp_path / "large" / f"{number}" / "x.tfevents").touch()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "x.tfevents").touch()
    (tmp_path / "few" / "link").symlink_to("../large")
    assert len(event_files(tmp_path / "few")) <= 31


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many scalars there are: they are read in portions, and kept are so many tags and so many points."""
    monkeypatch.setattr(folder, "_FIRST_BATCH", 2**14)
    monkeypatch.setattr(folder, "_BATCH", 2**15)
    monkeypatch.setattr(folder, "MOST_SERIES", 30)
    monkeypatch.setattr(folder, "MOST_IN_ALL", 500)
    content = b"".join(scalar(f"{'long' * 500}{tag}", tag, step) for step in range(40) for tag in range(40))
    (tmp_path / "x.tfevents").write_bytes(content)
    events, portions, seen = EventFolder(tmp_path), 0, 0
    while events.take_in(news := events.collect()):
        portions, seen = portions + 1, seen + news.scalars
        kept = [history for inside in events.tags.values() for history in inside.values()]
        assert len(kept) <= 30
        assert sum(map(len, kept)) <= 500
    assert len(content) / 2**17 <= portions
    assert seen == 30 * 40
    assert events.left_out
    assert {len(tag) for tag in events.tags} == {scan.MOST_LETTERS}


async def test_the_screen_shows_what_numbers_can_be(tmp_path: Path) -> None:
    numbers = [float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-45, 0.0]
    steps, times = [0, 2**63 - 1, -(2**63), 1], [float("nan"), float("inf"), LARGEST, -LARGEST, 0.0, 1.0]
    content = [scalar(f"a{i}", v, s, t) for i, v in enumerate(numbers) for s in steps for t in times]
    content += [scalar("all", v, s, t) for v in numbers for s in steps for t in times]
    (tmp_path / "x.tfevents").write_bytes(b"".join(content))
    for kind, (make, _) in BAD.items():
        make(tmp_path / f"{kind}[b.tfevents")
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path))
    async with app.run_test(size=(200, 60)) as pilot:
        await until(pilot, lambda: len(app.screen.query(Comparison)) == 8, "the charts")
        broken = app.screen.query_one("#broken", Static)
        await until(
            pilot, lambda: str(broken.render()).count("[b.tfevents: ") == len(BAD), "what is wrong with the files"
        )
        await pilot.press("t")
        await pilot.pause()
        assert app.return_code is None and app.is_running


ANY = st.floats() | st.integers() | st.sampled_from([10**400, -(10**400), LARGEST, -LARGEST, 5e-324, 2.0**63])


@given(ANY)
def test_every_number_has_a_short_text(value: float) -> None:
    for text in (written.number(value), written.short(value), written.duration(value), written.number_or_whole(value)):
        assert 0 < len(text) <= 14
    assert len(written.fitting(value, 7)) <= 7
    assert len(written.moment(value)) <= 11
    for game in games():
        outcome = game_of(game).outcome
        assert len(reached(outcome, [value])) <= 20
        found = Evaluation(
            env_steps=1, episodes=1, clears=1, mean_return=value, best=False, seconds=1, results=(value,)
        )
        assert len(judged(outcome, found)) <= 52


NASTY = [
    [math.nan], [math.inf, -math.inf], [0.0], [LARGEST, -LARGEST], [5e-324, 0.0], [LARGEST, 5e-324, -1.0, math.nan],
    [1e6, 1e6 + 1e-9], [-1e-300, 1e-300], [1.0] * 3, [1e300, 1e300 * (1 + 1e-15)],
]  # fmt: skip


async def test_every_line_can_be_drawn() -> None:
    app, view = MarioApp(), ChartView()
    async with app.run_test(size=(80, 24)) as pilot:
        chart = Comparison("x", view)
        await app.screen.mount(chart)
        chart.styles.height = 12
        await until(pilot, lambda: chart.body[1] > 8, "its size")
        for values in NASTY:
            for xs in ([1.0, 2.0, 3.0, 4.0], [0.0, 5e-324, 1.0, LARGEST], [-LARGEST, 0.0, 1.0, LARGEST], [7.0] * 4):
                for view.axis in AXES:
                    chart.logarithmic = not chart.logarithmic
                    series = Series("x", 0, xs[: len(values)], xs[: len(values)], values)
                    view.reach = reach_of([series], view.axis)
                    chart.show([series])
                    chart.repaint()
                    assert all(len(line) == 80 for line in str(chart.render()).splitlines())
