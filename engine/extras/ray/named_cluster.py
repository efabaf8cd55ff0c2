"""The cluster that `--ray` names: whether its head answers, the environment that Ray needs to join it, and the folder
of one that `--ray local` starts.

Ray is not imported here: it reads the environment when it is imported, and given a wrong address it tries for minutes.
It makes its folders writable for all users, so they are below one that only this user can enter. Whoever starts a
cluster takes a numbered folder there and holds its lock; a folder whose lock nobody holds is left over.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import itertools
import os
import secrets
import shutil
import socket
import sys
from pathlib import Path
from typing import BinaryIO, Literal

from engine.errors import UserError
from engine.runtime.files import home, is_own, is_private, open_lock, program_folder, read_bounded, way_in
from engine.runtime.text import install_command

_MAX_BYTES = 1024
"""Of the files with the address of a cluster and with its token."""
_ANSWER_S = 2.0
"""Time that the head of a cluster has to answer."""

Answer = Literal["open", "token accepted", "token needed", "no cluster"]

_METHOD = "/ray.rpc.NodeInfoGcsService/GetClusterId"


def address_of(asked: str) -> str | None:
    """HOST:PORT of the head that `--ray` asks for; None for `auto` where no cluster was started."""
    if asked != "auto":
        return asked
    if (address := os.environ.get("RAY_ADDRESS", "auto")) != "auto":
        return address
    places = [os.environ.get("RAY_TMPDIR"), os.environ.get("TMPDIR") if sys.platform == "linux" else None, "/tmp"]
    path = Path(next(filter(None, places)), "ray", "ray_current_cluster")  # `ray start` writes it
    try:
        return read_bounded(path, _MAX_BYTES).decode().strip() if is_own(path) else None
    except (OSError, ValueError):
        return None


def reach(address: str, timeout_s: float) -> None:
    """Connect to HOST:PORT and disconnect. Raises `OSError` if nobody listens there, `ValueError` for a bad port."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()


def answer_of(address: str, timeout_s: float) -> Answer:
    """Return what the server at HOST:PORT makes of a call that Ray's heads know."""
    import grpc  # a dependency of TensorBoard; slow to import

    token = _token()
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)
        for metadata in ((), (("authorization", f"Bearer {token}"),)):
            try:
                call(b"", timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                    return "no cluster"
                if not token:
                    return "token needed"
            else:
                return "token accepted" if metadata else "open"
    return "token needed"


def check_cluster(asked: str) -> tuple[str, Answer]:
    """The address to connect to, and the head's answer. Raises `UserError` if there is no cluster to join."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(f"--ray: Ray is not installed; install it with: {install_command('ray')}")
    address = address_of(asked)
    if address is None:
        raise UserError("--ray: auto: no Ray cluster runs on this machine; start one with: ray start --head")
    if address == "local":
        take_folder()[1].close()  # the runner takes one for itself
        return address, "token accepted"  # Ray makes a token for a cluster of its own
    try:
        reach(address, _ANSWER_S)
    except (OSError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UserError(
            f"--ray: nobody answers at {address} ({reason}); start a cluster there with: ray start --head"
        ) from None
    answer = answer_of(address, _ANSWER_S)
    if answer == "no cluster":
        raise UserError(
            f"--ray: what listens at {address} does not answer as a Ray cluster does; "
            "give the port of `ray start --head`"
        )
    if answer == "token needed":
        raise UserError(
            f"--ray: the cluster at {address} needs its token; copy it into ~/.ray/auth_token, or set RAY_AUTH_TOKEN"
        )
    return address, answer


def prepare(asked: str) -> str:
    """Set the environment for `--ray ASKED`, before Ray is imported, and return the address to connect to.

    No usage statistics. The token that the cluster needs, and none for others. A local cluster listens on no other
    interface than loopback. Raises `UserError` if there is no cluster to join.
    """
    address, answer = check_cluster(asked)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # the default of later versions, without its warning
    os.environ["RAY_AUTH_MODE"] = "token" if answer == "token accepted" else "disabled"
    os.environ.pop("RAY_ADDRESS", None)  # Ray prefers it to the address that it is given
    if address == "local":
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray writes one into the home folder
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on Linux as well: servers bind to loopback
    return address


def _token() -> str:
    """The user's token, where Ray looks for it; empty if there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    try:
        path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or home() / ".ray" / "auth_token")
        return read_bounded(path, _MAX_BYTES, links=True).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


_MAX_ADDRESS_BYTES = 107 if sys.platform == "linux" else 103
"""Bytes in the path of a Unix socket."""
_OF_RAY = "/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store"
"""Ray's longest name of a socket below its folder; the last number is that of a process."""
_SPARE = Path("/var/tmp")
"""Holds the folder if the user's cache can't: on a disk, unlike `$XDG_RUNTIME_DIR`, because Ray moves objects there."""


def take_folder() -> tuple[Path, BinaryIO]:
    """An absolute path, at which nothing is, for the folder of a cluster, and its lock: until that is closed, here and
    in the processes that inherit it, nobody else gets the same path.

    Raises `UserError` if there is no private folder, or none whose path is short enough for Ray's sockets.
    """
    reasons = []
    for parent in (program_folder("CACHE") / "ray", _SPARE / f"mario-tui-{os.getuid()}"):
        try:
            return _take_below(parent)
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror or error}")
    why = "; ".join(reasons)
    raise UserError(f"--ray: local: there is no folder for Ray's files ({why}); set XDG_CACHE_HOME to a short path")


def _take_below(parent: Path) -> tuple[Path, BinaryIO]:
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if parent.is_symlink():
        raise OSError(errno.ELOOP, "is a link")
    parent = parent.resolve()
    if flaw := way_in(parent):
        raise OSError(errno.EPERM, flaw)
    if not is_private(parent):
        raise OSError(errno.EPERM, "another user can write to it")
    for number in itertools.count():
        folder = parent / str(number)
        if (size := len(os.fsencode(folder)) + len(_OF_RAY)) > _MAX_ADDRESS_BYTES:
            reason = f"Ray's sockets would have paths of {size} bytes, and at most {_MAX_ADDRESS_BYTES} are possible"
            raise OSError(errno.ENAMETOOLONG, reason)
        lock = open_lock(folder.with_suffix(".lock"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():  # whoever should have deleted it was killed as well
                shutil.rmtree(folder)
        except BlockingIOError:  # another run's
            lock.close()
        except OSError:
            lock.close()
            raise
        else:
            return folder, lock
    raise AssertionError("numbers do not end")
