"""Hyper-parameters and everything else that is not a scalar, as PyTorch and TensorFlow write it."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from mario_tui.extras.event_files import UNNAMED, EventFolder, Metric, Other, metrics_of, scalars_in
from mario_tui.extras.event_files.hparams import MOST_LETTERS, MOST_PARAMETERS
from mario_tui.extras.event_files.others import MOST_TEXT
from mario_tui.extras.event_files.scan import MOST_BYTES
from tests.support.event_files import event, read, record


def plugin(name: str, content: bytes = b"") -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


def strings(*texts: bytes) -> TensorProto:
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=len(texts))])
    return TensorProto(dtype=7, tensor_shape=shape, string_val=texts)


def hparams(**content: object) -> bytes:
    data = HParamsPluginData(**content)
    null = TensorProto(dtype=1, tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=0)]))
    metadata = plugin("hparams", data.SerializeToString())
    return event(Summary.Value(tag="_hparams_/x", metadata=metadata, tensor=null))


def folder_of(path: Path, *records: bytes) -> EventFolder:
    (path / "x.tfevents").write_bytes(b"".join(records))
    events = EventFolder(path)
    read(events)
    assert not events.broken
    return events


def test_hyper_parameters_of_pytorch_are_read(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_hparams(
            {"lr": 0.1, "layers": 3, "net": "conv", "bias": True}, {"hparam/loss": 0.5}, run_name="session"
        )
    events = EventFolder(tmp_path)
    read(events)
    assert list(events.sessions) == ["session"]
    session = events.sessions["session"]
    assert session.parameters == {"bias": True, "layers": 3.0, "lr": 0.1, "net": "conv"}
    assert session.status == "success"
    assert metrics_of(events.sessions, "session") == [Metric("hparam/loss")]
    metric = events.tags["hparam/loss"][Metric("hparam/loss").inside("session")]
    assert list(metric.values) == [0.5]
    assert events.others == {}


def test_hyper_parameters_of_tensorboards_own_functions_are_read(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import summary_v2 as api
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    experiment = api.hparams_config_pb(
        hparams=[api.HParam("lr", api.RealInterval(0.0, 1.0))],
        metrics=[api.Metric("loss", group="train"), api.Metric("acc")],
    )
    for folder, summary in {
        ".": experiment,
        "a": api.hparams_pb({"lr": 0.25, "on": False}, start_time_secs=5),
        "b/c": api.hparams_pb({"lr": 0.5, "name": "x\x1b]0;y"}, start_time_secs=6),
    }.items():
        writer = EventFileWriter(str(tmp_path / folder))
        writer.add_event(Event(step=0, summary=summary))
        writer.close()
    events = EventFolder(tmp_path)
    read(events)
    assert {inside: session.parameters for inside, session in events.sessions.items()} == {
        ".": {},
        "a": {"lr": 0.25, "on": False},
        "b/c": {"lr": 0.5, "name": "x\x1b]0;y"},
    }
    assert (events.sessions["a"].status, events.sessions["a"].started) == ("running", 5.0)
    assert metrics_of(events.sessions, "b/c") == [Metric("loss", "train"), Metric("acc")]
    assert Metric("loss", "train").inside("b/c") == "b/c/train"


def test_a_session_that_ends_keeps_its_parameters(tmp_path: Path) -> None:
    start = hparams(session_start_info={"hparams": {"lr": {"number_value": 1}}, "start_time_secs": 3})
    events = folder_of(tmp_path, start)
    with (tmp_path / "x.tfevents").open("ab") as file:
        file.write(hparams(session_end_info={"status": 2, "end_time_secs": 9}))
    read(events)
    session = events.sessions["."]
    assert (session.parameters, session.status, session.started, session.ended) == ({"lr": 1.0}, "failure", 3.0, 9.0)


def test_hyper_parameters_are_bounded(tmp_path: Path) -> None:
    many = {f"{index}{'x' * 1000}": {"string_value": "y" * 500} for index in range(3 * MOST_PARAMETERS)}
    broken = event(Summary.Value(tag="_hparams_/x", metadata=plugin("hparams", b"\xff\xff")))
    odd = hparams(session_start_info={"hparams": {"list": {"list_value": {}}, "null": {"null_value": 0}}})
    events = folder_of(tmp_path, broken, odd, hparams(session_start_info={"hparams": many}))
    parameters = events.sessions["."].parameters
    assert len(parameters) == MOST_PARAMETERS
    assert {len(name) for name in parameters} == {len(str(value)) for value in parameters.values()} == {MOST_LETTERS}


def test_what_pytorch_writes_beside_scalars_is_named(tmp_path: Path) -> None:
    import torch
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "train")) as writer:
        for step in range(3):
            writer.add_histogram("weights", torch.arange(10.0), step)
            writer.add_text("notes", f"step {step}", step)
        writer.add_image("picture", torch.zeros(3, 20, 30), 4)
        with warnings.catch_warnings(action="ignore"):
            writer.add_audio("sound", torch.zeros(1, 100), 4)
        writer.add_pr_curve("curve", torch.tensor([0, 1, 1]), torch.tensor([0.1, 0.9, 0.4]), 4)
        writer.add_graph(torch.nn.Linear(2, 1), torch.zeros(1, 2))
    events = EventFolder(tmp_path)
    read(events)
    assert {tag: inside["train"] for tag, inside in events.others.items()} == {
        "weights": Other("histogram", 3, 2),
        "notes/text_summary": Other("text", 3, 2, text="step 2"),
        "picture": Other("image", 1, 4, width=30, height=20),
        "sound": Other("audio", 1, 4),
        "curve": Other("PR curve", 1, 4),
        "graph": Other("graph", 1, 0),
    }
    assert events.tags == {}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (
            [Summary.Value(tensor=strings(b"30", b"20", b"png"), metadata=plugin("images"))],
            Other("image", 1, 1, width=30, height=20),
        ),
        ([Summary.Value(tensor=strings(b"x", b"20"), metadata=plugin("images"))], Other("image", 1, 1)),
        ([Summary.Value(image={"width": -1, "height": 5})], Other("image", 1, 1)),
        ([Summary.Value(tensor=strings(b"a", b"\xff"), metadata=plugin("text"))], Other("text", 1, 1, "a\n\ufffd")),
        (
            [Summary.Value(tensor=strings(b"1"), metadata=plugin("text")), Summary.Value(tensor=strings(b"2"))],
            Other("text", 2, 1, "2"),
        ),
        (
            [Summary.Value(tensor=strings(b"a", *["é".encode() * 3000] * 3), metadata=plugin("text"))],
            Other("text", 1, 1, "a\n" + "é" * (MOST_TEXT - 2)),
        ),
        ([Summary.Value(tensor=strings(b"12"))], Other(UNNAMED, 1, 1)),
        ([Summary.Value(histo={"num": 1})], Other("histogram", 1, 1)),
        ([Summary.Value(tensor=TensorProto(dtype=1), metadata=plugin("histograms"))], Other("histogram", 1, 1)),
    ],
)
def test_summaries_are_named_by_plugin_or_field(values: list[Summary.Value], found: Other, tmp_path: Path) -> None:
    assert folder_of(tmp_path, *map(event, values)).others == {"": {".": found}}


def test_a_long_record_is_named_and_its_scalars_are_read(tmp_path: Path) -> None:
    png = b"x" * (2 * MOST_BYTES)
    images = strings(b"640", b"480", png, png)
    events = folder_of(
        tmp_path,
        event(Summary.Value(tag="old", image={"width": 30, "height": 20, "encoded_image_string": png}), step=7),
        event(Summary.Value(tag="new", tensor=images, metadata=plugin("images")), step=2**40),
        event(Summary.Value(tag="sound", audio={"encoded_audio_string": png}), Summary.Value(tag="last", histo={})),
        record(Event(graph_def=png).SerializeToString()),
        event(
            *(Summary.Value(tag=f"loss/{n}", simple_value=n) for n in range(500)),
            Summary.Value(tag="old", image={"encoded_image_string": png, "width": 30, "height": 20}),
            step=8,
        ),
        event(Summary.Value(tag="loss", simple_value=2.5)),
    )
    assert {tag: inside["."] for tag, inside in events.others.items()} == {
        "old": Other("image", 2, 8, width=30, height=20),
        "new": Other("image", 1, 2**40, width=640, height=480),
        "sound": Other("audio", 1, 1),
        "last": Other("histogram", 1, 1),
        "graph": Other("graph", 1, 0),
    }
    assert list(events.tags["loss"]["."].values) == [2.5]
    assert [list(events.tags[f"loss/{n}"]["."].values) for n in range(500)] == [[n] for n in range(500)]
    (file,) = tmp_path.iterdir()
    assert len(list(scalars_in(file))) == 501
