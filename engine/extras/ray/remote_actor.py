"""An Ape-X actor in a process of a Ray cluster. It plays a chunk for each call of the learner; without calls it does
nothing. Ray itself is not imported here (see `engine.extras.ray.actors`)."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.agents.weights import load_vector
from engine.config.reading import make_config
from engine.config.runners import Choices
from engine.extras.ray.chunks import ChunkWriter, decode_orders
from engine.runners.apex_actor import ApexActor
from engine.runtime.stopwatch import stopwatch
from engine.runtime.threads import has_native_bf16, user_calls


class RemoteActor:
    """Actor `index` of a run, on any machine.

    Args:
        options: the run's options that are set, as in its `config.toml`.
        choices: the learner's device and precision, as `Choices.state`.
        index, restarts, begun_at, level: see `ApexActor`.
        files: contents of the files that options name, by option.
    """

    def __init__(
        self,
        options: dict[str, Any],
        choices: dict[str, Any],
        index: int,
        restarts: int,
        begun_at: int,
        files: dict[str, bytes],
        level: float,
    ) -> None:
        self._options, self._choices, self._files = options, choices, files
        self._who = index, restarts, begun_at, level
        self._hangs = ""
        user_calls.fail = lambda text: setattr(self, "_hangs", text)

    def build(self) -> None:
        """Make network and games, which may compile.

        This is apart from the start: the learner can then tell an actor that waits for a core from one that hangs, and
        finds other sources before they are used.
        """
        settled = Choices(**self._choices)
        if not has_native_bf16():  # unlike the learner's processor, perhaps
            settled = dataclasses.replace(settled, precision="float32")
        self._config = config = make_config(self._options)
        with tempfile.TemporaryDirectory() as folder:
            here = config.changed(**_written(self._files, Path(folder)))
            self._actor = ApexActor(here, settled, *self._who, lane_threads=1)
        self._chunk = ChunkWriter(self._actor.actor.env.spec, self._actor.lanes)
        self._updates = -1
        self._played = 0
        self._pulled_at = -config.weight_pull_steps
        self._waited, self._idle_since = 0.0, time.monotonic()

    def play(self, orders: bytes, weights: NDArray[np.float32]) -> bytes:
        """Play a chunk by `Orders`. `weights` are the learner's newest, loaded as often as `--pull-every` says."""
        begun_at = time.monotonic()
        self._waited += begun_at - self._idle_since
        wanted = decode_orders(orders)
        actor = self._actor
        picture = None
        for step in range(wanted.steps):
            if step and time.monotonic() - begun_at > wanted.seconds:
                break
            if wanted.updates > self._updates and self._played - self._pulled_at >= self._config.weight_pull_steps:
                self._load(weights, wanted.updates)
            actions = actor.choose(wanted.env_steps, wanted.epsilon_scale, wanted.gamma, wanted.level)
            if wanted.screen and not step:
                picture = actor.actor.show(0)
            self._chunk.add(actor.finish(actions))
            self._played += actor.lanes
        screen, thought = (None, None) if picture is None else picture
        data = self._chunk.finish(
            updates=self._updates,
            times=stopwatch.row(),
            waited=self._waited,
            seconds=time.monotonic() - begun_at,
            screen=screen,
            thought=thought,
        )
        self._idle_since = time.monotonic()
        return data

    def pulse(self) -> str | None:
        """From another thread: which call of the environment hangs, empty if one is under way, None if none is."""
        # The newest call may still last; one beyond the limit is somebody else's to notice.
        return self._hangs or ("" if time.monotonic() - user_calls.begun_at < user_calls.limit_s + 1 else None)

    @stopwatch("synchronise")
    def _load(self, weights: NDArray[np.float32], updates: int) -> None:
        load_vector(self._actor.network, weights.copy())
        self._updates, self._pulled_at = updates, self._played


def _written(files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """Write the contents of files to a folder. Returns their paths, by option."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in files}
