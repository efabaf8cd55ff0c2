"""Hyper-parameters, as summaries of TensorBoard's hparams plugin tell them.

Writers differ in where they put them: PyTorch's `add_hparams` writes all three summaries into a subfolder of each
session; TensorBoard's own functions write the experiment, with the metrics, into the folder above.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

PLUGIN = "hparams"
MOST_SESSIONS = 2_000
MOST_PARAMETERS = 200
"""Maximum number of hyper-parameters, and of metrics, of a session."""
MOST_LETTERS = 200
"""Maximum length of a name or of a text value."""
_STATUSES = ["unknown", "success", "failure", "running"]
"""By the plugin's number of a status."""


@dataclass(frozen=True)
class Metric:
    """A scalar that the sessions are to be compared by: its tag, and where it is below a session's subfolder."""

    tag: str
    group: str = ""

    def inside(self, session: str) -> str:
        """The subfolder with the scalar."""
        return (PurePosixPath(session) / self.group).as_posix()


@dataclass
class Session:
    """What is known of one training session, or of the experiment above all of them, in one subfolder.

    All text comes from the file, and is of bounded length but not printable.
    """

    parameters: dict[str, str | float | bool] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    status: str = "unknown"
    """unknown, running, success or failure."""
    started: float | None = None
    ended: float | None = None
    """Unix times, s."""

    def update(self, later: Session) -> None:
        """Take over what a later summary tells."""
        self.parameters = later.parameters or self.parameters
        self.metrics = later.metrics or self.metrics
        self.status = later.status if later.status != "unknown" else self.status
        self.started = later.started if later.started is not None else self.started
        self.ended = later.ended if later.ended is not None else self.ended


def session_of(value: Summary.Value) -> Session | None:
    """Return what a summary tells of its session; None if it is not one of the hparams plugin."""
    if value.metadata.plugin_data.plugin_name != PLUGIN:
        return None
    try:
        data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
    except Exception:  # protobuf's DecodeError is a different class in each implementation
        return None
    session = Session()
    match data.WhichOneof("data"):
        case "experiment":
            for info in data.experiment.metric_infos[:MOST_PARAMETERS]:
                session.metrics.append(Metric(info.name.tag[:MOST_LETTERS], info.name.group[:MOST_LETTERS]))
        case "session_start_info":
            session.parameters = _parameters(data.session_start_info)
            session.status = "running"
            session.started = data.session_start_info.start_time_secs or None
        case "session_end_info":
            end = data.session_end_info
            session.status = _STATUSES[end.status] if 0 <= end.status < len(_STATUSES) else "unknown"
            session.ended = end.end_time_secs or None
    return session


def metrics_of(sessions: dict[str, Session], session: str) -> list[Metric]:
    """The metrics of a session: its own, or those of the nearest folder above that tells any."""
    for above in (PurePosixPath(session), *PurePosixPath(session).parents):
        found = sessions.get(above.as_posix())
        if found is not None and found.metrics:
            return found.metrics
    return []


def _parameters(start: SessionStartInfo) -> dict[str, str | float | bool]:
    parameters: dict[str, str | float | bool] = {}
    for name in sorted(start.hparams)[:MOST_PARAMETERS]:
        value = start.hparams[name]
        match value.WhichOneof("kind"):
            case "number_value":
                parameters[name[:MOST_LETTERS]] = float(value.number_value)
            case "string_value":
                parameters[name[:MOST_LETTERS]] = value.string_value[:MOST_LETTERS]
            case "bool_value":
                parameters[name[:MOST_LETTERS]] = bool(value.bool_value)
    return parameters
