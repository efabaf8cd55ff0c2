"""Sinks for experiment trackers, in their real processes, and what these have written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from engine.config.reading import make_config
from engine.config.sinks import check_sinks, sink_names
from engine.errors import UserError
from engine.extras.trackers import identity
from engine.host import host_events
from engine.protocol.messages import Failed
from engine.protocol.sinks import BEST_POLICY_FILE, Begin, Restart
from engine.runs.marks import check_own
from engine.runs.run import Annotation, Run, write_annotation
from engine.runtime.text import install_command
from engine.sinks import process
from engine.sinks.dispatcher import Dispatcher
from engine.sinks.process import ForeignSink
from tests.engine.sinks.test_sinks_of_a_run import EPISODE, evaluation, has_ended
from tests.support.policy_files import shipped
from tests.support.program import Terminal, json_lines, run_program, wait_until

# W&B replaces NumPy by a module that loads it later, which processes that have imported it before can't do.
pytestmark = [pytest.mark.process, pytest.mark.usefixtures("executed")]

FAILED = Failed(reason="a bug", traceback="", log_path="", checkpoint=None)
OFFERED = ("wandb", "mlflow", "trackio")
MISSING = [name for name in OFFERED if find_spec(name) is None]


def needs(name: str) -> pytest.MarkDecorator:
    reason = f"{name} is missing: .venv/bin/pip install -c constraints.txt -e '.[{name}]'"
    return pytest.mark.skipif(name in MISSING, reason=reason)


TRACKERS = [pytest.param(name, marks=[needs(name), pytest.mark.long]) for name in ("wandb", "mlflow")]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "TRACKIO_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def told(folder: Path, **options: Any) -> Begin:
    folder.mkdir(exist_ok=True)
    write_annotation(Run(folder), Annotation(("baseline", "new-net"), "the first try"))
    return host_events.begin(Run(folder), make_config({"game": "snake", **options}), created_at=1.0)


def write(name: str, begin: Begin, *events: Any, place: Path | None = None) -> None:
    """As a host does that takes these events and ends, but not before the sink has begun. `place`: the folder of its
    store; None: the run's."""
    said: list[Any] = []
    sinks = Dispatcher({name: ForeignSink(name)}, log=lambda *line: said.append(line))
    sinks.begin(begin)
    for event in events:
        sinks.put(event)
    wait_until(lambda: has_begun(name, place or Path(begin.path)), "a run of the tracker")
    sinks.close()
    assert said == []


def has_begun(name: str, folder: Path) -> bool:
    """MLflow takes long to make its database, and a sink has 20 seconds after the end."""
    if not name.startswith("mlflow"):
        return True
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        try:
            (runs,) = database.execute("SELECT COUNT(*) FROM runs WHERE status = 'RUNNING'").fetchone()
        except sqlite3.OperationalError:  # there is no such table yet, or it is locked
            return False
    return bool(runs)


def write_two_hosts(name: str, folder: Path) -> None:
    """A run that fails after it has gone back to step 10, and is resumed for more steps."""
    write(
        name, told(folder), Restart(env_steps=0), EPISODE, evaluation(20), Restart(env_steps=10), evaluation(15), FAILED
    )
    write(name, told(folder, steps=3_000_000), Restart(env_steps=15), evaluation(30))


def test_a_run_remains_the_same_for_trackers_wherever_its_folder_is(tmp_path: Path) -> None:
    for node in ("node-1", "node-2"):
        (tmp_path / node).mkdir()
    first, copy, other = (told(tmp_path / folder) for folder in ("node-1/tried", "node-2/tried", "node-1/other"))
    assert identity(first) == identity(copy)
    later = msgspec.structs.replace(first, created_at=2.0)
    assert len({identity(first), identity(other), identity(later)}) == 3


@pytest.mark.skipif(not MISSING, reason="every tracker is installed")
def test_a_tracker_that_is_missing_is_one_line_that_says_what_to_install(tmp_path: Path) -> None:
    name = MISSING[0]
    (tmp_path / name).mkdir()  # not the package
    done = run_program("--no-ui", "--game", "snake", "--sinks", name, cwd=tmp_path, check=2)
    assert done.stderr == (
        f"mario-tui: error: --sinks {name} needs packages that are missing; install them with: "
        f"{install_command(name)}\n"
    )


@pytest.mark.long
@needs("wandb")
def test_wandb_has_the_whole_run_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tried"
    (folder / "wandb").mkdir(parents=True)
    (folder / "wandb" / "settings").write_text("[default]\nrun_group = chosen-by-a-folder\n")
    write_two_hosts("wandb", folder)
    first, second = map(records, sorted(folder.glob("wandb/offline-run-*")))
    (run,), (resumed,) = first["run"], second["run"]
    assert (run["display_name"], run["tags"], run["notes"]) == ("tried", ["baseline", "new-net"], "the first try")
    assert run["project"] == "mario-tui" and "run_group" not in run
    assert run["run_id"] == resumed["run_id"]
    assert run["config"]["update"]["learning_rate"] == told(folder).options["learning_rate"]
    assert [each["config"]["update"]["steps"] for each in (run, resumed)] == [2_000_000, 3_000_000]
    points = [point["item"] for point in first["history"]]
    assert [(point["env_steps"], point.get("eval/mean_return")) for point in points] == [(1, None), (20, 0), (15, 0)]
    assert [point["item"]["env_steps"] for point in second["history"]] == [30]
    assert [end["exit_code"] for end in first["exit"]] == [1]
    (metric,) = first["metric"]
    assert (metric["glob_name"], metric["step_metric"]) == ("*", "env_steps")
    assert not [path for path in folder.rglob("*") if path.is_symlink()]  # with one, the run could not be resumed
    viewer = Terminal("leet", "wandb", cwd=folder, columns=120, rows=40, program=[sys.executable, "-m", "wandb"])
    viewer.wait_for("Runs [2 items]", "eval/mean_return", "[x: env_steps]", "Name: tried", "Notes: the first try")
    viewer.send("q")
    assert viewer.wait() == 0


def records(folder: Path) -> dict[str, list[Any]]:
    """What a run's folder that is not uploaded yet holds, by kind, as W&B's own reader tells it."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)]
    read = subprocess.run(command, capture_output=True, check=True, text=True)
    found = defaultdict[str, list[Any]](list)
    for record in json_lines(read.stdout):
        found[record["type"]].append(record[record["type"]])
    return found


@pytest.mark.long
@needs("mlflow")
def test_mlflow_has_the_whole_run_in_its_folder(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder = tmp_path / "tried"
    write_two_hosts("mlflow", folder)
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("mario-tui").experiment_id])
    options = told(folder).options
    assert run.data.params == {name: str(value) for name, value in options.items()}
    tags = {"mlflow.runName": "tried", "mlflow.note.content": "the first try", "baseline": "true", "new-net": "true"}
    assert run.data.tags.items() >= {**tags, "steps": "3000000"}.items()
    assert run.info.status == "KILLED"  # the second host told no end
    history = client.get_metric_history(run.info.run_id, "eval/mean_return")
    assert [point.step for point in history] == [20, 15, 30]
    assert [point.step for point in client.get_metric_history(run.info.run_id, "charts/episodic_return")] == [1]
    assert sorted(path.name for path in folder.iterdir()) == ["annotation.json", "mlflow.db"]
    write("mlflow", told(folder), evaluation(40))  # as many steps as at first
    assert client.get_run(run.info.run_id).data.tags["steps"] == str(options["steps"])


@pytest.mark.long
@needs("trackio")
def test_trackio_has_the_whole_run_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tried"
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody")
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        write_two_hosts("trackio", folder)
        hub.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody was asked who the token belongs to
            hub.accept()
    code = (
        "import json, trackio\nfrom trackio.sqlite_storage import SQLiteStorage\n"
        "(run,) = trackio.Api().runs('mario-tui')\n"
        "print(json.dumps([run.name, run.config, SQLiteStorage.get_logs('mario-tui', run.name)]))"
    )
    environment = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "HF_HUB_OFFLINE": "1"}
    read = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    name, config, points = json.loads(read.stdout)
    assert name == "tried" and config["note"] == "the first try"
    assert config.items() >= told(folder, steps=3_000_000).options.items()
    assert [point["step"] for point in points if "eval/mean_return" in point] == [20, 15, 30]
    assert [point["step"] for point in points if "charts/episodic_return" in point] == [1]


def policy_in(folder: Path) -> bytes:
    """A best policy, and what its file holds."""
    folder.mkdir()
    shutil.copy(shipped("snake-12x12"), folder / BEST_POLICY_FILE)
    return (folder / BEST_POLICY_FILE).read_bytes()


@pytest.mark.long
@needs("mlflow")
def test_mlflow_keeps_the_policy_if_asked(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    folder = tmp_path / "tried"
    policy = policy_in(folder)
    write("mlflow:policy", told(folder), Restart(env_steps=0), FAILED)
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("mario-tui").experiment_id])
    (found,) = client.list_artifacts(run.info.run_id, "policy")
    assert Path(client.download_artifacts(run.info.run_id, found.path, str(tmp_path))).read_bytes() == policy
    assert list(folder.glob(f"mlartifacts/**/{BEST_POLICY_FILE}"))


@pytest.mark.long
@needs("wandb")
def test_a_run_can_be_resumed_after_wandb_has_missed_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_MODE", "online")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        folder = tmp_path / "tried"
        sinks = Dispatcher({"wandb": ForeignSink("wandb")}, log=lambda *line: None)
        sinks.begin(told(folder))
        wait_until(lambda: any(folder.glob("wandb/run-*/logs/*")), "W&B's log")
        sinks.close()
    check_own(folder)


@pytest.mark.long
@needs("wandb")
def test_wandb_keeps_the_policy_if_asked(tmp_path: Path) -> None:
    folder = tmp_path / "tried"
    policy = policy_in(folder)
    write("wandb:policy", told(folder), Restart(env_steps=0), FAILED)
    (run,) = folder.glob("wandb/offline-run-*")
    (artifact,) = records(run)["artifact"]
    (entry,) = artifact["manifest"]["contents"]
    assert (artifact["type"], entry["path"], int(entry["size"])) == ("model", BEST_POLICY_FILE, len(policy))
    assert Path(entry["local_path"]).read_bytes() == policy and folder in Path(entry["local_path"]).parents


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("mlflow:policy,mlflow", "must name mlflow once, with :policy or without"),
        ("trackio:policy", "must be none, or names among json-lines, mlflow, mlflow:policy, trackio, wandb"),
    ],
)
def test_only_some_trackers_keep_policies_and_each_is_named_once(value: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        check_sinks(sink_names(value))


@pytest.mark.parametrize("name", TRACKERS)
def test_a_server_that_does_not_answer_costs_metrics_and_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "END_S", 0.5)
    monkeypatch.setattr("engine.sinks.sink.MOST", 100)
    said: list[Any] = []
    others = psutil.Process().children(recursive=True)  # such as the stem of other tests' processes
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for key, value in (("MODE", "online"), ("BASE_URL", address), ("API_KEY", "0" * 40)):
            monkeypatch.setenv(f"WANDB_{key}", value)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        sink = ForeignSink(name)
        sinks = Dispatcher({name: sink}, log=lambda *line: said.append(line))
        sinks.begin(told(tmp_path / "tried"))
        connection, _ = server.accept()
        processes = [each for each in psutil.Process().children(recursive=True) if each not in others]
        while not sink.dropped:
            sinks.put(EPISODE)
        sinks.look(retry=False)
        sinks.close()
        connection.close()
    assert said[0] == ("warning", f"{name} is too slow: some metrics are not written for it")
    assert said[-1][1].endswith("it did not end within 0.5 s of the run's end, and was killed")
    wait_until(lambda: all(has_ended(process.pid) for process in processes), "the end of its processes")
