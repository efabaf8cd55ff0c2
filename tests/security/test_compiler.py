"""The compiler takes neither settings from the folder it works in, nor code from a folder that others can write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runtime.code_cache import user_cache

# PyYAML need not be installed for the test: numba asks it to parse the file, and this one can.
_SHOW_SETTINGS = """
import sys, types
yaml = types.ModuleType("yaml")
yaml.safe_load = lambda file: dict(line.strip().split(": ") for line in file)
sys.modules["yaml"] = yaml
import engine.runtime.jit, os
from numba.core import config
print(config.DISABLE_JIT, os.getcwd())
"""


def test_settings_in_the_working_directory_are_not_read(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("disable_jit: 1\n")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", _SHOW_SETTINGS], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["0", str(tmp_path)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which compiled code is kept; temporary files have one of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "mario-tui" / "numba"


def test_compiled_code_lies_where_only_this_user_gets(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o755)  # as an earlier version made it
    assert user_cache("code") == cache / "code"
    assert [path.stat().st_mode & 0o777 for path in (cache, cache / "code")] == [0o700, 0o700]


@pytest.mark.parametrize("where", ["parent", "folder"])
@pytest.mark.parametrize("what", ["writable", "link", "file", "another user's"])
def test_a_folder_that_others_can_write_is_not_used(where: str, what: str, cache: Path, tmp_path: Path) -> None:
    spoilt = cache if where == "parent" else cache / "code"
    spoilt.parent.mkdir(mode=0o700, parents=True)
    match what:
        case "writable":
            spoilt.mkdir()
            spoilt.chmod(0o777)
        case "link":
            (tmp_path / "elsewhere").mkdir()
            spoilt.symlink_to(tmp_path / "elsewhere")
        case "file":
            spoilt.touch()
        case _ if os.getuid() == 0:
            spoilt.mkdir()
            os.chown(spoilt, 12345, 12345)
        case _:
            pytest.skip("only root can make folders of other users")
    found = user_cache("code")
    assert found.is_relative_to(tmp_path / "temporary")
    assert found.stat().st_mode & 0o777 == 0o700 and found.stat().st_uid == os.getuid()


def test_a_prepared_temporary_folder_is_not_used_either(cache: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "temporary" / f"mario-tui-numba-{os.getuid()}"
    for folder in (cache, prepared):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    found = user_cache("code")
    assert not found.is_relative_to(cache) and not found.is_relative_to(prepared)
    assert not any(found.iterdir())
