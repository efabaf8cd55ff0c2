"""A run of a sweep on a node of a Ray cluster: its actor, and what it is told and tells."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil

import mario_tui
from engine.config.reading import make_config
from engine.errors import ScarceError, UserError
from engine.extras.ray.connection import own_node
from engine.extras.ray.greeting import greeting
from engine.host.client import HostProcess, ask_to_stop
from engine.runs.registry import register
from engine.runs.run import Annotation, Run
from engine.runtime.files import make_private, program_folder, read_bounded, way_into
from mario_tui.extras.sweeps.folder_copy import Changes, Follower, What, write_changes
from mario_tui.launch import Plan

PACKAGE = Path(mario_tui.__file__).parent
"""What a node must have, besides the engine, as this machine does."""


class Order(msgspec.Struct, frozen=True):
    """What a node is to run."""

    options: dict[str, Any]
    """As in the run's `config.toml`; its `run_dir` is the sweep's folder."""
    name: str
    checkpoint: str | None
    """Its name, to resume from it; None: a new run."""
    annotation: Annotation | None
    notes: tuple[tuple[str, str], ...]
    copy: Changes | None
    """What the run has so far, for a node that does not see the sweep's folder."""


class News(msgspec.Struct, frozen=True):
    """What a node tells of its run."""

    problem: str = ""
    """Why its host could not be started."""
    is_crowded: bool = False
    """Whether too little memory is free for it, or no process is left."""
    has_ended: bool = False
    changes: Changes | None = None


class NodeRun:
    """A run on a node, wherever that is; an actor of Ray."""

    def greet(self, seen: str, content: bytes) -> tuple[bytes, bool]:
        """Return what is installed here, and whether the file at the path `seen` can be seen, by its content."""
        self._sees = False
        with contextlib.suppress(OSError):
            self._sees = read_bounded(Path(seen), len(content)) == content
        return msgspec.msgpack.encode(greeting(own_node(), PACKAGE)), self._sees

    def begin(self, order: bytes) -> bytes:
        """Start the run's host."""
        wanted = msgspec.msgpack.decode(order, type=Order)
        try:
            config = make_config(wanted.options)
            folder = Path(config.run_dir) if self._sees else own_folder()
            self._run = run = Run(folder / wanted.name)
            self._follower = None if self._sees else Follower(run)
            if wanted.copy is not None:
                write_changes(run, wanted.copy)
                register(run)
            if self._follower is not None:
                self._follower.take()  # what the copy has already
            plan = Plan(config.changed(run_dir=str(folder)), name=wanted.name, notes=wanted.notes)
            if wanted.checkpoint is None:
                plan = replace(plan, annotation=wanted.annotation)
            else:
                plan = replace(plan, run=run, checkpoint=run.path / wanted.checkpoint)
            self._host: HostProcess = plan.start(foreground=True, keep_refused=True)
        except (OSError, UserError) as error:
            news = News(problem=str(error), is_crowded=isinstance(error, ScarceError))
            return msgspec.msgpack.encode(news)
        return msgspec.msgpack.encode(News(changes=None if self._follower is None else self._follower.take("files")))

    def look(self, with_files: bool) -> bytes:
        """Return how far the run is."""
        ended = self._host.ended
        what: What = "all" if ended else "files" if with_files else "record"
        changes = None if self._follower is None else self._follower.take(what)
        return msgspec.msgpack.encode(News(has_ended=ended, changes=changes))

    def stop(self, reason: str) -> None:
        ask_to_stop(self._run, reason)

    def leave(self) -> None:
        """Remove the folder of a run that has ended and was copied."""
        if not self._sees:
            shutil.rmtree(self._run.path.parent, ignore_errors=True)


def own_folder() -> Path:
    """A folder for the run of this process; those of earlier ones, which were killed, are removed."""
    parent = program_folder("CACHE") / "sweeps"
    if flaw := way_into("CACHE", "sweeps"):
        raise UserError(f"{parent}: can't hold runs, because {flaw}; set XDG_CACHE_HOME to another folder")
    make_private(parent)
    machine = socket.gethostname()  # several may share the cache
    for left in parent.iterdir():
        with contextlib.suppress(OSError, ValueError):  # another process may be removing it, or it is none of ours
            pid = int(left.suffix[1:]) if left.stem == machine else -1
            is_over = pid == os.getpid() or (pid > 0 and not psutil.pid_exists(pid))
            if is_over and not any(Run(run).is_alive() for run in left.iterdir()):
                shutil.rmtree(left, ignore_errors=True)
    folder = parent / f"{machine}.{os.getpid()}"
    folder.mkdir()
    return folder
