"""Settings that Ray reads from the environment when it is imported, so they are set before that."""

from __future__ import annotations

import os


def prepare(address: str) -> None:
    """Prepare this process, before it imports Ray, for `--ray ADDRESS`: no usage statistics, no log prefixes, and for a
    local cluster nothing that listens beyond this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # the default of later versions, without its warning
    if address != "auto":
        os.environ.pop("RAY_ADDRESS", None)  # Ray prefers it to any other address
    if address == "local":
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on Linux as well: servers bind to loopback
