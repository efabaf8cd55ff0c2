"""Every test has a home of its own; one real headless run is shared by the tests that only look at its result."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from engine.games.gym import spaces
from mario_tui.app import MarioApp
from tests.support import warm_start
from tests.support.program import FinishedRun, json_lines, kill_hosts, run_program, the_run

sys.dont_write_bytecode = False  # where the environment says so, each worker would compile every test anew
# Compiled code is kept in the real cache folder; only the registry and the settings move.
SHORT_RUN = ("--steps", "2000", "--burnin", "500", "--seed", "1")


gc.disable()  # nothing that imports and collection make is garbage


def pytest_collection_finish() -> None:
    gc.freeze()  # so that no search for garbage goes through it
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch  # most tests don't need it

        if not torch.cuda.is_available():
            pytest.skip("this machine has no CUDA GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "finished_run" in item.fixturenames:
            item.add_marker(pytest.mark.process)


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
        warm_start.install()
        yield


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the test execute each process, as users do; others come from one that has imported PyTorch."""
    monkeypatch.setattr(warm_start, "is_executed", True)


@pytest.fixture(autouse=True)
def _private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    home = tmp_path.with_name(f"{tmp_path.name}-home")  # tests look at what is in their own folder
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    (home / "state" / "mario-tui").mkdir(0o700, parents=True)
    (home / "state" / "mario-tui" / "dashboard.json").write_text('{"introduced": true}')  # which would cover panels
    monkeypatch.chdir(home)  # the repository's checkpoints/ may hold runs of its user
    warm_start.has_started, is_quick = False, "not process" in request.config.option.markexpr
    if is_quick:
        spaces.ask.cache_clear()  # a process that asks is the test's own, whichever test came before
    yield
    if warm_start.has_started:
        kill_hosts(tmp_path)
        assert not is_quick, "it starts a process: mark it with @pytest.mark.process"


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """`mario-tui --no-ui --steps 2000 --burnin 500 --log-format json --seed 1`."""
    folder = tmp_path_factory.mktemp("finished")
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
