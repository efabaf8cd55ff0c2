"""Every test has a home of its own; one real headless run is shared by the tests that only look at its result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from mario_tui.app import MarioApp
from tests.support.program import FinishedRun, json_lines, kill_hosts, run_program, the_run

# Compiled code is kept in the real cache folder; only the registry and the settings move.
SHORT_RUN = ("--steps", "2000", "--burnin", "500", "--seed", "1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch  # most tests don't need it

        if not torch.cuda.is_available():
            pytest.skip("this machine has no CUDA GPU")


@pytest.fixture(scope="session", autouse=True)
def _private_session_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("TZ", "UTC")
        # Users don't set these. One hides what is written too late; with the other, each process compiles all modules.
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True)
def _private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    home = tmp_path.with_name(f"{tmp_path.name}-home")  # tests look at what is in their own folder
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    (home / "state" / "mario-tui").mkdir(0o700, parents=True)
    (home / "state" / "mario-tui" / "dashboard.json").write_text('{"introduced": true}')  # which would cover panels
    monkeypatch.chdir(home)  # the repository's checkpoints/ may hold runs of its user
    yield
    kill_hosts(tmp_path)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """`mario-tui --no-ui --steps 2000 --burnin 500 --log-format json --seed 1`."""
    folder = tmp_path_factory.mktemp("finished")
    decoy = folder / "engine"  # a folder of the user's that must not shadow ours
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise RuntimeError('the wrong engine')")
    done = run_program("--no-ui", "--log-format", "json", *SHORT_RUN, cwd=folder)
    events = json_lines(done.stdout)
    return FinishedRun(folder, the_run(folder), events, Path(events[-1]["checkpoint"]))


def pytest_configure() -> None:
    os.environ.pop("COLORTERM", None)
    hypothesis.settings.register_profile("any machine", deadline=None)
    hypothesis.settings.load_profile("any machine")


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the application has told, also what is not on the screen any more."""
    told: list[str] = []
    notify = MarioApp.notify

    def record(app: MarioApp, message: str, **options: Any) -> None:
        told.append(message)
        notify(app, message, **options)

    monkeypatch.setattr(MarioApp, "notify", record)
    return told


@pytest.fixture
def one_thread() -> Iterator[None]:
    """More threads only slow small networks down."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
