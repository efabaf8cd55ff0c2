"""DDP under torchrun: ranks of several agents, killed, replaced, joined and cut off while they learn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from torch.distributed import TCPStore

from engine.envs.episode import EpisodeRecord
from engine.host.client import HostClient, attach
from engine.protocol.commands import Checkpoint, Pause, Resume, Set, Stop
from engine.protocol.messages import Failed, Finished, Members, Progress, Saved
from engine.runners.shared_state import SharedState
from engine.runs.run import Run
from tests.support.program import (
    PATIENCE_S,
    kill_hosts,
    next_event,
    nobody_is_left,
    processes_of,
    run_program,
    wait_until,
)

pytestmark = pytest.mark.process

SNAKE = (
    "--no-ui", "--log-format", "json", "--runner", "ddp", "--game", "snake", "--board", "5x5", "--no-amp",
    "--parallel-envs", "8", "--batch-size", "32", "--burnin", "200", "--buffer-size", "20000", "--eval-every", "0",
)  # fmt: skip
ENDLESS = (*SNAKE, "--steps", "100000000", "--save-every", "100000000")
NAME = "on-two-machines"


class Agents:
    """torchrun's agents, each as on a machine of its own.

    `endpoint`: address of torchrun's server; None: this process serves, so that no agent's end is the server's.
    """

    def __init__(self, folder: Path, *options: str, endpoint: str | None = None) -> None:
        self.folder, self._options = folder, options
        self._server: TCPStore | None = None
        if endpoint is None:
            self._server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            endpoint = f"127.0.0.1:{self._server.port}"
        self._endpoint = endpoint
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, *under: str, address: str = "127.0.0.1", nodes: str = "1:2", ranks: int = 1, folder: Path | None = None
    ) -> None:
        """One more agent. `under`: a command that starts it; `folder`: its working directory."""
        serves = self._server is None and not self.started
        command = [
            *under, str(Path(sys.executable).with_name("torchrun")), "--nnodes", nodes, "--nproc-per-node", str(ranks),
            "--max-restarts", "9", "--rdzv-backend", "c10d", "--rdzv-endpoint", self._endpoint, "--rdzv-id", NAME,
            "--rdzv-conf", f"last_call_timeout=1,is_host={int(serves)}", "--local-addr", address,
            "-m", "mario_tui", *self._options,
        ]  # fmt: skip
        environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with (self.folder / f"agent-{len(self.started)}.log").open("w") as log:
            agent = subprocess.Popen(
                command, cwd=folder or self.folder, env=environment, stdout=log, stderr=log, text=True
            )
        self.started.append(agent)

    def of(self, process: psutil.Process) -> subprocess.Popen[str]:
        """The agent that has started a rank."""
        return next(agent for agent in self.started if agent.pid == process.ppid())

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("agent-*.log")))


@contextlib.contextmanager
def agents(folder: Path, *options: str, endpoint: str | None = None) -> Iterator[Agents]:
    """Agents that are killed if they outlive the block, with all that they have started."""
    started = Agents(folder, *options, endpoint=endpoint)
    try:
        yield started
    finally:
        for agent in started.started:
            agent.kill()
            agent.wait()
        kill_hosts(folder)


@contextlib.contextmanager
def attached(folder: Path, ranks: int, beyond: int = -1, but: int = 0) -> Iterator[HostClient]:
    """A client of the run once `ranks` ranks have played beyond `beyond` steps, under another host than `but`."""
    run = Run(folder / "checkpoints" / NAME)

    def client() -> HostClient | None:
        with contextlib.suppress(Exception):  # the host is starting, or just ends
            return attach(run)
        return None

    def is_learning(client: HostClient) -> bool:
        with contextlib.suppress(AssertionError):  # this host ends
            seen = next_event(client, Members, lambda m: all(each.ready and each.env_steps for each in m.members))
            progress = next_event(client, Progress, lambda p: p.state == "running" and p.env_steps > beyond)
            return len(seen.members) == ranks and bool(progress)
        return False

    def found() -> HostClient | None:
        one = client()
        if one is not None and (run.record().pid == but or not is_learning(one)):
            one.close()
            return None
        return one

    with wait_until(found, f"{ranks} ranks") as connected:
        yield connected


def rank_0(folder: Path) -> psutil.Process:
    """The process of rank 0: the client of the run's host."""
    host = psutil.Process(Run(folder / "checkpoints" / NAME).record().pid)
    client = host.parent()
    assert client is not None
    return client


def rank_1(folder: Path) -> psutil.Process:
    (rank,) = (each for each in processes_of(folder) if "engine.extras.torchrun.rank" in each.cmdline())
    return rank


def checkpointed(client: HostClient) -> Saved:
    client.send(Checkpoint())
    saved: Saved = next_event(client, Saved)
    return saved


@pytest.mark.long
@pytest.mark.parametrize(("machines", "ranks"), [(2, 1), (1, 2)])
def test_ranks_learn_small_snake_and_end_in_order(machines: int, ranks: int, tmp_path: Path) -> None:
    options = (*SNAKE, "--parallel-envs", "16", "--learning-rate", "1e-3", "--epsilon-steps", "6000", "--burnin",
               "1000", "--tau", "0.02", "--policy-tau", "0", "--death-penalty", "1", "--replay-ratio", "4",
               "--seed", "1", "--steps", "14000", "--eval-every", "14000", "--eval-episodes", "200")  # fmt: skip
    for again in (False, True):
        with agents(tmp_path, *options) as started:
            for _ in range(machines):
                started.start(nodes=str(machines), ranks=ranks)
            for agent in started.started:
                assert agent.wait(PATIENCE_S * 2) == 0, started.logs()
        if again:  # the same line, when there is nothing left to do
            assert f"{NAME}: all environment steps are done" in started.logs()
            break
        events = [json.loads(line) for line in started.logs().splitlines() if line.startswith("{")]
        (evaluation,) = (event for event in events if event["event"] == "evaluation")
        assert evaluation["mean_score"] > 2.5
        (summary,) = (event for event in events if event["event"] == "summary")
        assert 14_000 <= summary["env_steps"] < 14_000 + 3 * 32
        assert {event["actor"] for event in events if event["event"] == "episode"} == {0, 1}
        episodes = [event["episode"] for event in events if event["event"] == "episode"]
        assert episodes == list(range(1, len(episodes) + 1))  # none is lost on the way from rank 1
        nobody_is_left(tmp_path)


@pytest.mark.long
def test_ranks_obey_and_one_that_is_told_to_stop_stops_all(tmp_path: Path) -> None:
    with agents(tmp_path, *ENDLESS) as started:
        started.start()
        started.start()
        with attached(tmp_path, ranks=2) as client:
            client.send(Set(name="learning_rate", value=1e-5))
            client.send(Pause())
            paused = next_event(client, Progress, lambda p: p.state == "paused")
            client.send(Resume())
            assert paused.learning_rate == 1e-5
            next_event(client, Progress, lambda p: p.env_steps > paused.env_steps + 1000)
            seen = next_event(client, Members, lambda m: m.members[1].env_steps > 0)
            assert [member.machine for member in seen.members] == [socket.gethostname()] * 2
            assert abs(seen.members[0].env_steps - seen.members[1].env_steps) <= 8  # they play in step
            for agent in started.started:
                agent.terminate()
            finished = next_event(client, Finished).summary
        for agent in started.started:
            agent.wait(PATIENCE_S)
    record = Run(tmp_path / "checkpoints" / NAME).record()
    assert record.state == "finished" and str(record.checkpoint) == finished.checkpoint
    nobody_is_left(tmp_path)


@pytest.mark.long
def test_lost_ranks_and_machines_are_replaced(tmp_path: Path) -> None:
    run = Run(tmp_path / "checkpoints" / NAME)
    with agents(tmp_path, *ENDLESS) as started:
        started.start()
        started.start()
        with attached(tmp_path, ranks=2) as client:
            saved, host = checkpointed(client), run.record().pid
        rank_1(tmp_path).kill()
        with attached(tmp_path, 2, saved.env_steps, host) as client:
            saved, host = checkpointed(client), run.record().pid
        started.of(rank_1(tmp_path)).kill()  # as if its machine was lost: its rank ends with it
        with attached(tmp_path, 1, saved.env_steps, host) as client:
            saved, host = checkpointed(client), run.record().pid
        started.start()  # a machine that joins the one that is left
        with attached(tmp_path, 2, saved.env_steps, host) as client:
            saved, host = checkpointed(client), run.record().pid
        started.of(rank_0(tmp_path)).kill()  # the machine with the host
        with attached(tmp_path, 1, saved.env_steps, host) as client:
            client.send(Stop())
            assert next_event(client, Finished).summary.env_steps > saved.env_steps
        nobody_is_left(tmp_path)


@pytest.mark.long
def test_a_folder_that_machines_do_not_share_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with agents(tmp_path, *ENDLESS) as started:
        started.start(nodes="2")
        started.start(nodes="2", folder=tmp_path / "other")
        wait_until(lambda: "it must be on a disk that all machines see" in started.logs(), "rank 1's complaint")
        run = Run(tmp_path / "checkpoints" / NAME)
        wait_until(lambda: "rank 1: --run-dir" in started.logs(), "rank 0's reason")
        assert not any(run.path.glob("step-*"))


@pytest.fixture
def machines() -> Iterator[list[tuple[str, str]]]:
    """Two network namespaces with a cable between them: names and addresses."""
    if os.geteuid() or not shutil.which("ip") or subprocess.run(["ip", "netns"], capture_output=True).returncode:
        pytest.skip("needs root and the program ip")
    names = [f"mario-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable",
                        "netns", names[1]], check=True)  # fmt: skip
        addresses = [f"10.213.7.{number}" for number in (1, 2)]
        for name, address in zip(names, addresses, strict=True):
            subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/24", "dev", "cable"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "cable", "up"], check=True)
        yield list(zip(names, addresses, strict=True))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


@pytest.mark.long
def test_a_cut_cable_leaves_one_machine_that_goes_on(machines: list[tuple[str, str]], tmp_path: Path) -> None:
    (first, address), (second, other) = machines
    with agents(tmp_path, *ENDLESS, endpoint=f"{address}:29400") as started:
        started.start("ip", "netns", "exec", first, address=address)
        started.start("ip", "netns", "exec", second, address=other)
        with attached(tmp_path, ranks=2) as client:
            saved, host = checkpointed(client), Run(tmp_path / "checkpoints" / NAME).record().pid
            subprocess.run(["ip", "-n", second, "link", "set", "cable", "down"], check=True)
            assert "another rank was lost" in next_event(client, Failed).reason
        with attached(tmp_path, 1, saved.env_steps, host) as client:
            client.send(Stop())
            next_event(client, Finished)


LAUNCHED = {
    "TORCHELASTIC_RUN_ID": NAME, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
    "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
"""What torchrun tells a rank."""
MISTAKES = {
    "no name": ({"TORCHELASTIC_RUN_ID": "none"}, ENDLESS, "torchrun: --rdzv-id must be given: it names the run"),
    "a path": ({"TORCHELASTIC_RUN_ID": "../other"}, ENDLESS, "accepted: up to 100 letters, digits, '.', '_' and '-'"),
    "no ddp": ({}, ("--no-ui", "--game", "snake"), "--runner must be ddp under torchrun, got single"),
    "ranks": (
        {},
        (*ENDLESS, "--num-processes", "3"),
        "--num-processes must be 2, the number of torchrun's ranks",
    ),
    "dashboard": ({}, ("--runner", "ddp"), f"torchrun needs --no-ui; for the dashboard: mario-tui attach {NAME}"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, options, message = MISTAKES[mistake]
    for name, value in {**LAUNCHED, **changes}.items():
        monkeypatch.setenv(name, value)
    done = run_program(*options, cwd=tmp_path, check=2)
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_a_folder_with_the_name_of_the_run_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**LAUNCHED, "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "checkpoints" / NAME).mkdir(parents=True)
    done = run_program(*ENDLESS, cwd=tmp_path, check=2)
    assert f"checkpoints/{NAME} exists already; choose another name" in done.stderr
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [NAME]


def test_a_state_follows_another_one() -> None:
    lead, follower = SharedState(2), SharedState(2)
    lead.open(0.5)
    follower.open()
    lead.tune("learning_rate", 1e-3)
    lead.publish(123_456, 789, 0.6)
    lead.show_screen(20.0)
    lead.pause()
    follower.follow(lead.orders())
    assert follower.paused and not follower.stopped
    assert (follower.env_steps, follower.updates, follower.beta, follower.level) == (123_456, 789, 0.6, 0.5)
    assert follower.tuned("learning_rate") == 1e-3 and follower.tunings("learning_rate") == 1
    assert follower.tuned("epsilon_scale") is None and follower.screen_fps == 20.0

    games = [EpisodeRecord.from_numbers([number] * np.asarray(follower.episodes_after(1, 0)).shape[1])
             for number in range(3)]  # fmt: skip
    follower.record(1, 8, 32, games)
    follower.waited[1] = 2.5
    lead.set_row(1, follower.row(1))
    assert lead.played == 8 and lead.frames == 32 and lead.waited[1] == 2.5 and lead.due[1] > 0
    assert not list(lead.new_episodes())  # they come on their own
    lead.add_episodes(1, follower.episodes_after(1, 0)[:2])
    lead.add_episodes(1, follower.episodes_after(1, 2))
    assert list(lead.new_episodes()) == [(1, game) for game in games]
