"""The folder of a local Ray cluster: private, short, of one run, and never left over."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.errors import UserError
from engine.extras.ray import named_cluster
from engine.extras.ray.named_cluster import check_cluster, take_folder


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder with a short path; the spare folder can't be used."""
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_CACHE_HOME", str(Path(folder, "c")))
        monkeypatch.setattr(named_cluster, "_SPARE", Path(os.devnull))
        yield Path(folder, "c")


def test_each_run_has_a_private_folder_and_a_left_one_is_deleted(cache: Path) -> None:
    first, lock = take_folder()
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700 and first.parent.is_relative_to(cache)
    second, other_lock = take_folder()
    assert first != second
    (first / "session_1" / "logs").mkdir(parents=True)
    lock.close()  # as the kernel does when a run and its keeper are killed
    again, lock = take_folder()
    assert again == first and not first.exists()
    lock.close()
    other_lock.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other limits")
def test_the_longest_accepted_path_holds_rays_sockets(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = ""
    for length in range(60):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache / ("x" * length)))
        try:
            folder, lock = take_folder()
        except UserError as error:
            assert "Ray's sockets would have paths of 108 bytes, and at most 107" in str(error)
            with pytest.raises(UserError, match="XDG_CACHE_HOME"):
                check_cluster("local")
            break
        lock.close()
        longest = str(folder)
    name = Path(longest + "/session_2026-11-26_10-04-03_059127_4194304/sockets/plasma_store")
    name.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(name))


def test_a_long_cache_is_replaced_by_a_folder_on_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / ("x" * 60)))
    monkeypatch.setattr(named_cluster, "_SPARE", cache.parent)
    folder, lock = take_folder()
    lock.close()
    assert folder == cache.parent / f"mario-tui-{os.getuid()}" / "0"
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def is_a_file(parent: Path) -> None:
    parent.rmdir()
    parent.touch()


def is_a_link(parent: Path) -> None:
    parent.rmdir()
    parent.symlink_to(parent.parent.parent)


UNSAFE: dict[str, tuple[Callable[[Path], object], str]] = {
    "others may write to it": (lambda parent: parent.chmod(0o777), "can be written by others"),
    "others may replace it": (lambda parent: parent.parent.chmod(0o777), "can be written by others"),
    "it is a link": (is_a_link, "is a link"),
    "it is a file": (is_a_file, "File exists"),
}


@pytest.mark.parametrize("how", UNSAFE)
def test_a_folder_that_others_reach_is_not_used(how: str, cache: Path) -> None:
    make_unsafe, reason = UNSAFE[how]
    parent = cache / "mario-tui" / "ray"
    parent.mkdir(parents=True)
    make_unsafe(parent)
    with pytest.raises(UserError, match=reason):
        take_folder()
    assert not list(cache.rglob("*.lock"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_of_another_user_or_below_one_is_not_used(depth: int, cache: Path) -> None:
    parent = cache / "mario-tui" / "ray"
    parent.mkdir(parents=True)
    os.chown([parent, *parent.parents][depth], 65534, 65534)
    with pytest.raises(UserError, match="belongs to another user"):
        take_folder()


def test_sticky_folders_and_the_users_own_group_are_trusted(cache: Path) -> None:
    parent = cache / "mario-tui" / "ray"
    parent.mkdir(parents=True)
    parent.parent.chmod(0o1777)
    cache.chmod(0o770)
    folder, lock = take_folder()
    lock.close()
    assert folder.parent == parent
    shutil.rmtree(parent)
