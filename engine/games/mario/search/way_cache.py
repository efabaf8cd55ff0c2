"""Ways that were found, in the user's cache: to search one takes minutes, and a distillation may be repeated.

A file `$XDG_CACHE_HOME/mario-tui/ways/STAGE-DIGEST.json` (or `~/.cache`) is a list of actions. Whoever reads it must
play them to see whether they still lead to a flag.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import NDArray

from engine.games.mario.task import MarioTask
from engine.runtime.files import write_if_possible
from engine.runtime.home import program_folder
from engine.runtime.json_text import read_json

_MAX_BYTES = 1_000_000
_SEARCH = 2
"""Version of the search. A way that another version found is not used: it might lead to another student."""


class WayCache:
    """The file for the way of one search.

    Args:
        stage: where the way leads to the flag.
        task: its actions, frame skip, strokes and no-ops matter.
        seed: of the search.
    """

    def __init__(self, stage: str, task: MarioTask, seed: int) -> None:
        asked = [_SEARCH, task.action_names, task.frame_skip, task.noop_min, task.noop_max, seed]
        asked += ["strokes"] * task.swim_strokes
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
        self._file = program_folder("CACHE") / "ways" / f"{stage}-{digest}.json"
        self._actions = len(task.action_names)

    def load(self) -> NDArray[np.int64] | None:
        """The actions [steps], or None if there are none, or not such as this task has."""
        try:
            actions = read_json(self._file, list[int], _MAX_BYTES, links=True)
        except (OSError, ValueError):
            return None
        return np.array(actions) if actions and all(0 <= action < self._actions for action in actions) else None

    def save(self, actions: NDArray[np.int64]) -> None:
        """Keep actions [steps], if the cache can be written."""
        write_if_possible(self._file, json.dumps(actions.tolist()).encode())
