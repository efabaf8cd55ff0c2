"""The head of a Ray cluster: where it is, whether it answers, and the environment that Ray needs to join it.

Ray is not imported here: it reads these variables when it is imported, and given a wrong address it would try for
minutes.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

Answer = Literal["open", "token accepted", "token needed", "no cluster"]

_METHOD = "/ray.rpc.NodeInfoGcsService/GetClusterId"


def address_of(asked: str) -> str | None:
    """HOST:PORT of the head that `--ray` asks for; None for `auto` where no cluster was started."""
    if asked != "auto":
        return asked
    if address := os.environ.get("RAY_ADDRESS"):
        return address
    try:  # `ray start` writes it
        return Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster").read_text("utf-8").strip()
    except (OSError, ValueError):
        return None


def answer_of(address: str, timeout_s: float) -> Answer:
    """What the server at HOST:PORT makes of a call that Ray's heads know.

    Raises `OSError` if there is no server.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
    import grpc  # a dependency of TensorBoard; slow to import

    token = _token()
    with grpc.insecure_channel(address) as channel:
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


def prepare(asked: str, timeout_s: float = 2.0) -> str:
    """Set the variables for `--ray ASKED`, before Ray is imported, and return the address to connect to.

    No usage statistics. The token that a cluster needs, and none for others. A local cluster listens on no other
    interface than loopback.
    """
    address = address_of(asked) or asked
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # the default of later versions, without its warning
    os.environ.pop("RAY_ADDRESS", None)  # Ray prefers it to the address that it is given
    if address == "local":
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on Linux as well: servers bind to loopback
    elif "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = "token" if answer_of(address, timeout_s) == "token accepted" else "disabled"
    return address


def _token() -> str:
    """The user's token, where Ray looks for it; empty if there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    try:
        path = os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token"
        return Path(path).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
