"""Reading records without protobuf gives what protobuf reads."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.util.tensor_util import make_ndarray

from mario_tui.extras.event_files import Columns
from mario_tui.extras.event_files import scan as scan_module
from mario_tui.extras.event_files.scan import Scanner, number, scalars_of
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


def read_by_scanner(events: list[bytes]) -> Read | None:
    """What the scanner reads; None if it does not read everything."""
    scalars: dict[str, Columns] = {}
    content = b"".join(map(record, events))
    whole = Scanner().scan(content, scalars, lambda _: None) == len(content)
    return shown(scalars) if whole else None


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


@given(st.lists(serialised(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_every_event_is_read_as_protobuf_reads_it(events: list[bytes], shuffled: random.Random) -> None:
    events = [*events, *events]  # the second time there are templates
    shuffled.shuffle(events)
    assert read_by_scanner(events) == read_by_protobuf(events)


@given(serialised(), st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), max_size=4))
def test_a_record_with_other_bytes_is_read_as_protobuf_reads_it(data: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(data)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    try:
        expected = read_by_protobuf([data, bytes(changed)])
    except Exception:
        expected = None
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


NUMBERS = {
    1: ("<f", "float_val"), 2: ("<d", "double_val"), 3: ("<i", "int_val"), 4: ("<B", "int_val"), 5: ("<h", "int_val"),
    6: ("<b", "int_val"), 9: ("<q", "int64_val"), 10: ("<?", "bool_val"), 17: ("<H", "int_val"),
    19: ("<e", "half_val"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_tensor_of_any_number_is_read_as_tensorboard_reads_it(dtype: int) -> None:
    form, field = NUMBERS[dtype]
    content = struct.pack(form, 1)
    stored = int.from_bytes(content, "little") if field == "half_val" else 1
    for kwargs in ({"tensor_content": content}, {field: [stored]}):
        tensor = TensorProto(dtype=dtype, tensor_shape=TensorShapeProto(), **kwargs)
        assert number(Summary.Value(tensor=tensor)) == float(make_ndarray(tensor)) == 1.0


def test_numbers_that_only_tensorflow_reads_are_read() -> None:
    """bfloat16, uint32 and uint64."""
    for tensor, expected in (
        (TensorProto(dtype=14, half_val=[0x3FC0]), 1.5),
        (TensorProto(dtype=14, tensor_content=b"\xc0\x3f"), 1.5),
        (TensorProto(dtype=22, uint32_val=[2**32 - 1]), 2**32 - 1),
        (TensorProto(dtype=23, tensor_content=struct.pack("<Q", 2**63)), 2.0**63),
    ):
        assert number(Summary.Value(tensor=tensor)) == expected
    assert number(Summary.Value(tensor=TensorProto(dtype=19, tensor_content=b"abcd"))) is None


@pytest.mark.parametrize("bit", range(0, 8 * len(scalar("loss", 1.5)), 7))
def test_one_wrong_bit_ends_the_reading_before_it(bit: int) -> None:
    content = bytearray(scalar("loss", 0.5) + scalar("loss", 1.5) + scalar("loss", 2.5))
    place = len(scalar("loss", 0.5))
    content[place + bit // 8] ^= 1 << bit % 8
    scalars: dict[str, Columns] = {}
    assert Scanner().scan(bytes(content), scalars, lambda _: None) == place
    assert list(scalars["loss"].values) == [0.5]
