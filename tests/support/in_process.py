"""Runs without processes of their own: the single runner here, and a thread that listens as a host does."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine.config.reading import make_config
from engine.config.run_config import belongs
from engine.protocol.commands import Command
from engine.protocol.messages import Done, Written
from engine.runners.links import CommandQueue, FrameMailbox, ParentLink, ReportQueue
from engine.runners.single import Runner
from engine.runs import checkpoints

QUICK = {"eval_every": 0, "seed": 5, "amp": False, "parallel_envs": 8, "checkpoint_replay": True, "network": "small"}


def train(
    folder: Path,
    options: Mapping[str, Any],
    steps: int,
    resume_from: Path | None = None,
    commands: Sequence[Command] = (),
    respond: Callable[[Any], Sequence[Command]] = lambda report: (),
) -> list[Any]:
    """Run the single runner in this process, with what a host does for it; all that it reported.

    It obeys `commands` after its first iteration, and those that `respond` answers to a report soon after that. The
    last report but one names its last checkpoint.
    """
    values = {
        name: value
        for name, value in {**QUICK, **options}.items()
        if belongs(name, options.get("game", "mario"), "single")
    }
    config = make_config({**values, "steps": steps})
    folder.mkdir(parents=True, exist_ok=True)
    inbox, outbox = CommandQueue(), ReportQueue()
    reports: list[Any] = []

    def listen() -> None:
        while not reports or not isinstance(reports[-1], Done):
            try:
                report = outbox.get()
            except EOFError:  # it could not start
                return
            for command in respond(report):
                inbox.put(command)
            if isinstance(report, Written):
                checkpoints.commit(Path(report.partial), Path(report.final))
            reports.append(report)

    for command in commands:
        inbox.put(command)
    host, threads = threading.Thread(target=listen), torch.get_num_threads()
    host.start()
    mailbox = FrameMailbox(multiprocessing.get_context("spawn"))
    try:
        runner = Runner(folder, config, ParentLink(outbox, inbox), mailbox, resume_from)
        try:
            runner.train()
        finally:
            runner.close()
            torch.set_num_threads(threads)
    except BaseException:
        outbox.only_read()  # ends the listener
        raise
    host.join()
    return reports


def checkpoint_of(reports: list[Any]) -> Path:
    return Path([report for report in reports if isinstance(report, Written)][-1].final)


def of_kind(kind: type | tuple[type, ...], *parts: list[Any]) -> list[Any]:
    return [report for reports in parts for report in reports if isinstance(report, kind)]
