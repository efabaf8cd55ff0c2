"""Reading records without protobuf gives what protobuf reads."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from mario_tui.data.event_files import Columns
from mario_tui.data.event_files import scan as scan_module
from mario_tui.data.event_files.scan import Scanner, number, scalars_of
from tests.support.event_files import event, record, scalar

METADATA = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars", content=b"\x00\x00\x00\x00"))
Read = dict[str, list[tuple[int, str, str]]]


def shown(scalars: dict[str, Columns]) -> Read:
    return {
        tag: [(s, repr(t), repr(v)) for s, t, v in zip(each.steps, each.times, each.values, strict=True)]
        for tag, each in scalars.items()
    }


def read_by_protobuf(events: list[bytes]) -> Read:
    found: Read = {}
    for data in events:
        event = Event.FromString(data)
        for tag, value in scalars_of(event):
            found.setdefault(tag, []).append((event.step, repr(event.wall_time), repr(value)))
    return found


def read_by_scanner(events: list[bytes]) -> Read:
    scalars: dict[str, Columns] = {}
    content = b"".join(map(record, events))
    assert Scanner().scan(content, scalars, lambda _: None) == len(content)
    return shown(scalars)


def a_tensor(value: float, form: int) -> TensorProto:
    shape = TensorShapeProto()
    return [
        TensorProto(dtype=1, tensor_shape=shape, float_val=[value]),
        TensorProto(dtype=1, tensor_shape=shape, tensor_content=struct.pack("<f", value)),
        TensorProto(dtype=2, tensor_shape=shape, double_val=[value]),
        TensorProto(dtype=2, tensor_content=struct.pack("<d", value)),
        TensorProto(dtype=3, int_val=[7]),
        TensorProto(dtype=1, float_val=[value, value], tensor_shape=TensorShapeProto(dim=[{"size": 2}])),
    ][form]


@st.composite
def values(draw: Any) -> Summary.Value:
    value = draw(st.sampled_from([0.0, 1.0, -2.5]) | st.floats(width=32))
    kwargs: dict[str, Any] = {"tag": draw(st.sampled_from(["", "a", "loss", "\0\0\0\0\0\0\0\0", "é/x", "x" * 130]))}
    if draw(st.booleans()):
        kwargs["metadata"] = METADATA
    form = draw(st.integers(-1, 5))
    kwargs |= {"simple_value": value} if form < 0 else {"tensor": a_tensor(value, form)}
    return Summary.Value(**kwargs)


@st.composite
def serialised(draw: Any) -> bytes:
    event = Event(
        wall_time=draw(st.sampled_from([0.0, 1.0, 1.7e9]) | st.floats()),
        step=draw(st.sampled_from([0, 1, 127, 128, 2**40, 2**62, 2**63 - 1, -1]) | st.integers(-(2**63), 2**63 - 1)),
        summary=Summary(value=draw(st.lists(values(), min_size=1, max_size=2) | st.lists(values(), max_size=1))),
    )
    data: bytes = event.SerializeToString()
    return data + draw(st.sampled_from([b""] * 8 + [b"\x10\x05", b"\x09" + bytes(8), b"\x1a\x01x", b"\x2a\x00"]))


@settings(deadline=None)
@given(st.lists(serialised(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_every_event_is_read_as_protobuf_reads_it(events: list[bytes], shuffled: random.Random) -> None:
    events = [*events, *events]  # the second time there are templates
    shuffled.shuffle(events)
    assert read_by_scanner(events) == read_by_protobuf(events)


@settings(deadline=None)
@given(serialised(), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_a_record_with_other_bytes_is_read_as_protobuf_reads_it(data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    try:
        expected = read_by_protobuf([data, bytes(changed)])
    except Exception:
        with pytest.raises(ValueError, match="not a TensorBoard event"):
            read_by_scanner([data, bytes(changed)])
    else:
        assert read_by_scanner([data, bytes(changed)]) == expected


@pytest.mark.parametrize("form", [-1, 0, 1, 2, 3])
def test_protobuf_is_only_needed_for_the_first_of_a_series(form: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(x: float) -> Summary.Value:
        kind: dict[str, Any] = {"simple_value": x} if form < 0 else {"tensor": a_tensor(x, form)}
        return Summary.Value(tag="loss", metadata=METADATA, **kind)

    scanner, scalars = Scanner(), dict[str, Columns]()
    scanner.scan(event(value(0.5)), scalars, lambda _: None)
    monkeypatch.setattr(scan_module, "parsed", None)
    scanner.scan(event(value(1.5), step=300, wall_time=7.0), scalars, lambda _: None)
    assert shown(scalars) == {"loss": [(1, "1.0", "0.5"), (300, "7.0", "1.5")]}


def test_a_piece_is_read_up_to_the_last_whole_record() -> None:
    content = b"".join(scalar("loss", step, 1 + step) for step in range(20))
    for end in range(len(content)):
        scalars: dict[str, Columns] = {}
        used = Scanner().scan(content[:end], scalars, lambda _: None)
        assert end - len(content) // 20 < used <= end
        again = Scanner().scan(content[used:], scalars, lambda _: None)
        assert used + again == len(content)
        assert list(scalars["loss"].values) == list(range(20))


def test_templates_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_MOST_TEMPLATES", 10)
    scanner, scalars = Scanner(), dict[str, Columns]()
    scanner.scan(b"".join(scalar(f"{tag}", tag, step) for step in (1, 2) for tag in range(50)), scalars, lambda _: None)
    assert scanner._count == 10
    assert {tag: list(columns.values) for tag, columns in scalars.items()} == {f"{t}": [t, t] for t in range(50)}


def test_integers_are_numbers_too() -> None:
    for tensor in (TensorProto(dtype=3, int_val=[7]), TensorProto(dtype=9, tensor_content=struct.pack("<q", 7))):
        assert number(Summary.Value(tensor=tensor)) == 7
