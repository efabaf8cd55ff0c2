"""What is read before Ray joins a cluster: where one of this machine is, and its token."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ray._common.utils import get_ray_address_file

from engine.extras.ray import named_cluster


@pytest.mark.skipif(sys.platform != "linux", reason="Ray reads TMPDIR on Linux only")
@pytest.mark.parametrize("variables", [("TMPDIR",), ("RAY_TMPDIR",), ("TMPDIR", "RAY_TMPDIR")])
def test_auto_reads_the_address_where_ray_start_has_written_it(
    variables: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_ADDRESS", "TMPDIR", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, str(tmp_path / name))
    path = Path(get_ray_address_file(None))
    assert path.is_relative_to(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("first:6379\n")
    assert named_cluster.address_of("auto") == "first:6379"


@pytest.mark.parametrize(
    ("make", "token"),
    [
        (lambda path: path.write_text("abc123\n"), "abc123"),
        (lambda path: path.write_bytes(b"\xff\n"), ""),
        (os.mkfifo, ""),
        (lambda path: path.symlink_to("/dev/zero"), ""),
        (lambda path: path.mkdir(), ""),
    ],
)
def test_a_token_is_read_from_a_small_file(
    make: Callable[[Path], object], token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    make(path)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    assert named_cluster._token() == token
