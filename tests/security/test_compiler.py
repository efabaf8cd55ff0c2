"""The compiler takes no code from a folder that others can write."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.console.compiler.code_cache import code_cache, sources_digest, user_cache
from engine.runtime.files import way_in
from tests.support.program import json_lines, run_program

ROOT = Path(__file__).resolve().parents[2]
OTHER = 12345
"""ID of another user and of that one's group."""
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; those of pytest are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder below which compiled code is kept; temporary files have one of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "mario-tui" / "code"


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


_COMPILE_LATE = """
import sys
from engine.console.compiler.kernels import kernel
sys.path.insert(0, sys.argv[1])
from two import two
two = kernel("int64")(two)
print(flush=True)
input()
print(two(0))
"""


@only_root
@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "MARIO_TUI_CODE"])
@pytest.mark.process
def test_planted_code_is_not_run_where_the_cache_lies_below_another_users_folder(
    variable: str, open_folder: Path
) -> None:
    mine = _theirs(open_folder)
    environment = {key: value for key, value in os.environ.items() if key != "MARIO_TUI_CODE"}
    environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(open_folder), "PYTHONDONTWRITEBYTECODE": "1"}
    compile_late = (sys.executable, "-c", _COMPILE_LATE, str(open_folder))
    for number in (3, 2):
        (open_folder / "two.py").write_text(f"def two(x): return {number}")
        kept = environment | {"MARIO_TUI_CODE": str(open_folder / f"code of {number}")}
        done = subprocess.run(compile_late, env=kept, text=True, input="\n", capture_output=True, check=True)
        assert done.stdout.split() == [str(number)]
    (other,), (right,) = ([*(open_folder / f"code of {number}").glob("two-*.o")] for number in (3, 2))
    with subprocess.Popen(
        compile_late, env=environment | {variable: str(mine)}, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        place = mine / right.name if variable == "MARIO_TUI_CODE" else user_cache_below(mine) / right.name
        put = 'cd "$0" && mv theirs/mine theirs/aside; mkdir -p "${1%/*}" && cat > "$1"'
        planted = other.read_bytes()
        subprocess.run(["sh", "-c", put, open_folder, place], input=planted, user=OTHER, stderr=subprocess.DEVNULL)
        assert place.read_bytes() == planted  # the other user did get that far
        assert process.communicate("\n")[0] == "2\n"


def user_cache_below(folder: Path) -> Path:
    """Where compiled code would be kept with this folder as `XDG_CACHE_HOME`."""
    return folder / "mario-tui" / "code" / sources_digest()


@only_root
@pytest.mark.long
@pytest.mark.process
def test_a_run_says_that_its_code_is_kept_elsewhere(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(_theirs(open_folder)))
    monkeypatch.setenv("TMPDIR", str(open_folder))
    kept = open_folder / f"mario-tui-code-{os.getuid()}" / code_cache().name
    shutil.copytree(code_cache(), kept)  # saves the time to compile
    kept.parent.chmod(0o700)
    monkeypatch.delenv("MARIO_TUI_CODE")
    done = run_program("--no-ui", "--log-format", "json", "--game", "snake", "--steps", "64", cwd=open_folder)
    said = [line["text"] for line in json_lines(done.stdout) if line["event"] == "warning"]
    assert said[0] == f"compiled code is kept in {kept}, because {open_folder / 'theirs'} belongs to another user"
    assert len(said) == 2, said  # and that nothing was learned
    assert [*open_folder.glob("mario-tui-code*")] == [kept.parent]
    assert not (open_folder / "theirs" / "mine" / "mario-tui" / "code").exists()


def _theirs(folder: Path) -> Path:
    (folder / "theirs" / "mine").mkdir(parents=True)
    os.chown(folder / "theirs", OTHER, OTHER)
    return folder / "theirs" / "mine"


def _link_of_theirs(folder: Path) -> Path:
    (folder / "mine").mkdir()
    (folder / "link").symlink_to("mine")
    os.chown(folder / "link", OTHER, OTHER, follow_symlinks=False)
    return folder / "link"


def _through_theirs(folder: Path) -> Path:
    """Links of this user that lead through a folder of another one, and back."""
    (folder / "mine").mkdir()
    (_theirs(folder).parent / "back").symlink_to("../mine")
    (folder / "link").symlink_to(folder / "theirs" / "back")
    return folder / "link"


def _of_mode(mode: int, group: int = OTHER) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "shared" / "mine").mkdir(parents=True)
        os.chown(folder / "shared", -1, group)
        (folder / "shared").chmod(mode)
        return folder / "shared" / "mine" / "missing"

    return make


def _circle(folder: Path) -> Path:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    return folder / "a"


@only_root
@pytest.mark.parametrize(
    ("make", "flaw"),
    [
        (_theirs, "theirs belongs to another user"),
        (_link_of_theirs, "link belongs to another user"),
        (_through_theirs, "theirs belongs to another user"),
        (lambda folder: _theirs(folder).parent / ".." / "mine", "theirs belongs to another user"),
        (_of_mode(0o757), "shared can be written by others"),
        (_of_mode(0o775), "shared can be written by others"),
        (_of_mode(0o775, pwd.getpwuid(os.getuid()).pw_gid), ""),
        (_of_mode(0o1777), ""),
        (_circle, "a leads in circles"),
    ],
)
def test_who_could_replace_a_folder_above(make: Callable[[Path], Path], flaw: str, tmp_path: Path) -> None:
    assert way_in(make(tmp_path)).removeprefix(f"{tmp_path}/") == flaw


@pytest.mark.parametrize("variable", ["MARIO_TUI_CODE", "XDG_CACHE_HOME"])
@pytest.mark.process
def test_relative_folders_do_not_lead_into_a_run(variable: str, tmp_path: Path) -> None:
    assert _cache_with(variable, "cache", tmp_path).is_relative_to(tmp_path / "home")
    assert not (tmp_path / "cache").exists()


@pytest.mark.process
def test_a_named_folder_into_which_others_can_put_files_is_not_used(tmp_path: Path) -> None:
    (sticky := tmp_path / "sticky").mkdir()
    sticky.chmod(0o1777)  # so nobody else can replace what is in it
    assert _cache_with("MARIO_TUI_CODE", str(sticky), tmp_path).is_relative_to(tmp_path / "home")
    assert _cache_with("MARIO_TUI_CODE", str(sticky / "mine"), tmp_path) == sticky / "mine"


def _cache_with(variable: str, value: str, folder: Path) -> Path:
    """Where a process that starts in a folder keeps compiled code."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MARIO_TUI_CODE", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), variable: value}
    show = "import engine.console.compiler.code_cache as c; print(c.code_cache(), end='')"
    command = [sys.executable, "-c", show]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout)


def test_a_prepared_temporary_folder_is_not_used_either(cache: Path, tmp_path: Path) -> None:
    prepared = tmp_path / "temporary" / f"mario-tui-code-{os.getuid()}"
    for folder in (cache, prepared):
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    found = user_cache("code")
    assert not found.is_relative_to(cache) and not found.is_relative_to(prepared)
    assert not any(found.iterdir())
    assert user_cache("code") == found  # other processes, and later ones, find it too
