"""Readers of what comes from elsewhere, given what nobody would write: they answer with their own error."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import UserError
from engine.host.client import attach
from engine.protocol.commands import (
    Checkpoint,
    Command,
    Evaluate,
    Pause,
    Render,
    Resume,
    Save,
    Set,
    Stop,
    Trace,
)
from engine.protocol.framing import pack
from engine.protocol.messages import Finished, Progress
from engine.runs import checkpoints
from engine.runs.recording import read_recording
from tests.support.app import RECORDING
from tests.support.policy_files import shipped
from tests.support.program import PATIENCE_S, headless, next_event, read_event, the_run

Edit = tuple[int, bytes]
edits = st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)


def edited(content: bytes, changes: list[Edit]) -> bytes:
    """The content with some of its bytes replaced."""
    found = bytearray(content)
    for place, new in changes:
        at = place % len(found)
        found[at : at + len(new)] = new
    return bytes(found)


@given(edits)
@settings(max_examples=300)
def test_a_recording_is_read_or_refused(changes: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.msgpack"
        path.write_bytes(edited(RECORDING.read_bytes()[: 2**16], changes))
        with contextlib.suppress(UserError):
            read_recording(path)


@given(edits)
@settings(max_examples=300)
def test_a_policy_is_read_or_refused(changes: list[Edit]) -> None:
    beginning = shipped("mario-1-1").read_bytes()[: 2**12]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.safetensors"
        path.write_bytes(edited(beginning, changes))
        with contextlib.suppress(UserError):
            checkpoints.policy_metadata(path)


@given(edits)
@settings(max_examples=300)
def test_a_manifest_is_read_or_refused(changes: list[Edit]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "state.json").write_text(json.dumps({"updates": 1}))
        checkpoints.seal(folder, 8, 1)
        manifest = folder / checkpoints.MANIFEST
        manifest.write_bytes(edited(manifest.read_bytes(), changes))
        with contextlib.suppress(UserError):
            checkpoints.verify(folder)


COMMANDS: tuple[Command, ...] = (
    Pause(), Resume(), Save(), Checkpoint(), Evaluate(), Render(on=True, fps=5.0), Trace(seconds=0.01),
    Set(name="learning_rate", value=1e-4),
)  # fmt: skip
RANDOM_BYTES, MUTATED = 500_000, 10_000


@pytest.mark.long
@pytest.mark.process
def test_training_goes_on_whatever_comes_through_its_socket(tmp_path: Path) -> None:
    random, messages = np.random.default_rng(0), [pack(command) for command in COMMANDS]
    quick = ("--game", "snake", "--board", "5x5", "--burnin", "100", "--eval-every", "0", "--eval-episodes", "2")
    with headless(*quick, "--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        address = run.record().socket

        def send(parts: list[bytes]) -> None:
            """On one connection, as far as the host takes it."""
            with socket.socket(socket.AF_UNIX) as rude, contextlib.suppress(OSError):
                rude.settimeout(PATIENCE_S)
                rude.connect(address)
                for part in parts:
                    rude.sendall(part)

        for _ in range(RANDOM_BYTES // 5000):
            send([random.bytes(5000)])
        for _ in range(MUTATED // 10):
            parts = []
            for _ in range(10):
                message = messages[random.integers(len(messages))]
                places = random.integers(0, len(message), random.integers(1, 4)).tolist()
                parts.append(edited(message, [(place, random.bytes(1)) for place in places]))
            send(parts)
        client = attach(run)  # the host has a thousand connections to get rid of first
        assert client is not None
        with client:
            client.send(Resume())  # one of them may have been a pause
            now = next_event(client, Progress, lambda p: p.state == "running")
            next_event(client, Progress, lambda p: p.env_steps > now.env_steps)
            client.send(Stop(reason="enough"))
            next_event(client, Finished)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
