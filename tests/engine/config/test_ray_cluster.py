"""Where a cluster of this machine is found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ray._common.utils import get_ray_address_file

from engine.config.ray_cluster import address_of


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
    assert address_of("auto") == "first:6379"
