"""Checkpoint folders: complete or absent, never executed, rotated, found by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.config.reading import ReportedLoop, make_config
from engine.config.run_config import RunConfig
from engine.host.run_files import CheckpointKeeper
from engine.protocol.commands import Checkpoint, Command, Pause, Resume
from engine.protocol.messages import Beat, Written
from engine.runs import checkpoints, lookup, marks
from engine.runs import replay_file as saved
from engine.runs.checkpoints import CheckpointError
from engine.runs.lookup import find_policy, find_run, find_source
from engine.runs.registry import create_run, list_runs
from engine.runs.replay_file import mapped_arrays
from engine.runs.run import Run
from tests.support.in_process import checkpoint_of, of_kind, train
from tests.support.policy_files import shipped


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create_run(RunConfig(run_dir=str(tmp_path / "runs")))


def write(run: Run, env_steps: int, content: bytes = b"weights") -> Path:
    partial, final = (
        run.path / f".{checkpoints.folder_name(env_steps)}.partial",
        run.path / checkpoints.folder_name(env_steps),
    )
    partial.mkdir()
    (partial / "policy.safetensors").write_bytes(content)
    checkpoints.seal(partial, env_steps, updates=env_steps // 8)
    checkpoints.commit(partial, final)
    return final


def test_a_sealed_folder_verifies_and_is_committed_whole(run: Run) -> None:
    final = write(run, 800)
    manifest = checkpoints.verify(final)
    assert (manifest.env_steps, manifest.updates) == (800, 100)
    assert checkpoints.committed(run) == [final]
    assert not list(run.path.glob(".step-*"))


def test_committing_the_same_step_again_replaces_it(run: Run) -> None:
    write(run, 8, b"old")
    assert (write(run, 8, b"new") / "policy.safetensors").read_bytes() == b"new"


@pytest.mark.parametrize("damage", [b"weightz", b"weigh", None])
def test_a_damaged_partial_checkpoint_is_not_recovered(run: Run, damage: bytes | None) -> None:
    partial = run.path / f".{checkpoints.folder_name(8)}.partial"
    partial.mkdir()
    (partial / "policy.safetensors").write_bytes(b"weights")
    checkpoints.seal(partial, 8, updates=1)
    if damage is not None:
        (partial / "policy.safetensors").write_bytes(damage)
    assert checkpoints.recover(run) == ([run.path / checkpoints.folder_name(8)] if damage is None else [])
    assert not partial.exists()


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "no manifest", "foreign manifest", "escape"])
def test_damage_is_reported_and_the_older_checkpoint_is_used(run: Run, damage: str) -> None:
    older, newer = write(run, 8), write(run, 16)
    file, manifest = newer / "policy.safetensors", newer / checkpoints.MANIFEST
    if damage == "truncate":
        file.write_bytes(b"weigh")
    elif damage == "flip":
        file.write_bytes(b"weightz")
    elif damage == "remove":
        file.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "foreign manifest":
        manifest.write_bytes(pickle.dumps({"env_steps": 16}))
    else:  # a manifest that points outside the folder
        said = json.loads(manifest.read_text())
        said["files"]["../run.json"] = said["files"]["policy.safetensors"]
        manifest.write_text(json.dumps(said))
    with pytest.raises(CheckpointError, match=str(newer)):
        checkpoints.verify(newer)
    assert checkpoints.newest(run) == older


def test_a_checkpoint_of_a_later_format_is_refused(run: Run) -> None:
    final = write(run, 8)
    manifest = json.loads((final / checkpoints.MANIFEST).read_text())
    manifest["format"] = 99
    (final / checkpoints.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"written by a newer version of mario-tui \(format 99\); this one reads"):
        checkpoints.verify(final)


def test_the_oldest_gives_way_while_a_newer_one_is_intact(run: Run) -> None:
    one, two, three = (write(run, env_steps) for env_steps in (100, 200, 300))
    (three / "policy.safetensors").write_bytes(b"damaged")
    assert checkpoints.give_way(run) == one
    assert checkpoints.give_way(run) is None  # the oldest is the only intact one now
    assert checkpoints.committed(run) == [two, three]
    write(run, 400)
    assert checkpoints.give_way(run) == two


def test_rotation_keeps_the_newest(run: Run) -> None:
    for steps in (8, 16, 24, 32):
        write(run, steps)
    checkpoints.rotate(run, 2)
    assert [path.name for path in checkpoints.committed(run)] == ["step-000000000024", "step-000000000032"]


@pytest.mark.parametrize(
    ("later", "left"), [((24, 40, 48), (32, 40, 48)), ((24, 32, 40, 48), (40, 48))], ids=["passed", "replaced"]
)
async def test_a_damaged_checkpoint_takes_the_place_of_no_good_one(
    later: tuple[int, ...], left: tuple[int, ...], run: Run
) -> None:
    for steps in (8, 16, 32):
        write(run, steps)
    damaged = run.path / "step-000000000032"
    (damaged / "manifest.json").write_bytes(b"{")
    keeper = CheckpointKeeper(run, keep=2, start=checkpoints.newest(run))
    assert [level for level, _ in keeper.recover()] == ["warning"]
    for steps in later:  # the run goes on from 16
        final = run.path / checkpoints.folder_name(steps)
        partial = run.path / f".{final.name}.partial"
        partial.mkdir()
        checkpoints.seal(partial, steps, updates=1)
        assert await keeper.commit(Written(partial=str(partial), final=str(final), env_steps=steps)) is None
    names = [checkpoints.folder_name(steps) for steps in left]
    assert [path.name for path in checkpoints.committed(run)] == names


def test_a_newest_checkpoint_without_its_manifest_is_named_in_a_warning(run: Run) -> None:
    older, newer = write(run, 8), write(run, 16)
    (newer / "manifest.json").unlink()
    skipped: list[str] = []
    assert checkpoints.newest(run, skipped.append) == older
    assert skipped == [f"{newer}: not a checkpoint of mario-tui (no manifest.json)"]
    keeper = CheckpointKeeper(run, keep=2, start=older)
    assert keeper.recover() == [("warning", f"skipping a newer checkpoint: {skipped[0]}")]


def test_sources_by_name_path_and_latest(run: Run, tmp_path: Path) -> None:
    older, newer = write(run, 8), write(run, 16)
    folder = tmp_path / "runs"
    for spec in (run.name, str(run.path), "latest", str(newer)):
        source = find_source(spec, folder)
        assert (source.path, source.run and source.run.path) == (newer, run.path)
    assert find_source(str(older), folder).run is None  # an older one begins a new run


def test_a_pickle_is_refused_as_policy(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "executed"),))

    path = tmp_path / "policy.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="not a policy of mario-tui"):
        find_policy(str(path), tmp_path)
    assert not (tmp_path / "executed").exists()


def test_runs_are_found_from_any_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert [found.path for found in list_runs()] == [run.path]
    assert find_run(run.name).path == run.path
    run.path.joinpath("run.json").unlink()
    assert list_runs() == []


def test_mapped_arrays_equal_the_saved_ones(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    saved = {
        name: random.integers(0, 2, shape).astype(name)
        for name, shape in {"bool": (3,), "uint8": (2, 3, 5), "int64": (7,), "uint32": (1, 1), "int16": (3, 2),
                            "int32": (4,), "float32": (2, 2), "float64": (0, 3)}.items()
    }  # fmt: skip
    save_file(saved, tmp_path / "arrays", metadata={"of": "a test"})
    found = mapped_arrays(tmp_path / "arrays")
    assert found.keys() == saved.keys()
    for name, array in saved.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        found[name][...] = 1
    assert all(np.array_equal(array, saved[name]) for name, array in mapped_arrays(tmp_path / "arrays").items())


def test_checkpoints_of_the_same_step_do_not_interfere(tmp_path: Path) -> None:
    """The host commits one while the next is being written."""
    options = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32}
    wanted: list[Command] = [*[Checkpoint()] * 7, Resume()]
    answer = lambda report: [wanted.pop(0)] if isinstance(report, Written) and wanted else []  # noqa: E731
    reports = train(tmp_path, options, 80, commands=[Pause(), Checkpoint()], respond=answer)
    written = of_kind(Written, reports)
    assert len(written) == 9 and len({report.partial for report in written}) == 9
    assert {path.name for path in tmp_path.glob("*step-*")} == {Path(report.final).name for report in written}
    for report in written:
        checkpoints.verify(Path(report.final))


def test_a_slow_checkpoint_is_not_taken_for_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat is sent for every piece of the replay, when it is written and when its checksum is computed."""
    monkeypatch.setattr(saved, "PIECE_BYTES", 2**12)
    monkeypatch.setattr(checkpoints, "_PIECE_BYTES", 2**12)
    options = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000}
    reports = train(tmp_path, options, 400)
    pieces = (checkpoint_of(reports) / "replay.safetensors").stat().st_size // 2**12
    assert len([beat for beat in of_kind(Beat, reports) if beat.within_s > 60]) > 2 * pieces > 10


def test_a_loop_may_begin_as_often_as_its_user_likes(tmp_path: Path) -> None:
    described = ReportedLoop(game="Pole-v1", steps=0, run_dir=str(tmp_path))
    names = [create_run(described, "pole", numbered=True).name for _ in range(101)]
    assert names[0] == "pole" and names[1] == "pole-2" and names[-1] == "pole-101"


def test_latest_is_the_newest_run_that_has_a_policy(tmp_path: Path) -> None:
    config = RunConfig(run_dir=str(tmp_path / "runs"))
    older = create_run(config)
    (older.path / checkpoints.BEST_POLICY_FILE).write_bytes(shipped("mario-1-1").read_bytes())
    create_run(config)  # it failed at once
    assert find_policy("latest", tmp_path / "runs") == older.path / checkpoints.BEST_POLICY_FILE


def test_a_run_is_resumed_though_a_folder_has_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = write(run, 8)
    (tmp_path / run.name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_source(run.name, tmp_path / "runs").path == newest
    with pytest.raises(CheckpointError, match="runs: not a checkpoint of mario-tui"):
        find_source("runs", tmp_path / "runs")


def test_an_entry_that_is_being_written_is_no_removed_run(run: Run) -> None:
    entry = marks.mark_of("runs", run.path)
    entry.write_text("")
    list_runs()
    assert entry.exists()


def test_a_run_is_deleted_though_its_entry_can_not_be(run: Run) -> None:
    entry = marks.mark_of("runs", run.path)
    entry.unlink()
    entry.mkdir()
    lookup.delete(run)
    assert not run.path.exists()


def test_as_many_steps_as_are_accepted_can_be_recorded(tmp_path: Path) -> None:
    run = create_run(make_config({"run_dir": str(tmp_path), "steps": 2**53}))
    assert run.record().steps == 2**53


async def test_a_commit_that_failed_after_the_renaming_can_be_repeated(run: Run) -> None:
    write(run, 8)
    final = run.path / checkpoints.folder_name(8)
    written = Written(partial=str(run.path / f".{final.name}.partial"), final=str(final), env_steps=8)
    keeper = CheckpointKeeper(run, keep=2, start=None)
    assert await keeper.commit(written) is None
    assert (keeper.newest, keeper.env_steps) == (final, 8)
