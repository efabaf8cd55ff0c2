"""The network interface by which gloo reaches the ranks on other machines."""

from __future__ import annotations

import os
import socket

import psutil

from engine.config.torchrun import TorchrunRank
from engine.errors import UserError
from engine.runners.rank_group import LOOPBACK

_SOMEWHERE = "192.0.2.1"
"""An address that is never in use (RFC 5737); the interface that would lead there is that of the default route."""


def use_interface(rank: TorchrunRank) -> None:
    """Unless the user has named an interface, let gloo use the one that leads to rank 0, or that of the default route.

    Gloo itself takes that of the machine's name, which many systems resolve to loopback. Raises `UserError` if there is
    none that reaches other machines.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    if rank.local_ranks == rank.ranks:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK
        return
    for host in (os.environ["MASTER_ADDR"], _SOMEWHERE):
        name = _interface_to(host)
        if name and name != LOOPBACK:
            os.environ["GLOO_SOCKET_IFNAME"] = name
            return
    raise UserError("no network interface leads to the other machines; name one: GLOO_SOCKET_IFNAME=eth0")


def _interface_to(host: str) -> str:
    """The interface whose address packets to a host would have; empty if there is none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        return ""
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return name
    return ""
