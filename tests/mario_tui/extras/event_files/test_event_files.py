"""Event files of TensorBoard, as others write them, and the screen that shows a folder of them."""

from __future__ import annotations

import contextlib
import errno
import gzip
import itertools
import os
import random
import re
import struct
import threading
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import RecordWriter
from textual.widgets import Static

from engine.errors import UserError
from engine.protocol.messages import Episode, Evaluation
from engine.sinks import files as sink
from engine.sinks.files import TensorBoard
from engine.sinks.sink import EPISODE_POINTS
from mario_tui.app import MarioApp
from mario_tui.cli import run
from mario_tui.commands.attach import viewer_of
from mario_tui.data.format import fitting, moment, number, number_or_whole, short
from mario_tui.extras import event_files
from mario_tui.extras.event_files import EventFolder, problem_of, scalars_in
from mario_tui.extras.event_files import folder as event_folder
from mario_tui.extras.event_files.charts import ChartsScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.widgets.charts.comparison import Comparison
from tests.support.app import until
from tests.support.event_files import read, restart, scalar, write_sessions
from tests.support.program import PATIENCE_S, FinishedRun, Terminal, run_program, wait_until
from tests.support.sinks import tensorboard


def write(folder: Path, values: dict[str, list[float]], first: int = 0) -> EventFileWriter:
    writer = EventFileWriter(str(folder))
    for tag, numbers in values.items():
        for step, each in enumerate(numbers, first):
            value = Summary.Value(tag=tag, simple_value=each)
            writer.add_event(Event(wall_time=1000 + step, step=step, summary=Summary(value=[value])))
    writer.flush()
    return writer


def write_file(path: Path, records: list[bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(records))


def values_of(events: EventFolder, tag: str, inside: str = ".") -> list[float]:
    return list(events.tags[tag][inside].values)


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
    history = events.tags["loss"]["."]
    assert (list(history.steps), list(history.values)) == ([7], [2.5])


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
        seen.append(len(events.tags["loss"]["."]) if events.tags else 0)
    assert seen == sorted(seen)
    assert values_of(events, "loss") == [1, 2, 3]
    assert not read(events)
    assert events.broken == {}


def test_a_run_writes_means_of_more_and_more_episodes(tmp_path: Path) -> None:
    """However many end: twice as many episodes take `EPISODE_POINTS` points more, not twice as many."""
    scalars, total = tensorboard(tmp_path), 17 * EPISODE_POINTS
    for episode in range(1, total + 1):
        scalars.episode(
            Episode(
                actor=0, lane=0, env_steps=10 * episode, episode=episode, episode_return=float(episode), length=10,
                success=episode % 4 == 0, epsilon=0.1,
            )
        )  # fmt: skip
    scalars.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size < 200 * (4 * EPISODE_POINTS + EPISODE_POINTS // 4)
    scalars_read = list(scalars_in(file))
    returns = [(step, value) for tag, step, _, value in scalars_read if tag == "charts/episodic_return"]
    assert returns[:EPISODE_POINTS] == [(10 * episode, episode) for episode in range(1, EPISODE_POINTS + 1)]
    steps = [step for step, _ in returns]
    counts = [(step - before) / 10 for before, step in itertools.pairwise([0, *steps])]
    assert sorted(set(counts)) == [1, 2, 4, 8, 16] and counts == sorted(counts)
    for (step, value), count in zip(returns, counts, strict=True):
        assert value == pytest.approx(step / 10 - (count - 1) / 2)
    assert steps[-1] == 10 * total
    clears = [value for tag, _, _, value in scalars_read if tag == "charts/episodic_clear"]
    assert set(clears[2 * EPISODE_POINTS :]) == {0.25}


def test_episodes_that_wait_for_their_point_are_written_at_the_end(tmp_path: Path) -> None:
    scalars = tensorboard(tmp_path)
    for episode in range(1, EPISODE_POINTS + 2):
        scalars.episode(
            Episode(
                actor=0, lane=0, env_steps=episode, episode=episode, episode_return=0.0, length=1, success=False,
                epsilon=0.1,
            )
        )  # fmt: skip
    scalars.close()
    (file,) = tmp_path.iterdir()
    assert max(step for _, step, _, _ in scalars_in(file)) == EPISODE_POINTS + 1


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
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path / "logs"))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, ChartsScreen)

        def tags() -> list[str | None]:
            return [chart.name for chart in screen.query(Comparison)]

        await until(pilot, lambda: tags() == ["acc", "loss"], "the charts")
        loss = screen.query(Comparison).last()
        await until(pilot, lambda: rule(loss).startswith("─ loss  ●1.00 ▲– ─"), "the last values")
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


@pytest.mark.process
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
        assert viewer_of(path) is event_files
        events = EventFolder(path)
        assert read(events)
        assert [list(inside) for inside in events.tags.values()] == [["."]]


@pytest.mark.process
def test_a_file_that_is_no_event_file_is_refused_in_one_line(tmp_path: Path) -> None:
    content = scalar("loss", 1.0)
    bad = {
        "noise.tfevents": (b"x" * 100, "not a TensorBoard event file"),
        "no.tfevents.event": (b"\x04" + bytes(11) + b"\xff" * 8, "not a TensorBoard event"),
        "tfevents.gz": (gzip.compress(content, mtime=0), "compressed with gzip; decompress it first"),
        "empty": (b"", "not a TensorBoard event file"),
        "half": (content[:20], "not a TensorBoard event file"),
        "nameless": (content, "not a TensorBoard event file"),  # without a file version anything could be read so
        "secret.tfevents": (content, "Permission denied"),
    }
    for name, (data, _) in bad.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "secret.tfevents").chmod(0)
    if os.access(tmp_path / "secret.tfevents", os.R_OK):  # as root
        del bad["secret.tfevents"]
    for name, (_, why) in bad.items():
        with pytest.raises(UserError, match=rf"{re.escape(name)}: {re.escape(why)}"):
            run(["attach", str(tmp_path / name)])
    done = run_program("attach", "tfevents.gz", cwd=tmp_path, check=2)
    assert done.stderr == "mario-tui: error: tfevents.gz: compressed with gzip; decompress it first\n"


@pytest.mark.long
@pytest.mark.process
def test_a_file_that_was_just_begun_is_waited_for(tmp_path: Path) -> None:
    """Attached to by a relative path through a link, while it is empty and while its last record is half written."""
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "events.out.tfevents.1.x"
    file.touch()
    (tmp_path / "latest.tfevents").symlink_to("logs/events.out.tfevents.1.x")
    terminal = Terminal("attach", "latest.tfevents", cwd=tmp_path, columns=120, rows=40)
    terminal.wait_for("latest.tfevents", "none yet")
    content = b"".join(scalar("loss", step, step) for step in range(1, 4))
    file.write_bytes(content[:-5])
    terminal.wait_for("loss  2.00")
    file.write_bytes(content)
    terminal.wait_for("loss  3.00")
    file.write_bytes(scalar("accuracy", 0.5))
    terminal.wait_for("accuracy  0.50", "1 scalar ")
    terminal.send("q")
    assert terminal.wait() == 0


@pytest.mark.parametrize("longer", [False, True])
def test_a_replaced_file_is_read_again_with_its_neighbours(longer: bool, tmp_path: Path) -> None:
    for name, tag in (("a/1", "loss"), ("a/2", "loss"), ("b/1", "loss")):
        write_file(tmp_path / f"{name}.tfevents", [scalar(tag, step, step, 5.0) for step in (1, 2, 3)])
    events = EventFolder(tmp_path)
    read(events)
    new = [scalar("acc", step, step, 6.0) for step in range(9 if longer else 1)]
    write_file(tmp_path / "a" / "1.tfevents", new)
    assert read(events)
    assert values_of(events, "acc", "a") == list(range(len(new)))
    assert values_of(events, "loss", "a") == values_of(events, "loss", "b") == [1, 2, 3]
    assert not read(events)


def test_files_of_a_subfolder_continue_each_other(tmp_path: Path) -> None:
    """In the order of their names, however large they are."""
    for number_, steps_ in ((1, range(5_000)), (2, range(5_000, 5_010)), (3, range(5_010, 9_000))):
        write_file(tmp_path / f"tfevents.{number_}", [scalar("loss", step, step) for step in steps_])
    events = EventFolder(tmp_path)
    read(events)
    history = events.tags["loss"]["."]
    assert history.count == 9_000
    assert list(history.steps) == sorted(history.steps)
    assert (history.steps[-1], history.values[-1]) == (8_999, 8_999)


@pytest.mark.parametrize("piece", [2**17, 2**11])
def test_points_that_a_restart_has_discarded_are_dropped(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they were read long before the restart or in the same piece of a file: as TensorBoard does."""
    for name in ("_FIRST_PIECE", "_PIECE", "_FIRST_BATCH"):
        monkeypatch.setattr(event_folder, name, piece)
    write_sessions(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.tfevents").write_bytes(b"".join(scalar("a", step, step) for step in range(100)))
    events = EventFolder(tmp_path)
    read(events)
    accumulator = EventAccumulator(str(tmp_path / "a"), {"scalars": 0}).Reload()
    for tag in "ab":
        history = events.tags[tag]["a"]
        expected = [(point.step, point.value) for point in accumulator.Scalars(tag)]
        assert list(zip(history.steps, history.values, strict=True)) == expected
        assert history.count == len(expected) and history.ordered
    assert len(events.tags["a"]["b"]) == 100
    with (tmp_path / "a" / "events.out.tfevents.2").open("ab") as file:
        file.write(restart(0))
    read(events)
    assert {tag: list(inside) for tag, inside in events.tags.items()} == {"a": ["b"]}


def test_a_run_that_is_resumed_has_one_curve_in_tensorboard(tmp_path: Path) -> None:
    """What was written after the checkpoint is discarded, whether the host or only its runner was lost."""

    def evaluate(scalars: TensorBoard, *steps: int) -> None:
        for step in steps:
            scalars.evaluation(
                Evaluation(
                    env_steps=step, episodes=1, clears=0, mean_return=step + 0.5, best=False,
                    seconds=1.0,
                )
            )  # fmt: skip

    def finish(scalars: TensorBoard, *steps: int) -> None:
        for step in steps:
            scalars.episode(
                Episode(
                    actor=0, lane=0, env_steps=step, episode=1, episode_return=step, length=1, success=False,
                    epsilon=0.1,
                )
            )  # fmt: skip

    first = tensorboard(tmp_path)
    evaluate(first, 100, 200, 300)
    finish(first, *range(1, EPISODE_POINTS + 2))  # the last one waits for its point
    first.restart(200)
    evaluate(first, 250, 350)
    first.close()
    second = tensorboard(tmp_path)
    second.restart(250)
    evaluate(second, 400)
    second.close()
    accumulator = EventAccumulator(str(tmp_path), {"scalars": 0}).Reload()
    assert [(point.step, point.value) for point in accumulator.Scalars("eval/mean_return")] == [
        (step, step + 0.5) for step in (100, 200, 250, 400)
    ]
    assert [point.step for point in accumulator.Scalars("charts/episodic_return")] == list(range(1, 201))


def test_data_that_arrive_after_zeros_are_read(tmp_path: Path) -> None:
    """On a network file system a file may have its length before its data, at its begin or later."""
    content = [scalar("loss", step, step) for step in range(300)]
    file = tmp_path / "events.out.tfevents.1"
    events = EventFolder(tmp_path)
    stamp = (1_000_000_000, 1_000_000_000)
    size = len(b"".join(content))
    file.write_bytes(bytes(size))
    os.utime(file, stamp)
    read(events)
    assert events.broken == {file: "not a TensorBoard event file yet: it contains only zeros"}
    assert problem_of(file) == ""
    for count in (1, 100, 300):
        file.write_bytes(b"".join(content[:count]).ljust(size, b"\0"))
        os.utime(file, stamp)  # the same size, and the same time of change
        read(events)
        assert values_of(events, "loss") == list(range(count))
        assert events.broken == {}


def test_a_damaged_file_is_read_on_once_it_is_mended(tmp_path: Path) -> None:
    content = [scalar("loss", step, step) for step in range(3)]
    file = tmp_path / "events.out.tfevents.1"
    bad = bytearray(content[1])
    bad[-6] ^= 1
    file.write_bytes(content[0] + bytes(bad) + content[2])
    events = EventFolder(tmp_path)
    read(events)
    assert events.broken == {file: f"damaged at byte {len(content[0]):,}: wrong checksum"}
    assert values_of(events, "loss") == [0]
    file.write_bytes(b"".join(content))
    read(events)
    assert values_of(events, "loss") == [0, 1, 2] and events.broken == {}


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    """As TensorBoard's documentation recommends for comparing runs; a link back or to a known folder adds nothing."""
    for name in ("elsewhere/run1/train", "elsewhere/run2", "logs/own"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.tfevents").write_bytes(scalar("loss", 1.0))
    (tmp_path / "logs" / "a link").symlink_to("../elsewhere/run1")
    (tmp_path / "logs" / "latest").symlink_to("own")
    (tmp_path / "logs" / "another").symlink_to(tmp_path / "elsewhere" / "run2")
    (tmp_path / "elsewhere" / "run1" / "back").symlink_to(tmp_path / "logs")
    (tmp_path / "elsewhere" / "run1" / "round").symlink_to(".")
    (tmp_path / "logs" / "nowhere").symlink_to("nothing")
    for path in (tmp_path / "logs", tmp_path / "logs" / "another"):
        events = EventFolder(path)
        read(events)
        assert events.broken == {}
        assert sorted(events.tags["loss"]) == (["a link/train", "another", "own"] if path.name == "logs" else ["."])


def test_every_subfolder_is_seen_before_one_is_read_to_its_end(tmp_path: Path) -> None:
    for folder in range(20):
        count = 20_000 if folder == 0 else 2_000
        write_file(
            tmp_path / f"{folder:02d}" / "x.tfevents", [scalar(f"tag{folder}", step, step) for step in range(count)]
        )
    events, seen = EventFolder(tmp_path), list[float]()
    news = events.collect()
    events.take_in(news)
    assert len(events.tags) == 20
    while news.more:
        assert events.loading is not None
        seen.append(events.loading)
        news = events.collect()
        events.take_in(news)
    assert seen == sorted(seen) and seen[0] > 0 and seen[-1] < 1
    assert events.loading is None
    assert events.tags["tag0"]["00"].count == 20_000


async def test_every_broken_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"loss": [1]}).close()
    names = [f"{folder}/events.out.tfevents.{'0' * 60}.{folder}" for folder in ("one", "two", "three")]
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x" * 100)
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        broken = app.screen.query_one("#broken", Static)
        await until(pilot, lambda: all(name in str(broken.render()) for name in names), "the names")
        await until(pilot, lambda: broken.size.height >= 2 * len(names), "room for them, in two lines each")
        assert broken.virtual_size.height == broken.size.height


async def test_a_line_has_gaps_where_there_is_no_finite_number(tmp_path: Path) -> None:
    tag = "a/long/tag/" + "x" * 80 + "/end"
    nan, inf = float("nan"), float("inf")
    write(tmp_path, {tag: [1, 1, nan, nan, nan, nan, inf, -inf, 1, 1], "none": [nan, nan]}).close()
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path))
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
    texts = {1e40: "1.00e40", -2.5e12: "-2.50e12", 1e9: "1.00e9", 999_999_999.0: "999,999,999", 1e-7: "1.0e-7"}
    assert {value: number(value) for value in texts} == texts
    assert [number_or_whole(value) for value in (1e9, -999_999_999, float("nan"))] == ["1.00e9", "-999999999", "–"]
    counts = {999: "999", 1000: "1.0k", 123_456: "123k", -1e6: "-1.0M", 1.5e9: "1.5G", 2e12: "2e12"}
    assert {value: short(value) for value in counts} == counts
    assert short(float("inf")) == short(10**400) == moment(1e300) == moment(float("nan")) == "–"


async def test_square_brackets_are_shown_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, {"loss[train]": [4.0], "x[/b]": [1.0]})
    app = MarioApp(open_screen=lambda: ChartsScreen(tmp_path))
    async with app.run_test(size=(100, 30)) as pilot:

        def titles() -> list[str]:
            return [rule(chart).split(" ─")[0] for chart in app.screen.query(Comparison)]

        await until(pilot, lambda: titles() == ["─ loss[train]  4.00", "─ x[/b]  1.00"], "the charts")
        app.notify("smb [b1].nes [/b]")
        await pilot.pause()
        assert [notice.markup for notice in app._notifications] == [False]


def test_a_disk_that_does_not_answer_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, write = threading.Event(), RecordWriter.write

    def write_when_the_disk_answers(writer: RecordWriter, record: bytes) -> None:
        answers.wait()
        write(writer, record)

    def write_points() -> None:
        for step in range(1000):
            scalars.evaluation(
                Evaluation(
                    env_steps=step, episodes=2, clears=1, mean_return=0.0, best=False, seconds=1.0,
                )
            )  # fmt: skip
        with contextlib.suppress(TimeoutError):
            scalars.close()

    def written() -> list[int]:
        (file,) = tmp_path.iterdir()
        return [step for tag, step, _, _ in scalars_in(file) if tag == "eval/clear_rate"]

    monkeypatch.setattr(RecordWriter, "write", write_when_the_disk_answers)
    monkeypatch.setattr(sink, "_CLOSE_S", 0.1)
    scalars = tensorboard(tmp_path)
    host = threading.Thread(target=write_points, daemon=True)
    host.start()
    host.join(PATIENCE_S)
    assert not host.is_alive() and written() == []
    answers.set()
    wait_until(lambda: len(written()) == 1000, "what waited for the disk")


def test_a_file_that_could_not_be_opened_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"loss": [1.0, 2.0]}).close()
    events = EventFolder(tmp_path)

    def refuse(path: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(event_folder, "opened", refuse)
        read(events)
    assert list(events.broken.values()) == ["Too many open files"]
    read(events)
    assert values_of(events, "loss") == [1, 2] and events.broken == {}
