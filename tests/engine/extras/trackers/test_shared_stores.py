"""The runs of a sweep share one store of a tracker; whatever is not a sweep of this user's is left alone."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from engine.errors import UserError
from engine.extras.trackers import Store, identity, store_of
from engine.host import host_events
from engine.runs.lookup import delete
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.extras.sweeps.folder import create_sweep
from tests.engine.extras.trackers.test_trackers import needs, own_environment, records, told, write
from tests.engine.sinks.test_sinks_of_a_run import evaluation
from tests.support.program import kill_hosts, run_program, wait_until
from tests.support.sweeps import SNAKE

__all__ = ["own_environment"]
PLAN = SweepPlan({"game": "snake"}, 1, None, (Member({}, 1), Member({}, 2)))


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return create_sweep(tmp_path / "runs", "rates", PLAN)


def test_runs_of_a_sweep_share_a_store_and_others_have_their_own(sweep: Sweep, tmp_path: Path) -> None:
    first, second = told(sweep.path / "rates-001"), told(sweep.path / "rates-002")
    shared = Store(sweep.path / "mlflow.db", is_shared=True)
    assert store_of(first, "mlflow.db", "mlflow.db*") == store_of(second, "mlflow.db", "mlflow.db*") == shared
    alone = told(tmp_path / "runs" / "alone")
    assert store_of(alone, "mlflow.db") == Store(tmp_path / "runs" / "alone" / "mlflow.db", is_shared=False)
    (sweep.path / "rates-001").rename(tmp_path / "runs" / "out")
    assert store_of(told(tmp_path / "runs" / "out"), "mlflow.db").path == tmp_path / "runs" / "out" / "mlflow.db"


def test_a_run_that_has_a_store_goes_on_with_it(sweep: Sweep) -> None:
    """Such as one of an earlier version, or one that began on a cluster."""
    begin = told(sweep.path / "rates-001")
    (own := sweep.path / "rates-001" / "trackio").mkdir()
    assert store_of(begin, "trackio", "trackio") == Store(own, is_shared=False)


def test_runs_on_a_cluster_have_their_own_stores(sweep: Sweep) -> None:
    sweep.write_plan(msgspec.structs.replace(PLAN, ray="auto"))
    assert not store_of(told(sweep.path / "rates-001"), "mlflow.db").is_shared


@pytest.mark.parametrize("how", ["copied", "changed", "replaced"])
def test_nothing_is_written_to_a_sweep_of_somebody_elses(how: str, sweep: Sweep, tmp_path: Path) -> None:
    gift = Path(shutil.copytree(sweep.path, tmp_path / "gift"))
    if how == "changed":
        (sweep.path / "sweep.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(PLAN, jobs=2)))
    elif how == "replaced":
        shutil.rmtree(sweep.path)
        shutil.copytree(gift, sweep.path)
    folder = gift if how == "copied" else sweep.path
    assert not store_of(told(folder / "rates-001"), "mlflow.db").is_shared


@pytest.mark.parametrize("name", ["mlflow.db", "mlflow.db-journal", "mlartifacts/1/policy", "trackio", "wandb"])
def test_what_leads_out_of_a_sweep_is_refused(name: str, sweep: Sweep, tmp_path: Path) -> None:
    opened = {"trackio": ("trackio",), "wandb": ()}.get(name, ("mlflow.db*", "mlartifacts"))
    (victim := tmp_path / "victim").mkdir()
    (sweep.path / name).parent.mkdir(parents=True, exist_ok=True)
    (sweep.path / name).symlink_to(victim)
    with pytest.raises(UserError, match=f"{sweep.path / name}: (is a link|must be .*no link)"):
        store_of(told(sweep.path / "rates-001"), name if name in ("trackio", "wandb") else "mlflow.db", *opened)
    assert list(victim.iterdir()) == []


def test_a_second_name_of_a_database_is_refused(sweep: Sweep, tmp_path: Path) -> None:
    (victim := tmp_path / "victim").write_text("precious")
    os.link(victim, sweep.path / "mlflow.db")
    with pytest.raises(UserError, match="is a hard link"):
        store_of(told(sweep.path / "rates-001"), "mlflow.db", "mlflow.db*")


def test_the_lock_of_a_shared_store_keeps_others_out_and_follows_no_link(sweep: Sweep, tmp_path: Path) -> None:
    store = Store(sweep.path / "mlflow.db", is_shared=True)
    with store.lock(), (sweep.path / "mlflow.lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (sweep.path / "mlflow.lock").unlink()
    (sweep.path / "mlflow.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="is a link"), store.lock():
        pass
    assert not (tmp_path / "victim").exists()
    alone = Store(tmp_path / "mlflow.db", is_shared=False)
    with alone.lock():
        assert not (tmp_path / "mlflow.lock").exists()


def count(database: Path, query: str) -> int:
    """What a query counts; 0 if there is no such table yet, or it is locked."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute(query).fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(found)


def written(name: str, folder: Path) -> int:
    """How many runs have written metrics."""
    match name:
        case "mlflow":
            return count(folder / "mlflow.db", "SELECT COUNT(DISTINCT run_uuid) FROM metrics")
        case "trackio":
            return count(folder / "trackio" / "mario-tui.db", "SELECT COUNT(DISTINCT run_name) FROM metrics")
        case _:
            return sum(path.stat().st_size > 2**13 for path in folder.glob("wandb/offline-run-*/*.wandb"))


def curves_in(name: str, folder: Path) -> dict[str, set[str]]:
    """The metrics of each run, as the tracker's own reader tells them."""
    match name:
        case "mlflow":
            from mlflow import MlflowClient

            client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
            runs = client.search_runs([client.get_experiment_by_name("mario-tui").experiment_id])
            return {run.data.tags["mario_tui.run"]: set(run.data.metrics) for run in runs}
        case "trackio":
            code = (
                "import json, trackio\nfrom trackio.sqlite_storage import SQLiteStorage\n"
                "runs = [run.name for run in trackio.Api().runs('mario-tui')]\n"
                "found = {name: SQLiteStorage.get_logs('mario-tui', name) for name in runs}\n"
                "print(json.dumps({name: [*{key: 0 for log in logs for key in log}] for name, logs in found.items()}))"
            )
            environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
            command = [sys.executable, "-c", code]
            read = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
            return {run: set(curves) for run, curves in json.loads(read.stdout).items()}
        case _:
            curves = dict[str, set[str]]()
            for found in map(records, folder.glob("wandb/offline-run-*")):
                names = curves.setdefault(found["run"][0]["run_id"], set())
                names.update(key for point in found["history"] for key in point["item"])
            return curves


@pytest.mark.long
@pytest.mark.process
@pytest.mark.usefixtures("executed")
@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in ("mlflow", "trackio", "wandb")])
def test_the_runs_of_a_sweep_that_train_at_the_same_time_are_in_one_store(name: str, tmp_path: Path) -> None:
    options = (*SNAKE, "--steps", "1000000000", "--eval-every", "0", "--threads", "1", "--sinks", name)
    try:
        run_program("sweep", "--name", "shared", "--seeds", "2", "--jobs", "2", *options, cwd=tmp_path)
        sweep = Sweep(tmp_path / "checkpoints" / "shared")
        runs = [sweep.run(number) for number in range(2)]
        wait_until(lambda: written(name, sweep.path) == 2, "metrics of two runs in one store")
        assert all(run.is_alive() for run in runs)
        run_program("sweep", "stop", "shared", cwd=tmp_path)
    finally:
        kill_hosts(tmp_path)
    begins = [host_events.begin(run, run.config(), run.record().created_at) for run in runs]
    write(name, begins[0], evaluation(20), place=sweep.path)  # the run is resumed alone
    curves = curves_in(name, sweep.path)
    assert [sum(key.endswith(identity(begin)) for key in curves) for begin in begins] == [1, 1] and len(curves) == 2
    assert all("charts/episodic_return" in found for found in curves.values())
    assert sum("eval/mean_return" in found for found in curves.values()) == 1
    assert not [path for run in runs for path in run.path.iterdir() if path.name.startswith((name, "mlartifacts"))]
    assert "no more metrics are written" not in "".join(run.log_path.read_text() for run in runs)
    delete(runs[0])
    assert len(curves_in(name, sweep.path)) == 2  # the tracker keeps what it was told
    delete(sweep)
    assert not sweep.path.exists()
