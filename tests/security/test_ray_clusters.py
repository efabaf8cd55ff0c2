"""What another user of the machine can reach of a cluster that `--ray local` has started."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import multiprocessing
import os
import re
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
import ray

from engine.console.compiler.code_cache import code_cache
from engine.host.client import HostClient
from engine.protocol.messages import Members, Progress
from tests.support.program import headless, next_event, read_event, runner_of, the_run
from tests.support.runners import ENDLESS, RAY

pytestmark = pytest.mark.process

NOBODY = 65534
WRONG_TOKENS = {"none": None, "wrong": "0" * 64}


def become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@contextlib.contextmanager
def another_user() -> Iterator[Callable[..., Any]]:
    """Calls a function of this module in a process of another user."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=become_nobody) as pool:
        yield lambda work, *arguments: pool.submit(work, *arguments).result()


def cluster_of(runner: psutil.Process) -> list[psutil.Process]:
    """The processes of the runner's session: its own, Ray's, and the keeper."""
    return [psutil.Process(pid) for pid in psutil.pids() if os.getsid(pid) == runner.pid]


def entered(paths: list[Path]) -> list[str]:
    """What this user can do with the paths, which are of any kind."""

    def create(path: Path) -> None:
        Path(path, "planted").touch()

    def replace(path: Path) -> None:
        path.replace(path.with_name("moved"))

    def connect(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))

    attempts: list[Callable[[Path], object]] = [
        Path.lstat, os.listdir, create, connect, replace,
        lambda path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)),
        lambda path: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)),
        lambda path: os.link(path, path.with_name("linked")),
    ]  # fmt: skip
    done = []
    for path in paths:
        for number, attempt in enumerate(attempts):
            with contextlib.suppress(OSError):
                attempt(path)
                done.append(f"{number} {path}")
    return done


def writable(paths: list[Path]) -> list[Path]:
    return [path for path in paths if os.access(path, os.W_OK)]


def files_in_use(processes: list[psutil.Process]) -> list[Path]:
    """Regular files that the processes have open or mapped, wherever they are."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {file.path for file in process.open_files()}
            found |= {region.path for region in process.memory_maps() if region.path.startswith("/")}
    return [Path(path) for path in sorted(found)]


def calls_of_ray() -> list[str]:
    """All calls that Ray's servers know."""
    package = Path(ray.__file__).parent
    servers = (
        package / "_raylet.so",
        *(package / "core" / "src" / "ray" / name for name in ("gcs/gcs_server", "raylet/raylet")),
    )
    return sorted(
        {call.decode() for path in servers for call in re.findall(rb"/ray\.rpc\.[\w.]+/\w+", path.read_bytes())}
    )


def answers_of(port: int, calls: list[str], token: str | None) -> set[str]:
    """What a server of Ray at a port of the loopback interface makes of calls."""
    # Without a node's name, Ray 2.60 ends its server in StartSync, before it looks at the token.
    metadata = [("node_id", "0" * 56)] + ([] if token is None else [("authorization", f"Bearer {token}")])
    page = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers = set()
    try:
        for path in ("/", "/get_or_create_runtime_env", "/delete_runtime_env_if_possible", "/get_runtime_envs_info"):
            page.request("POST", path, headers=dict(metadata))
            response = page.getresponse()
            response.read()
            answers.add(f"HTTP {response.status}")
        return answers
    except (http.client.HTTPException, OSError):  # it speaks gRPC only
        assert not answers
    finally:
        page.close()
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        for call in calls:
            method = channel.unary_unary(call, request_serializer=bytes, response_deserializer=bytes)
            try:
                method(b"", metadata=metadata, timeout=60)
                answers.add(f"OK {call}")
            except grpc.RpcError as error:
                answers.add(error.code().name)
    return answers


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder that all users can enter, unlike the tests' own; compiled code stays where it is."""
    monkeypatch.setenv("MARIO_TUI_CODE", str(code_cache()))
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        yield Path(folder)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_no_other_user_reaches_a_local_cluster(open_folder: Path, tmp_path: Path) -> None:
    with headless(*ENDLESS, *RAY, cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        with HostClient(run) as client, another_user() as nobody:
            next_event(client, Members, lambda m: all(member.env_steps > 0 for member in m.members))
            cluster = cluster_of(runner_of(run))
            (raylet,) = (each for each in cluster if each.name() == "raylet")
            (gcs,) = (each for each in cluster if each.name() == "gcs_server")
            folder = Path(raylet.cmdline()[1].removeprefix("--raylet_socket_name=")).parents[2]
            assert folder.is_relative_to(open_folder)

            paths = [folder.parent, folder, *folder.rglob("*")]
            sockets = [path for path in paths if stat.S_ISSOCK(path.lstat().st_mode)]
            assert len(paths) > 50 and len(sockets) == 2
            assert [done for done in nobody(entered, paths) if done != f"0 {folder.parent}"] == []
            used = files_in_use(cluster)
            assert any(path.is_relative_to(folder) for path in used)
            assert nobody(writable, used) == []
            named = {str(c.laddr) for each in cluster for c in each.net_connections("unix") if c.laddr}
            assert {name for name in named if Path(name) not in sockets} == set()

            token = gcs.environ()["RAY_AUTH_TOKEN"]
            assert not any(token in argument for each in cluster for argument in each.cmdline())
            listening = [c.laddr for each in cluster for c in each.net_connections("inet") if c.status == "LISTEN"]
            assert len(listening) >= 6
            for address in {laddr.ip for laddr in listening}:
                ip = ipaddress.ip_address(address)
                assert (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
            calls = calls_of_ray()
            assert len(calls) > 100
            for laddr in listening:
                for wrong in WRONG_TOKENS.values():
                    answers = nobody(answers_of, laddr.port, calls, wrong)
                    assert answers in ({"UNAUTHENTICATED", "UNIMPLEMENTED"}, {"HTTP 401"}, {"HTTP 403"}), laddr
            (port,) = (c.laddr.port for c in gcs.net_connections("inet") if c.status == "LISTEN")
            call = "/ray.rpc.NodeInfoGcsService/GetClusterId"
            assert answers_of(port, [call], token) == {f"OK {call}"}

            steps = next_event(client, Progress).env_steps
            next_event(client, Progress, lambda p: p.env_steps > steps)
