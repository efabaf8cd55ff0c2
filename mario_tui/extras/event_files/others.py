"""What event files contain besides scalars: images, text, histograms and the like, which are counted and named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto

from mario_tui.extras.event_files import hparams
from mario_tui.extras.event_files.scan import MOST_LETTERS, number

MOST_TEXT = 2_000
"""Maximum number of characters kept of a text."""
UNNAMED = "tensor"
"""The kind of a tensor that no summary of its series names."""
_TEXT = 7
"""TensorFlow's DataType of strings."""
_KINDS = {
    "images": "image",
    "text": "text",
    "histograms": "histogram",
    "distributions": "histogram",
    "audio": "audio",
    "pr_curves": "PR curve",
    "mesh": "mesh",
    "graphs": "graph",
    "graph_run_metadata": "graph",
    "graph_run_metadata_graph": "graph",
    "graph_keras_model": "graph",
    "projector": "embedding",
    "custom_scalars": "layout",
}
"""By the plugin that shows it in TensorBoard."""
_FIELDS = {"image": "image", "histo": "histogram", "obsolete_old_style_histogram": "histogram", "audio": "audio"}
"""By the field of the summary, as TensorFlow 1 and PyTorch write it."""
_GRAPHS = "graph_def", "meta_graph_def"


@dataclass
class Other:
    """A series that is not of scalars: what is known of it without drawing it."""

    kind: str
    """image, text, histogram, audio, PR curve, mesh, graph, embedding, layout, or `UNNAMED`."""
    count: int = 0
    """Number of summaries."""
    step: int = 0
    """Of the newest."""
    text: str = ""
    """The newest text, at most `MOST_TEXT` characters, not printable."""
    width: int = 0
    height: int = 0
    """Size of the newest image, px; 0 if unknown."""

    def update(self, later: Other) -> None:
        """Take over a later summary of the series. Only the first one has to tell the kind."""
        if later.kind != UNNAMED:
            self.kind = later.kind
        self.count += later.count
        self.step = later.step
        self.text = (later.text or self.text) if self.kind == "text" else ""
        if later.width > 0 and later.height > 0:
            self.width, self.height = later.width, later.height


def others_of(event: Event) -> Iterator[tuple[str, Other]]:
    """Tag and description of whatever is neither a scalar nor a hyper-parameter."""
    step = int(event.step)
    if event.WhichOneof("what") in _GRAPHS:
        yield "graph", Other("graph", 1, step)
    for value in event.summary.value:
        plugin = value.metadata.plugin_data.plugin_name
        if plugin == hparams.PLUGIN or number(value) is not None:
            continue
        kind = _KINDS.get(plugin) or _FIELDS.get(value.WhichOneof("value") or "", UNNAMED)
        found = Other(kind, 1, step)
        if kind in ("text", UNNAMED):
            found.text = _text(value.tensor)
        elif kind == "image":
            found.width, found.height = _size(value)
        yield value.tag[-MOST_LETTERS:], found


def _text(tensor: TensorProto) -> str:
    if tensor.dtype != _TEXT:
        return ""
    lines: list[str] = []
    room = MOST_TEXT
    for each in tensor.string_val:
        if room <= 0:
            break
        lines.append(each[: 4 * room].decode(errors="replace")[:room])  # a character takes at most 4 bytes
        room -= len(lines[-1]) + 1
    return "\n".join(lines)


def _size(value: Summary.Value) -> tuple[int, int]:
    """Width and height of an image; a tensor (TensorFlow 2) begins with them, in digits."""
    if value.HasField("image"):
        return value.image.width, value.image.height
    numbers = [each.decode() for each in value.tensor.string_val[:2] if each.isdigit() and len(each) < 7]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (0, 0)
