"""Runs of Snake with each runner of several processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.host.client import HostClient
from engine.protocol.commands import Stop
from engine.protocol.messages import Finished
from engine.runs.run import Run
from tests.support.program import (
    PATIENCE_S,
    headless,
    json_lines,
    next_event,
    nobody_is_left,
    read_event,
    run_program,
    the_run,
)

SNAKE = ("--game", "snake", "--board", "5x5", "--no-amp", "--batch-size", "64", "--burnin", "1000")
ENDLESS = (*SNAKE, "--steps", "100000000", "--eval-every", "0", "--save-every", "100000000", "--buffer-size", "20000")
RUNNERS = {
    "parallel": ("--runner", "parallel", "--num-processes", "2"),
    "ddp": ("--runner", "ddp", "--num-processes", "2"),
    "apex": ("--runner", "apex", "--num-actors", "2", "--actors-ahead", "100"),  # short runs would end without updates
}
RAY = (*RUNNERS["apex"], "--ray", "local")


def train(folder: Path, *options: str) -> list[dict[str, Any]]:
    return json_lines(run_program("--no-ui", "--log-format", "json", *options, cwd=folder).stdout)


@contextlib.contextmanager
def training(*options: str, cwd: Path) -> Iterator[tuple[Run, HostClient]]:
    """A run that trains, and a client of it. At the end it is stopped in order, and leaves no process."""
    with headless(*options, cwd=cwd) as process:
        read_event(process, "progress", state="running")
        run = the_run(cwd)
        with HostClient(run) as client:
            yield run, client
            client.send(Stop())
            next_event(client, Finished)
        process.communicate(timeout=PATIENCE_S)  # nobody has read its lines
        assert process.returncode == 0
    nobody_is_left(cwd)
