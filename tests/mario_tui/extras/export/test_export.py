"""`mario-tui export`: every point of a run or of event files, in files of other programs."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from engine.errors import UserError
from mario_tui.cli import run
from mario_tui.extras.event_files import MOST_POINTS
from tests.support.event_files import record, write_sessions
from tests.support.program import PATIENCE_S, PROGRAM, FinishedRun, run_program, wait_until

Row = tuple[str, str, int, float, float]


def write(folder: Path, values: dict[str, list[float]], *, repeated: int = 1) -> Path:
    """An event file with a point per value; the last event is `repeated`."""
    writer = EventFileWriter(str(folder))
    for tag, numbers in values.items():
        for step, number in enumerate(numbers):
            value = Summary.Value(tag=tag, simple_value=number)
            event = Event(wall_time=1000.5 + step, step=step, summary=Summary(value=[value]))
            writer.add_event(event)
    writer.close()
    (path,) = folder.glob("*tfevents*")
    data = event.SerializeToString()
    with path.open("ab") as file:
        file.write(record(data) * (repeated - 1))
    return path


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["run", "tag", "step", "wall_time", "value"]
    return [(name, tag, int(step), float(at), float(value)) for name, tag, step, at, value in rows[1:]]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.process
def test_a_run_is_written_with_all_its_scalars(finished_run: FinishedRun, tmp_path: Path) -> None:
    done = run_program("export", str(finished_run.run.path), cwd=tmp_path)
    rows = read(tmp_path / f"{finished_run.run.name}.csv")
    assert done.stderr == f"wrote {finished_run.run.name}.csv: {len(rows):,} points\n"
    accumulator = EventAccumulator(str(finished_run.run.path), {"scalars": 0}).Reload()
    assert sorted(row[1:] for row in rows) == sorted(
        (tag, point.step, point.wall_time, point.value)
        for tag in accumulator.Tags()["scalars"]
        for point in accumulator.Scalars(tag)
    )
    assert {name for name, *_ in rows} == {finished_run.run.name}


def test_no_point_is_thinned_and_subfolders_are_runs(tmp_path: Path) -> None:
    count = 2 * MOST_POINTS
    write(tmp_path / "logs" / "a", {"loss": [float(step) for step in range(count)]})
    write(tmp_path / "logs", {"loss": [math.nan, math.inf]})
    assert run(["export", "logs", "--output", "out.csv"]) == 0
    rows = read(tmp_path / "out.csv")
    assert [row for row in rows if row[0] == "a"] == [("a", "loss", i, 1000.5 + i, float(i)) for i in range(count)]
    assert [str(value) for name, *_, value in rows if name == "logs"] == ["nan", "inf"]


def test_json_lines_and_a_choice_of_tags_go_to_standard_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write(tmp_path / "logs", {"charts/return": [1.0], "charts/\x1b[2J": [math.nan], "loss": [2.0]})
    command = ["export", "logs", "--output", "-", "--format", "jsonl", "--tag", "charts/*", "--tag", "q*"]
    assert run(command) == 0
    out, err = capfdbinary.readouterr()
    first, second = (json.loads(line) for line in out.splitlines())
    assert first == {"run": "logs", "tag": "charts/return", "step": 0, "wall_time": 1000.5, "value": 1.0}
    assert (second["tag"], second["value"]) == ("charts/\\x1b[2J", None)
    assert err == b"mario-tui: --tag: no tag matches 'q*'\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--output", "old.csv"], "--output: old.csv exists; --force overwrites it"),
        (
            ["--output", "x.xls"],
            "--output must end in .csv, .jsonl, .parquet or .onnx, or have a --format, got 'x.xls'",
        ),
        (["--output", ".", "--format", "csv"], "--output must be a file, got the folder ."),
        (["--output", "no/x.csv"], "--output: no/x.csv: can't be written (No such file or directory)"),
        (["--output", "/dev/full", "--format", "csv"], "--output: /dev/full: can't be written (No space left on"),
        (["--output", "old.csv", "--force", "--tag", "x"], "--tag: no tag matches 'x'; there are tags such as loss"),
    ],
)
def test_what_is_refused_leaves_the_files_as_they_are(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    write(tmp_path / "logs", {"loss": [1.0]})
    (tmp_path / "old.csv").write_text("old")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError) as error:
        run(["export", "logs", *arguments])
    assert str(error.value).startswith(complaint)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "old.csv").read_text() == "old"


def test_force_overwrites_the_target_of_a_link(tmp_path: Path) -> None:
    write(tmp_path / "logs", {"loss": [1.0]})
    (tmp_path / "old.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("old.csv")
    assert run(["export", "logs", "--output", "link.csv", "--force"]) == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert len(read(tmp_path / "old.csv")) == 1
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "old.csv").stat().st_mode & 0o777 == 0o666 & ~umask


def test_points_before_the_damage_are_written_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "logs", {"loss": [1.0, 2.0]})
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(range(200, 250)))
    assert run(["export", "logs", "--output", "out.csv"]) == 1
    assert [value for *_, value in read(tmp_path / "out.csv")] == [1.0, 2.0]
    assert capsys.readouterr().err.startswith(
        f"mario-tui: logs/{path.name}: damaged at byte {whole:,}: wrong checksum; exported up to there\n"
    )


def test_a_flipped_bit_is_damage_and_no_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "logs", {"loss": [1.0, 2.0, 3.0]})
    content = bytearray(path.read_bytes())
    place = content.rindex(np.float32(2.0).tobytes()) + 3
    content[place] |= 0x7F  # infinite, if nobody looks at the checksum
    path.write_bytes(content)
    assert run(["export", "logs", "--output", "out.csv"]) == 1
    assert [value for *_, value in read(tmp_path / "out.csv")] == [1.0]
    assert "wrong checksum; exported up to there" in capsys.readouterr().err


def test_points_that_a_restart_has_discarded_are_left_out(tmp_path: Path) -> None:
    """As TensorBoard leaves them out: also those of earlier files, not those of later ones or of other folders."""
    logs = tmp_path / "logs"
    write_sessions(logs / "a")
    write(logs, {"loss": [5.0] * 10})
    assert run(["export", "logs", "--output", "out.csv"]) == 0
    rows = read(tmp_path / "out.csv")
    accumulator = EventAccumulator(str(logs / "a"), {"scalars": 0}).Reload()
    expected = [
        ("a", tag, point.step, point.wall_time, point.value)
        for tag in accumulator.Tags()["scalars"]
        for point in accumulator.Scalars(tag)
    ]
    assert sorted(row for row in rows if row[0] == "a") == sorted(expected)
    assert len([row for row in rows if row[0] == "logs"]) == 10


@pytest.mark.process
def test_a_killed_export_leaves_no_file(tmp_path: Path) -> None:
    write(tmp_path / "logs", {"loss": [1.0]}, repeated=1_000_000)
    process = subprocess.Popen([*PROGRAM, "export", "logs", "--output", "out.csv"], cwd=tmp_path)
    wait_until(
        lambda: any(each.stat().st_size > 1000 for each in tmp_path.glob(".out.csv.*")), "the first rows", by=process
    )
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert [each.name for each in tmp_path.iterdir() if "out.csv" in each.name] == []


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "logs", {"loss": [1.0]})
    monkeypatch.setattr("mario_tui.extras.export.scalars.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^--output: Parquet needs PyArrow; .*\[parquet\]'$"):
        run(["export", "logs", "--output", "x.parquet"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["mario-1-1"], "--format onnx needs ONNX; install it with: "),
        (["mario-1-1", "--tag", "charts/*"], "--tag can't be combined with --format onnx"),
        (["mario-1-1", "--output", "-"], "--output - can't be combined with --format onnx"),
        (["mario-1-1", "--output", "old.onnx"], "--output: old.onnx exists; --force overwrites it"),
        (["logs"], "logs: no such checkpoint; accepted: a policy file"),
    ],
)
def test_a_policy_that_cannot_be_exported_is_refused_before_a_process_starts(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "logs", {"loss": [1.0]})
    (tmp_path / "old.onnx").write_text("old")
    monkeypatch.setattr("mario_tui.extras.export.find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        run(["export", *arguments, "--format", "onnx"])
    assert str(error.value).startswith(complaint)


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("pyarrow") is None, reason="PyArrow is missing: .venv/bin/pip install -c constraints.txt -e '.[parquet]'"
)
def test_parquet_holds_the_same_rows_as_csv(tmp_path: Path) -> None:
    from pyarrow import parquet

    write(tmp_path / "logs", {"loss": [0.1, math.inf, 3.0], "ü": [1e-40]}, repeated=250_000)
    for name in ("x.csv", "x.parquet"):
        assert run(["export", "logs", "--output", name]) == 0
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.schema.names == ["run", "tag", "step", "wall_time", "value"]
    assert [str(kind) for kind in table.schema.types] == ["string", "string", "int64", "double", "double"]
    assert list(zip(*table.to_pydict().values(), strict=True)) == read(tmp_path / "x.csv")


@pytest.mark.parametrize("format", ["csv", "jsonl"])
@pytest.mark.process
def test_standard_output_that_can_not_take_it_is_one_line_or_none(format: str, tmp_path: Path) -> None:
    write(tmp_path / "logs", {"loss": [1.0] * 20_000})
    command = [*PROGRAM, "export", "logs", "--output", "-", "--format", format]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.stderr == "mario-tui: error: can't write the output: No space left on device\n"
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
