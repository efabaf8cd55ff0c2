"""A run's folder that somebody else prepared: no file outside it is read, written or waited for."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.buffers.memory import MappedMemory
from engine.config.reading import make_config
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.host.event_server import socket_path
from engine.runners.learning.checkpoint import save_policy
from engine.runs import checkpoints
from engine.runs.lookup import delete, find_run, find_source
from engine.runs.marks import RECORD_FILE, check_own
from engine.runs.recording import read_recording
from engine.runs.registry import create_run, list_runs
from engine.runs.replay_file import save_arrays
from engine.runs.run import Run
from engine.runtime.stopwatch import Stopwatch, write_part
from tests.support.learner import make_learner
from tests.support.odd_files import ODD_FILES
from tests.support.program import (
    PATIENCE_S,
    PROGRAM,
    headless,
    private_disk,
    processes_of,
    read_event,
    run_program,
    the_run,
    wait_until,
)

SNAKE = ("--game", "snake", "--board", "5x5", "--burnin", "100", "--eval-every", "0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a short run was trained, with a replay in files."""
    folder = tmp_path_factory.mktemp("trained")
    options = (*SNAKE, "--parallel-envs", "2", "--steps", "200", "--use-mmap-buffer", "--buffer-size", "400")
    run_program("--no-ui", *options, cwd=folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    """A copy of its run, which may be spoilt."""
    shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    return the_run(tmp_path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's outside the run's folder."""
    path = tmp_path / "authorized_keys"
    path.write_bytes(b"mine\n" * 1000)
    return path


def checkpoint_of(run: Run) -> Path:
    return checkpoints.committed(run)[-1]


LINKED: dict[str, Callable[[Run], Path]] = {
    "log": lambda run: run.log_path,
    "lock": lambda run: run.path / "run.lock",
    "record": lambda run: run.path / RECORD_FILE,
    "options": lambda run: run.path / "config.toml",
    "recording": lambda run: run.history_path,
    "replay": lambda run: run.path / "replay" / "frames.bin",
    "replay's header": lambda run: run.path / "replay" / "header.json",
    "folder of the replay": lambda run: run.path / "replay",
    "policies": lambda run: run.path / "policies",
    "best policy": lambda run: run.path / ".best.safetensors.partial",
    "manifest": lambda run: checkpoint_of(run) / "manifest.json",
    "weights": lambda run: checkpoint_of(run) / "online.safetensors",
    "nested": lambda run: checkpoint_of(run) / "a",
}


@pytest.mark.parametrize("where", LINKED)
@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "socket"])
@pytest.mark.process
def test_a_run_with_anything_but_files_and_folders_is_not_resumed(
    where: str, kind: str, run: Run, secret: Path, tmp_path: Path
) -> None:
    path = LINKED[where](run)
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    links = {"link": path.symlink_to, "hard link": path.hardlink_to}
    links[kind](secret) if kind in links else ODD_FILES[kind](path)
    before = state_of(secret)
    with pytest.raises(UserError, match="may hold only files"):
        HostProcess(run)
    assert state_of(secret) == before


def state_of(path: Path) -> tuple[bytes, int, int]:
    """What must not change about a file."""
    return path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("link", "is a link; a run's folder may hold only files and folders"),
        ("hard link", "is a hard link; a run's folder may hold only files of one name (cp -r makes such)"),
    ],
)
@pytest.mark.process
def test_the_program_refuses_in_one_line_and_writes_nothing(
    kind: str, complaint: str, run: Run, secret: Path, tmp_path: Path
) -> None:
    run.log_path.unlink()
    link(kind, run.log_path, secret)
    before = state_of(secret)
    done = run_program("--no-ui", "--resume", "latest", "--steps", "400", cwd=tmp_path, check=2)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"mario-tui: error: {run.log_path}: {complaint}"]
    assert state_of(secret) == before


def link(kind: str, path: Path, to: Path) -> None:
    path.symlink_to(to) if kind == "link" else path.hardlink_to(to)


class PlantedLinks:
    """Files of the user's to which links lead from the places that are written to."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._files: list[Path] = []
        folder.mkdir()

    def at(self, *paths: Path) -> None:
        for path in paths:
            self._files.append(self._folder / f"{len(self._files)}")
            self._files[-1].write_bytes(b"mine\n" * 1000)
            self._files[-1].chmod(0o644)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            link(self._kind, path, self._files[-1])
        self._before = [state_of(file) for file in self._files]

    def assert_untouched(self) -> None:
        assert [state_of(file) for file in self._files] == self._before


@pytest.fixture(params=["link", "hard link"])
def links(request: pytest.FixtureRequest, tmp_path: Path) -> PlantedLinks:
    return PlantedLinks(tmp_path / "mine", request.param)


@pytest.mark.parametrize("name", ["run.log", "run.lock"])
@pytest.mark.process
def test_a_link_that_comes_after_the_check_is_not_followed(
    name: str, links: PlantedLinks, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.host.client.check_own", lambda folder: links.at(folder / name))
    with pytest.raises(OSError, match=r"is a (hard )?link"):
        HostProcess(run)
    links.assert_untouched()


@pytest.mark.process
def test_a_run_is_not_deleted_through_a_linked_lock(links: PlantedLinks, run: Run) -> None:
    links.at(run.path / "run.lock")
    with pytest.raises(UserError, match="can't be removed"):
        delete(run)
    links.assert_untouched()


LAYOUT = {"frames": ((1, 400), np.uint8)}


@pytest.mark.parametrize("name", ["lock", "frames.bin"])
def test_a_replay_in_files_is_not_mapped_through_links(name: str, links: PlantedLinks, tmp_path: Path) -> None:
    links.at(tmp_path / "replay" / name)
    with pytest.raises(UserError, match=r"is a (hard )?link"):
        MappedMemory(tmp_path / "replay").arrays(LAYOUT)
    links.assert_untouched()


def test_what_a_runs_processes_write_replaces_links(links: PlantedLinks, tmp_path: Path) -> None:
    replay, part, arrays = tmp_path / "replay", tmp_path / "trace-1.part.json", tmp_path / "replay.safetensors"
    from engine.extras.playing.play import Recording

    policy, video = tmp_path / ".best.safetensors.partial", tmp_path / "played.gif"
    learner = make_learner()
    links.at(replay / ".header.json.partial", part, part.with_suffix(".partial"), arrays, policy)
    links.at(video.with_name(".played.partial.gif"))
    MappedMemory(replay).arrays(LAYOUT)
    write_part(Stopwatch(), part, "learner")
    save_arrays(arrays, {"frames": np.ones((2, 3), np.uint8)})
    save_policy(learner, policy, 0)
    recording = Recording(video)
    recording.video.add(np.zeros((8, 8, 3), np.uint8))
    recording.finish()
    links.assert_untouched()
    for path in (replay / "header.json", part, arrays, policy, video):
        assert not path.is_symlink() and path.stat().st_nlink == 1 and path.stat().st_size > 0


@pytest.mark.parametrize("name", ["policies", "run.lock"])
@pytest.mark.process
def test_a_host_that_is_started_by_hand_refuses_as_well(name: str, run: Run, secret: Path) -> None:
    (run.path / name).unlink(missing_ok=True)
    (run.path / name).symlink_to(secret.parent)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "engine.host", str(run.path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{name}: is a link" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to other users")
@pytest.mark.parametrize("what", [".", RECORD_FILE, "run.log", "replay/frames.bin"])
@pytest.mark.process
def test_a_run_of_another_user_is_neither_latest_nor_resumed(what: str, run: Run, tmp_path: Path) -> None:
    os.chown(run.path / what, 12345, 12345)
    with pytest.raises(UserError, match=r"belongs to user 12345; only the owner of a run can write to it"):
        HostProcess(run)
    if what in (".", RECORD_FILE):
        assert list_runs(tmp_path / "checkpoints") == []
        with pytest.raises(UserError, match="there is no run"):
            find_run("latest", tmp_path / "checkpoints")


@pytest.mark.process
def test_a_copied_run_resumes(run: Run, tmp_path: Path) -> None:
    """What all of the above changed by one thing alone."""
    check_own(run.path)
    run_program("--no-ui", "--resume", "latest", "--steps", "300", cwd=tmp_path)


@pytest.mark.parametrize("created_at", [9e9, 4_070_908_800.0, 0.0])
def test_a_date_that_can_not_be_is_older_than_all_others(created_at: float, tmp_path: Path) -> None:
    older, newer = (create_run(make_config({"game": "snake", "run_dir": str(tmp_path)})) for _ in range(2))
    record = older.record()
    record.created_at = created_at
    older.write_record(record)
    assert [run.path for run in list_runs(tmp_path)] == [newer.path, older.path]
    assert find_run("latest", tmp_path).path == newer.path


def spoilt_record(run: Run, **values: object) -> bytes:
    record = msgspec.json.decode((run.path / RECORD_FILE).read_bytes())
    return msgspec.json.encode({**record, **values})


RECORDS: dict[str, bytes | Callable[[Run], bytes]] = {
    "empty": b"",
    "no JSON": b"\xff\xfe{}",
    "another type": b"[]",
    "no UTF-8": b'{"name": "\x80"}',
    "nested": b'{"name":' * 200_000,
    "nested lists": b"[" * 200_000,
    "huge number": lambda run: spoilt_record(run).replace(b'"env_steps":', b'"env_steps":1' + b"0" * 400 + b',"x":'),
    "negative": lambda run: spoilt_record(run, steps=-5),
    "1e300": lambda run: spoilt_record(run, wall_s=1e300),
    "inf": lambda run: spoilt_record(run).replace(b'"wall_s":', b'"wall_s":1e999,"x":'),
    "NaN": lambda run: spoilt_record(run).replace(b'"wall_s":', b'"wall_s":NaN,"x":'),
    "future": lambda run: spoilt_record(run, created_at=1e200),
    "text for a number": lambda run: spoilt_record(run, episodes="many"),
    "unknown state": lambda run: spoilt_record(run, state="excellent"),
    "large": b" " * (2**20 + 1),
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.process
def test_one_bad_record_is_listed_as_damaged_beside_the_others(name: str, run: Run, tmp_path: Path) -> None:
    content = RECORDS[name]
    good = create_run(make_config({"game": "snake", "run_dir": str(run.path.parent)}))
    (run.path / RECORD_FILE).write_bytes(content if isinstance(content, bytes) else content(run))
    found = {each.name: each.record() for each in list_runs(run.path.parent)}
    assert found[good.name].state != "damaged"
    assert found[run.name].state == "damaged"
    assert found[run.name].reason.startswith(RECORD_FILE)


@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.process
def test_a_record_that_is_no_small_file_is_never_waited_for(kind: str, run: Run) -> None:
    path = run.path / RECORD_FILE
    path.unlink()
    ODD_FILES[kind](path)
    for each in list_runs(run.path.parent):
        assert each.record().state == "damaged"
    assert run.record().state == "damaged"


OPTIONS: dict[str, bytes] = {
    "no TOML": b"= 3",
    "not UTF-8": b'game = "\xff"',
    "nested": b"a = " + b"[" * 100_000,
    "digits": b"steps = " + b"9" * 5000,
    "NaN": b"learning_rate = nan",
    "inf": b"learning_rate = inf",
    "negative": b"steps = -1",
    "unknown": b'shell = "rm"',
    "another type": b"steps = [1]",
    "large": b"#" * (2**20 + 1),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.process
def test_bad_options_are_one_line(name: str, run: Run, tmp_path: Path) -> None:
    (run.path / "config.toml").write_bytes(OPTIONS[name])
    with pytest.raises(UserError) as refused:
        run.config()
    assert len(str(refused.value).splitlines()) == 1 and "config.toml" in str(refused.value)
    assert len(str(refused.value)) < 2000  # the names of all options at most
    (run.path / RECORD_FILE).write_bytes(b"")
    assert list_runs(run.path.parent)[0].record().state == "damaged"  # and the list stays


RECORDINGS: dict[str, bytes] = {
    "no recording": b"recording",
    "half a header": b"\x00\x00",
    "a body that is missing": b"\x03\xff\xff\xff",
    "nested": b"\x00\x01\x86\xa0" + b"\x91" * 100_000,
    "nested in an unknown field": b"\x00\x01\x86\xac\x82\xa4type\xa5Point\xa1x" + b"\x91" * 100_000,
    "too long": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_bad_recordings_are_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "history.msgpack"
    path.write_bytes(RECORDINGS[name])
    with pytest.raises(UserError, match="not a recording of mario-tui"):
        read_recording(path)


def test_a_sparse_policy_that_claims_a_large_header_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes((6 * 2**30).to_bytes(8, "little"))
    os.truncate(path, 7 * 2**30)
    with pytest.raises(UserError, match="not a policy of mario-tui"):
        checkpoints.policy_metadata(path)


@pytest.mark.parametrize("header", [b"[" * 200_000, b'{"__metadata__":' * 50_000, b"null", b"[]", b"{}", b"\xff" * 8])
def test_bad_headers_of_policies_are_one_line(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(UserError, match="not a policy of mario-tui"):
        checkpoints.policy_metadata(path)


MANIFESTS: dict[str, tuple[bytes, str]] = {
    "older": (b'{"format": 3}', "written by an older version"),
    "newer": (b'{"format": 99, "new": {}}', "written by a newer version"),
    "no JSON": (b"{", "damaged"),
    "nested": (b"[" * 200_000, "damaged"),
    "elsewhere": (
        b'{"format":4,"version":"1","env_steps":1,"updates":1,"files":{"../../run.json":{"size":1,"sha256":""}}}',
        "missing from the checkpoint",
    ),
    "negative": (b'{"format":4,"version":"1","env_steps":-1,"updates":1,"files":{}}', "damaged"),
    "large": (b" " * (2**24 + 1), "can't be read"),
}


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.process
def test_bad_manifests_are_one_line_that_tells_what_is_wrong(name: str, run: Run) -> None:
    folder = checkpoint_of(run)
    content, complaint = MANIFESTS[name]
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(UserError, match=complaint) as refused:
        checkpoints.verify(folder)
    assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(UserError, match=f"has no complete checkpoint.*{complaint}"):
        find_source(str(run.path), None)


# ------------------------------------------------------------------------------------------ hosts of one run


@pytest.mark.long
@pytest.mark.process
def test_of_several_that_resume_at_once_one_starts_with_its_own_options(run: Run, tmp_path: Path) -> None:
    endless = [10_000_000 + number for number in range(3)]
    arguments = [sys.executable, "-m", "mario_tui", "--no-ui", "--log-format", "json", "--resume", run.name]
    programs = [
        subprocess.Popen([*arguments, "--steps", str(steps)], cwd=tmp_path, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
        for steps in endless
    ]  # fmt: skip
    try:
        wait_until(lambda: sum(program.poll() is None for program in programs) == 1, "one that is left")
        (winner,) = (number for number, program in enumerate(programs) if program.poll() is None)
        assert run.config().steps == endless[winner]
        for number, program in enumerate(programs):
            if number != winner:
                assert program.returncode == 2
                assert "running" in program.communicate()[1]
        read_event(programs[winner], "progress", state="running")
        programs[winner].terminate()
        programs[winner].communicate(timeout=PATIENCE_S)
        assert programs[winner].returncode == 0
    finally:
        for program in programs:
            program.kill()
            program.communicate()


@pytest.mark.process
def test_a_second_host_refuses_though_the_lock_vanished(tmp_path: Path) -> None:
    with headless(*SNAKE, "--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        run = the_run(tmp_path)
        (run.path / "run.lock").unlink()
        assert run.is_alive()
        with pytest.raises(UserError, match="is already running"):
            HostProcess(run)


@pytest.mark.process
def test_commands_to_a_folder_whose_record_names_another_runs_host_do_not_reach_that(run: Run, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    with headless(*SNAKE, "--steps", "100000000", cwd=other) as process:
        read_event(process, "progress", state="running")
        real = the_run(other)
        with run.lock():
            run.write_record(real.record())
            for command in ("pause", "stop"):
                done = run_program(command, str(run.path), cwd=tmp_path, check=2)
                named = f"the host of another run, {real.name} at {real.path}; was the folder copied?"
                assert done.stderr == f"mario-tui: error: {run.name}: its record names {named}\n"
        assert real.record().state == "running"
        assert run_program("pause", str(real.path), cwd=tmp_path).stdout == f"{real.name}: paused\n"


@pytest.mark.parametrize("runner", ["single", pytest.param("parallel", marks=pytest.mark.long)])
@pytest.mark.process
def test_a_run_opens_no_port(runner: str, tmp_path: Path) -> None:
    with headless(*SNAKE, "--runner", runner, "--steps", "100000000", cwd=tmp_path) as process:
        read_event(process, "progress", state="running")
        others = processes_of(tmp_path)
        assert len(others) > 1 and not [port for each in others for port in each.net_connections("inet")]


def test_a_file_that_goes_while_a_folder_is_checked_is_no_error(tmp_path: Path) -> None:
    checked = threading.Event()

    def come_and_go() -> None:
        while not checked.is_set():
            (tmp_path / "step-1").mkdir()
            (tmp_path / "step-1" / "x").touch()
            shutil.rmtree(tmp_path / "step-1")

    host = threading.Thread(target=come_and_go)
    host.start()
    try:
        for _ in range(3000):
            check_own(tmp_path)
    finally:
        checked.set()
        host.join()


def test_the_lock_is_nobody_elses_to_take(tmp_path: Path) -> None:
    run = create_run(make_config({"game": "snake", "run_dir": str(tmp_path)}))
    (run.path / "run.lock").touch(0o644)
    with run.lock() as lock:
        assert os.fstat(lock.fileno()).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("prepared", ["open", "file", "link", "below another's"])
def test_a_prepared_folder_for_sockets_is_not_used(
    prepared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spoilt = tmp_path / f"mario-tui-{os.getuid()}"
    if prepared == "open":
        spoilt.mkdir()
        spoilt.chmod(0o777)
    elif prepared == "file":
        spoilt.touch()
    elif prepared == "below another's":
        if os.getuid() != 0:
            pytest.skip("only root can make folders of other users")
        os.chown(tmp_path, 12345, -1)
    else:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        spoilt.symlink_to(tmp_path / "elsewhere")
    address = socket_path(Run(tmp_path / "run"))
    assert address.parent != spoilt
    assert address.parent.stat().st_mode & 0o777 == 0o700 and address.parent.stat().st_uid == os.getuid()


@pytest.mark.process
def test_runs_share_the_folder_for_sockets_that_replaces_a_prepared_one() -> None:
    code = """
import os
from pathlib import Path
from engine.host.event_server import socket_path
from engine.runs.run import Run
Path(f"mario-tui-{os.getuid()}").touch()
print({socket_path(Run(Path(name))).parent.name[:12] for name in "abc"}, len(os.listdir()))
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "XDG_RUNTIME_DIR")}
    command = [*private_disk(Path("/tmp"), "1m"), sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True) == "{'mario-tui-0.'} 2\n"


@pytest.mark.process
def test_the_next_host_removes_the_sockets_of_killed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    listen = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os.kill(0, 9)"
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime, socket.socket(socket.AF_UNIX) as suspended:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        killed, just_killed, alive = (socket_path(Run(Path(runtime, name))) for name in "abc")
        suspended.bind(str(alive))
        suspended.listen()
        for address in (killed, just_killed):
            assert (
                subprocess.call([sys.executable, "-c", listen, str(address)], start_new_session=True) == -signal.SIGKILL
            )
        for address in (killed, alive):  # nobody has dated them since
            os.utime(address, (0, 0))
        (address.parent / "notes.sock").write_text("no socket")
        os.utime(address.parent / "notes.sock", (0, 0))
        socket_path(Run(Path(runtime, "d")))
        assert {each.name for each in killed.parent.iterdir()} == {just_killed.name, alive.name, "notes.sock"}


def test_a_long_runtime_folder_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / ("x" * 120)
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with socket.socket(socket.AF_UNIX) as server:
        address = socket_path(Run(tmp_path / "run"))
        server.bind(str(address))
        address.unlink()


def test_the_registry_keeps_runs_of_a_disk_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    disk = tmp_path / "disk"
    run, removed = (create_run(make_config({"game": "snake", "run_dir": str(disk / name)})) for name in "ab")
    create_run(make_config({"game": "snake", "run_dir": str(disk / "b")}))
    shutil.rmtree(removed.path)
    assert len(list_runs()) == 2
    disk.rename(tmp_path / "away")
    disk.mkdir()
    assert list_runs() == []
    disk.rmdir()
    (tmp_path / "away").rename(disk)
    assert run.path in [each.path for each in list_runs()]
    assert len(list((tmp_path / "state" / "mario-tui" / "runs").iterdir())) == 2


# ------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.process
def test_a_complete_checkpoint_that_was_not_committed_is_taken_over(run: Run, tmp_path: Path) -> None:
    folder = checkpoint_of(run)
    before = checkpoints.verify(folder).env_steps
    folder.rename(run.path / f".{folder.name}.7.partial")
    (run.path / ".step-000000009999.1.partial").mkdir()  # of a writer that was killed
    assert checkpoints.recover(run) == [folder]
    assert checkpoints.verify(folder).env_steps == before
    assert not list(run.path.glob(".step-*"))


@pytest.mark.process
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_line(run: Run, tmp_path: Path) -> None:
    newest = checkpoint_of(run)
    damaged = newest.with_name("step-000000000250")
    shutil.copytree(newest, damaged)
    (damaged / "online.safetensors").write_bytes(b"spoilt")
    done = run_program("--no-ui", "--log-format", "json", "--resume", "latest", "--steps", "300", cwd=tmp_path)
    assert "skipping a newer checkpoint" in done.stdout and "online.safetensors: damaged" in done.stdout


@pytest.mark.process
def test_a_host_whose_checkpoint_is_unreadable_leaves_the_recording_alone(run: Run) -> None:
    newest, before = checkpoint_of(run), run.history_path.read_bytes()
    (newest / "manifest.json").write_bytes(b"{")
    command = [sys.executable, "-m", "engine.host", str(run.path), "--resume", str(newest)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert run.history_path.read_bytes() == before
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "manifest.json: damaged" in done.stderr


@pytest.mark.process
def test_reading_fails_with_the_real_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors every file of a checkpoint seemed to be missing."""
    import resource

    folder, limits = checkpoint_of(run), resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open("/dev/null", os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, limits[1]))
        with pytest.raises(UserError, match="Too many open files"):
            checkpoints.verify(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(held[0])


@pytest.mark.long
@pytest.mark.process
def test_a_run_with_few_file_descriptors_writes_all_checkpoints(tmp_path: Path) -> None:
    options = (*SNAKE, "--steps", "600", "--save-every", "100", "--keep", "6")
    command = [*PROGRAM, "--no-ui", *options]
    limited = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", *command]  # some 20 are needed
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(checkpoints.committed(the_run(tmp_path))) == 6


@pytest.mark.process
def test_a_folder_whose_name_is_not_utf8_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"runs-\xff")
    done = run_program("--no-ui", *SNAKE, "--run-dir", str(folder), cwd=tmp_path, check=2)
    assert done.stderr.startswith("mario-tui: error: ") and "must be valid UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not folder.exists()


@pytest.mark.process
def test_a_run_in_a_folder_whose_name_is_not_utf8_is_left_out_of_lists(run: Run, tmp_path: Path) -> None:
    renamed = run.path.with_name(os.fsdecode(b"run-\xff"))
    run.path.rename(renamed)
    assert list_runs(renamed.parent) == []
    assert "must be valid UTF-8" in run_program("attach", str(renamed), cwd=tmp_path, check=2).stderr
