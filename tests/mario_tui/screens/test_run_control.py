"""Commands to a run that several clients control at once, and the log of one that never ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
from textual.pilot import Pilot

from engine.host.client import HostClient
from engine.host.run_state import MAX_EPISODES, RunState
from engine.protocol.commands import Resume, Stop
from engine.protocol.messages import Episode, Evaluation
from engine.runs import checkpoints
from mario_tui.app import MarioApp
from mario_tui.data.feed import Feed
from mario_tui.data.run_status import RunStatus, Snapshot
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import ConfirmScreen
from mario_tui.widgets.panels.run import LogPanel
from tests.support.app import app_is_there, folder_of_runs, opened, said, shown_as, start, text, until
from tests.support.host import host_of
from tests.support.program import PATIENCE_S, runner_of, spawned_by, wait_until
from tests.support.source import serving


async def question(pilot: Pilot[Any]) -> str:
    screen = await shown_as(pilot, ConfirmScreen)
    return " ".join(str(widget.render()) for widget in screen.query("Static"))


@pytest.mark.usefixtures("executed")
@pytest.mark.process
async def test_a_run_that_is_starting_ends_without_a_checkpoint_and_says_so_before(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000)
    (runner,) = wait_until(lambda: spawned_by(psutil.Process(host.process.pid)), "the runner", by=host.process)
    runner.suspend()  # so it is not ready before the keys are pressed
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: "building networks" in text(dashboard, "header"), "the connection")
        await pilot.press("x")
        assert "It is not training yet, so it ends without writing a checkpoint." in await question(pilot)
        await pilot.press("y")
        await until(pilot, lambda: said(app), "what was done")
        assert said(app).split()[0] == "Stopping"
        await until(pilot, lambda: "stopped before training began" in text(dashboard, "header"), "the end")
    assert host.process.wait(PATIENCE_S) == 0
    assert not runner.is_running() and checkpoints.newest(host.run) is None


@pytest.mark.process
async def test_a_stop_that_was_asked_for_stays_in_order_and_one_more_says_what_it_costs(tmp_path: Path) -> None:
    """Two clients stop a run that takes its time; then one of them ends it at once."""
    host = start(tmp_path, steps=100_000_000)
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        runner = runner_of(host.run)
        runner.suspend()
        await pilot.press("x")
        assert "It writes a checkpoint and ends." in await question(pilot)
        with HostClient(host.run) as other:
            other.send(Stop())
            await until(pilot, lambda: dashboard.state == "stopping", "the other client's stop")
        await pilot.press("enter")  # it was asked for in order, so it does not end the run at once
        await pilot.press("x")
        assert "at once? It is already stopping. No final checkpoint is written" in await question(pilot)
        await pilot.press("enter")  # no: it would be irreversible
        await until(pilot, lambda: app_is_there(dashboard), "the dashboard")
        assert dashboard.is_live() and runner.is_running()
        await pilot.press("x", "y")
        reason = "stopped at once, before its last checkpoint was written"
        await until(pilot, lambda: reason in " ".join(text(dashboard, "header").split()), "the reason")
        assert "✗ failed" in text(dashboard, "header")
    assert host.process.wait(PATIENCE_S) == 1
    assert not runner.is_running() and checkpoints.newest(host.run) is None


async def test_a_run_in_its_final_evaluation_can_only_be_stopped(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, done="running")
    app = MarioApp(open_run=run)
    async with host_of(run, 1, "judging", []), app.run_test(size=(80, 24)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: "its best policy plays 0 of 0 fresh episodes" in text(dashboard, "header"), "it")
        await until(pilot, lambda: dashboard.check_action("toggle_pause", ()) is None, "the keys")
        assert "◎ judging" in text(dashboard, "header") and dashboard.check_action("stop", ())
        await pilot.press("p")
        await until(pilot, lambda: "Pause: done has trained" in said(app), "the reason")
        await pilot.press("x")
        assert "It ends without the result of its final evaluation." in await question(pilot)


@pytest.mark.process
async def test_pause_means_what_the_run_does_not_what_was_pressed_before(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000)
    async with MarioApp(open_run=host.run, host=host).run_test(size=(80, 24)) as pilot:
        dashboard = await opened(pilot)
        for _ in range(2):
            await pilot.press("p")
            await until(pilot, lambda: "paused" in text(dashboard, "header"), "the pause")
            with HostClient(host.run) as other:
                other.send(Resume())
                await until(pilot, lambda: "● running" in text(dashboard, "header"), "the other client's resume")
        dashboard.send(Stop(), "stopping")
        await until(pilot, lambda: not dashboard.is_live(), "the end")


@pytest.mark.long
@pytest.mark.process
async def test_a_dashboard_that_a_living_host_has_dropped_connects_again(tmp_path: Path, notices: list[str]) -> None:
    with serving(tmp_path, "--rate", "50", "--lanes", "4", "--history", "2000") as run:
        async with MarioApp(open_run=run).run_test(size=(80, 24)) as pilot:
            dashboard = await opened(pilot)
            feed = dashboard.feed
            first = feed._client
            first._socket.send(b"\xff\xff\xff\xff")  # no command: the host drops the client
            await until(pilot, lambda: feed._client is not first, "the end of the connection")
            await until(pilot, dashboard.is_live, "another connection")
            await until(pilot, lambda: "● running" in text(dashboard, "header"), "the run")
            assert not any("host is gone" in notice for notice in notices)
        feed = Feed(run)
        feed.connect()
        wait_until(lambda: [feed.update(run.record()), feed.snapshot().connected][-1], "the run")
        assert feed._client is not None
        feed._client._socket.send(b"\xff\xff\xff\xff")
        wait_until(lambda: feed.update(run.record()), "another try")
        wait_until(lambda: feed.snapshot().connected, "another connection")
        wait_until(lambda: feed.snapshot().status is RunStatus.RUNNING, "its progress")
        feed.close()


def episode(number: int) -> Episode:
    return Episode(
        actor=0, lane=0, env_steps=number, episode=number, episode_return=number, length=1, success=False,
        epsilon=0,
    )  # fmt: skip


async def test_a_log_that_is_scrolled_back_stays_at_what_is_left_of_it() -> None:
    state = RunState()
    for number in range(MAX_EPISODES):
        state.apply(episode(number))
    async with MarioApp().run_test(size=(100, 30)) as pilot:
        log = LogPanel()
        await pilot.app.screen.mount(log)
        log.styles.height = 11
        await until(pilot, lambda: log.body[1] == 10, "its size")

        def newest() -> str:
            log.show(Snapshot(events=tuple(state.events)))
            return str(log.render()).rstrip().splitlines()[-1].strip()

        assert newest().startswith(f"{MAX_EPISODES - 1} ")
        log.action_move(-1_000_000)
        assert newest().startswith("9 ")
        for number in range(MAX_EPISODES, MAX_EPISODES + 5):
            state.apply(episode(number))
        assert newest().startswith("14 ")  # the five oldest are lost: the first ten of those left
        for number in range(MAX_EPISODES + 5, MAX_EPISODES + 40):
            state.apply(episode(number))
        assert newest().startswith("49 ")
        assert "older lines" in str(log.render()).splitlines()[0]
        state.events = type(state.events)()
        state.apply(Evaluation(env_steps=7, episodes=1, clears=0, mean_return=1.0, best=True, seconds=1.0))
        assert "evaluation" in newest()
        assert "older lines" not in str(log.render()).splitlines()[0]
