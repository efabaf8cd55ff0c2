"""Serves a simulated run that never ends on a real socket: recorded episodes in a loop at any rate, with the real game.

    python -m tests.support.source FOLDER [--rate 10000] [--lanes 256] [--history 50000000] [--seconds 86400]

For situations that a training run can't produce on request: 10,000 events per second, hundreds of lanes, a long past.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from engine.config.run_config import RunConfig
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.task import MarioTask
from engine.host.event_server import EventServer, socket_path
from engine.host.run_state import RunState
from engine.protocol.commands import Command, Evaluate, Pause, Resume, Set
from engine.protocol.messages import (
    GPU,
    PROTOCOL,
    Changed,
    Current,
    Episode,
    Evaluation,
    Frame,
    Hello,
    Lane,
    Lanes,
    Lasting,
    Point,
    Progress,
    Saved,
    State,
    System,
    Thought,
)
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from engine.runs.run import Run

RECORDING = Path(__file__).parent / "recordings" / "dashboard.msgpack"
_SLICE_S, _REPORT_S = 0.02, 0.5


class Source:
    """Does what a host does for its clients, without a runner."""

    def __init__(self, run: Run, rate: float, lanes: int, history: int) -> None:
        self.run, self.rate, self.lanes, self.history = run, rate, lanes, history
        self.view = RunState()
        recorded = read_recording(RECORDING)
        hello = recorded[0]
        assert isinstance(hello, Hello)
        self._recorded = hello
        self._progress = next(event for event in recorded if isinstance(event, Progress))
        self._lane = next(event for event in recorded if isinstance(event, Lanes)).lanes[0]
        self._episodes = itertools.cycle([event for event in hello.events if isinstance(event, Episode)])
        self._steps, self._ended = history, 0
        self._state: State = "running"
        self._started = time.monotonic()
        self._server = EventServer(
            hello=self._hello,
            current=lambda: [e for e in (self.view.progress, self.view.lanes, self.view.system) if e is not None],
            obey=self._handle,
            rendering=lambda render: None,
            complain=print,
        )

    async def serve(self, seconds: float) -> None:
        for index in range(4096):  # the past
            share = (index + 1) / 4096
            self.view.apply(self._point(int(self.history * share), 1 + 20 * math.log1p(index) + index % 7))
            if index % 64 == 0:
                self.view.apply(
                    Evaluation(
                        env_steps=int(self.history * share), episodes=20, clears=index % 20, best=index % 512 == 0,
                        mean_return=900 + index / 4, results=(1500.0,), seconds=9.0,
                    )
                )  # fmt: skip
                self.view.apply(Saved(kind="checkpoint", path=f"step-{index}", env_steps=int(self.history * share)))
        games = MarioLanes(MarioTask(), 1)
        games.reset()
        games.step(np.ones(1, np.int64))  # compiles; clients that connect must not wait for that
        record = self.run.record()
        address = socket_path(self.run)
        await self._server.listen(address)
        record.pid, record.socket, record.state = os.getpid(), str(address), "running"
        with self.run.lock():
            self.run.write_record(record)
            tasks = [asyncio.create_task(work) for work in (self._stream(), self._report(), self._show(games))]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await self._server.close()

    def _hello(self) -> Hello:
        return msgspec.structs.replace(
            self._recorded, protocol=PROTOCOL, run=self.run.name, path=str(self.run.path), pid=os.getpid(),
            steps=2 * self.history, points=list(self.view.points.items), events=list(self.view.events),
            actions=self.run.config().game_info.action_names(self.run.config()),
        )  # fmt: skip

    def _handle(self, command: Command) -> None:
        if isinstance(command, Pause | Resume):
            self._state = "paused" if isinstance(command, Pause) else "running"
        elif isinstance(command, Set):
            self._tell(Changed(name=command.name, value=command.value, before=0.5, env_steps=self._steps))
        elif isinstance(command, Evaluate):
            self._tell(
                Evaluation(
                    env_steps=self._steps, episodes=20, clears=20, best=True, mean_return=2000.0, seconds=1.0,
                    results=(3161.0,),
                )
            )  # fmt: skip

    def _tell(self, event: Lasting | Current) -> None:
        self.view.apply(event)
        self._server.put(event)

    async def _stream(self) -> None:
        owed, before = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_SLICE_S)
            now = time.monotonic()
            owed, before = owed + (now - before) * self.rate, now
            while owed >= 1 and self._state == "running":
                owed -= 1
                self._ended += 1
                self._steps += 10
                lane = self._ended % self.lanes
                self._tell(
                    msgspec.structs.replace(
                        next(self._episodes), lane=lane, env_steps=self._steps, episode=self._ended, success=lane == 3
                    )
                )

    async def _report(self) -> None:
        random = np.random.default_rng(0)
        for tick in itertools.count():
            if self._state == "running":
                self._steps += 400
            self._tell(
                msgspec.structs.replace(
                    self._progress, state=self._state, env_steps=self._steps, episodes=self._ended,
                    remaining_s=86_400.0, wall_s=self.history / 700 + time.monotonic() - self._started,
                    env_steps_per_s=700 + 20 * random.random() * (self._state == "running"),
                )
            )  # fmt: skip
            if self._state == "running":
                returns = random.normal(600, 200, (self.lanes, 20)).round().tolist()
                self._tell(Lanes(lanes=[self._lane_now(lane, returns[lane]) for lane in range(self.lanes)]))
                if tick % 2:
                    self._tell(self._point(self._steps, 600 + 50 * random.random()))
            if tick % 2:
                self._tell(_machine(random))
            await asyncio.sleep(_REPORT_S)

    def _lane_now(self, lane: int, returns: list[float]) -> Lane:
        ended = self._ended // self.lanes
        return msgspec.structs.replace(self._lane, lane=lane, episodes=ended, returns=returns, last_return=returns[-1])

    def _point(self, env_steps: int, value: float) -> Point:
        return Point(
            env_steps=env_steps, wall_s=env_steps / 700, mean_return=value, loss=10 / value, q_mean=value / 100,
            env_steps_per_s=700.0, beta=0.5,
        )  # fmt: skip

    async def _show(self, games: MarioLanes) -> None:
        """Send frames of the real game, played randomly to the right, one every two steps as in a run."""
        pictures = np.repeat(games.reset(), 4, axis=0)
        random = np.random.default_rng(0)
        for index in itertools.count(2, 2):
            await asyncio.sleep(1 / self._server.render.fps)
            if self._server.render.on and self._state == "running":
                for _ in range(2):
                    actions = random.integers(1, games.actions, 1)
                    pictures = np.concatenate((pictures[1:], games.step(actions).frames))
                rgb, q_values = games.screen(0), random.normal(5, 1, games.actions)
                count, height, width = pictures.shape
                thought = Thought(
                    q_values=q_values.tolist(), action=int(actions[0]), random=index % 8 > 0,
                    shape=(count, 1, height, width), seen=pictures.tobytes(),
                )  # fmt: skip
                self._server.put(
                    Frame(index=index, height=rgb.shape[0], width=rgb.shape[1], rgb=rgb.tobytes(), thought=thought)
                )


def _machine(random: np.random.Generator) -> System:
    gpu = GPU(
        name="made up", utilisation_percent=90.0, memory_used_bytes=2**34, memory_total_bytes=2**36, temperature_c=60
    )
    return System(
        cpu_percent=random.uniform(60, 100, 16).round().tolist(), memory_used_bytes=2**33, memory_total_bytes=2**36,
        run_cpu_percent=180.0, run_memory_bytes=2**31, processes=4, gpus=[gpu, gpu], gpu_note="",
    )  # fmt: skip


@contextlib.contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Run]:
    """A source in a separate process with a working directory, until the end of the block."""
    run = create_run(RunConfig(run_dir=str(folder / "checkpoints")))
    command = [sys.executable, "-m", "tests.support.source", str(run.path), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not run.record().socket:
            assert process.poll() is None, "the source has ended"
            time.sleep(0.02)
        yield run
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--lanes", type=int, default=256)
    parser.add_argument("--history", type=int, default=50_000_000)
    parser.add_argument("--seconds", type=float, default=86_400)
    options = parser.parse_args()
    source = Source(Run(options.run), options.rate, options.lanes, options.history)
    asyncio.run(source.serve(options.seconds))


if __name__ == "__main__":
    main()
