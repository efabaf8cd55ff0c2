"""Event files of TensorBoard, as any program writes them: scalars, hyper-parameters, and what else is in them.

`EventFolder` reads and keeps them; `problem_of` tells why a file is none. Nothing here imports torch or NumPy, or
TensorBoard's own loader, which takes a second to import and follows a single file. Text from the files is bounded in
length, but not printable: `engine.runtime.text.printable` makes it so where it is shown.
"""

from mario_tui.data.event_files.files import discards_in, event_files, problem_of, scalars_in
from mario_tui.data.event_files.folder import EventFolder, News
from mario_tui.data.event_files.history import MOST_POINTS, Columns, History
from mario_tui.data.event_files.hparams import Metric, Session, metrics_of
from mario_tui.data.event_files.others import UNNAMED, Other
from mario_tui.data.event_files.scan import MOST_SERIES

__all__ = [
    "MOST_POINTS",
    "MOST_SERIES",
    "UNNAMED",
    "Columns",
    "EventFolder",
    "History",
    "Metric",
    "News",
    "Other",
    "Session",
    "discards_in",
    "event_files",
    "metrics_of",
    "problem_of",
    "scalars_in",
]
