"""The maximised replay panel: distributions of priorities and ages, from a real run and from any report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from engine.config.reading import make_config
from engine.host.client import HostProcess
from engine.protocol import framing
from engine.protocol.commands import Stop
from engine.protocol.messages import Distribution, Hello, Progress, ReplayContents
from engine.runs.recording import read_recording
from engine.runs.registry import create_run
from mario_tui.app import MarioApp
from mario_tui.data.run_status import Snapshot
from mario_tui.widgets.panels.replay import ReplayPanel
from tests.support.app import RECORDING, text, until
from tests.support.in_process import train
from tests.support.program import PATIENCE_S

AGES = Distribution(low=0.0, high=50_000.0, median=12_000.0, shares=[1 / 24] * 24)
PRIORITIES = Distribution(low=0.001, high=4.0, median=0.05, shares=[0.0, 0.5, 0.25, *[0.25 / 21] * 21])
CONTENTS = ReplayContents(ages=AGES, oldest_share=0.04, priorities=PRIORITIES, zero_share=0.02)


def progress_with(contents: ReplayContents | None) -> Progress:
    recorded = next(event for event in read_recording(RECORDING) if isinstance(event, Progress))
    assert recorded.replay is None  # it was recorded by a host that did not report it
    return msgspec.structs.replace(recorded, replay=contents)


async def panel_in(pilot: Pilot[Any], height: int) -> ReplayPanel:
    panel = ReplayPanel()
    panel.add_class("-alone")
    screen = Screen[None]()  # with nothing else, so it needs no scrollbar
    await pilot.app.push_screen(screen)
    await screen.mount(panel)
    panel.styles.height = height
    await until(pilot, lambda: panel.body[1] == height - 1, "its size")
    return panel


def lines(panel: ReplayPanel) -> list[str]:
    return [line.strip() for line in str(panel.render()).splitlines()]


async def test_what_a_runner_reports_is_drawn(tmp_path: Path) -> None:
    options = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "prioritized_replay": True}
    *_, last = (report for report in train(tmp_path, options, 400) if isinstance(report, Progress))
    assert last.replay is not None and last.replay.priorities is not None
    assert last.replay.ages.high == pytest.approx(last.env_steps, abs=50)
    async with MarioApp().run_test(size=(80, 24)) as pilot:
        panel = await panel_in(pilot, 20)
        panel.show(Snapshot(progress=last))
        above, _, below = str(panel.render()).partition("ages of draws: median")
        assert "█" in above.partition("priorities |TD error|: ")[2] and "█" in below


async def test_uniform_replay_has_no_beta(tmp_path: Path) -> None:
    options = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32}
    *_, last = (report for report in train(tmp_path, options, 400) if isinstance(report, Progress))
    async with MarioApp().run_test(size=(80, 24)) as pilot:
        panel = await panel_in(pilot, 20)
        panel.show(Snapshot(progress=last))
        assert "beta    – (uniform replay)" in lines(panel)


def spread(priorities: Distribution) -> bool:
    """Whether they differ as those of learned transitions do."""
    return 0 < priorities.low < priorities.median < priorities.high


@pytest.mark.long
@pytest.mark.process
async def test_a_run_that_goes_on_shows_what_its_replay_holds(tmp_path: Path) -> None:
    config = make_config(
        {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "parallel_envs": 4, "steps": 100_000_000,
         "prioritized_replay": True, "amp": False, "eval_every": 0, "run_dir": str(tmp_path)}
    )  # fmt: skip
    host = HostProcess(create_run(config))
    app = MarioApp(open_run=host.run, host=host)
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard: Any = app.screen
        await pilot.press("2", "z")
        await until(pilot, lambda: "ages of draws: median" in text(dashboard, "replay"), "the ages")
        await until(
            pilot, lambda: spread(dashboard.shown.progress.replay.priorities), "priorities of learned transitions"
        )
        assert dashboard.feed.send(Stop())
        await until(pilot, lambda: dashboard.shown.end, "the end")  # the last report has the newest priorities
        replay = dashboard.shown.progress.replay
        assert sum(replay.priorities.shares) == pytest.approx(1) and sum(replay.ages.shares) == pytest.approx(1)
        assert spread(replay.priorities)
        assert replay.ages.high <= dashboard.shown.progress.env_steps
        await until(pilot, lambda: "█" in text(dashboard, "replay").split("|TD error|")[1], "the bars")
    assert host.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_both_histograms_and_their_axes_have_room(size: tuple[int, int]) -> None:
    app = MarioApp()
    async with app.run_test(size=size) as pilot:
        panel = await panel_in(pilot, size[1] - 4)
        panel.show(Snapshot(progress=progress_with(CONTENTS)))
        shown = lines(panel)
        heading = shown.index("priorities |TD error|: 0.001 to 4.00, median 0.050; zero: 2%")
        ages = shown.index("ages of draws: median 12.0k of 50.0k steps; oldest tenth: 4% (uniform 10%)")
        assert shown[heading + 1].startswith("50%")
        assert shown[ages - 2].split() == ["0.001", "0.01", "0.1", "1"]  # below bars on a logarithmic axis
        assert shown[ages + 1].startswith("4%")
        last = max(index for index, line in enumerate(shown) if line)
        assert shown[last].split()[::5] == ["0", "50k"] if size[0] > 80 else shown[last].startswith("0 ")
        assert max(map(len, shown[1:])) <= size[0] - 2 and last < size[1] - 4


async def test_other_replays_are_described_in_words() -> None:
    app = MarioApp()
    async with app.run_test(size=(100, 40)) as pilot:
        panel = await panel_in(pilot, 30)
        panel.show(Snapshot())
        assert lines(panel)[1] == "no replay yet"
        panel.show(Snapshot(progress=progress_with(None)))
        assert "no replay yet" in lines(panel)
        panel.show(Snapshot(progress=progress_with(ReplayContents(ages=AGES, oldest_share=0.1))))
        assert "uniform replay: no priorities" in lines(panel)
        new = Distribution(low=1.0, high=1.0, median=1.0, shares=[1.0])
        panel.show(Snapshot(progress=progress_with(msgspec.structs.replace(CONTENTS, priorities=new, zero_share=0.0))))
        assert "priorities |TD error|: all 1.00; zero: 0%" in lines(panel)
        hello = next(event for event in read_recording(RECORDING) if isinstance(event, Hello))
        hello = msgspec.structs.replace(hello, runner="ddp")
        panel.show(Snapshot(hello=hello, progress=progress_with(CONTENTS)))
        assert lines(panel)[0].endswith("of rank 0 ─")


async def test_any_number_in_a_recording_can_be_shown() -> None:
    app = MarioApp()
    async with app.run_test(size=(80, 24)) as pilot:
        panel = await panel_in(pilot, 20)
        for low, high in (
            (math.nan, 1.0),
            (-1.0, 1.0),
            (0.0, math.inf),
            (1e-300, 1e300),
            (-1e308, 1e308),
            (1, 1 + 1e-15),
            (5, 1),
        ):
            for shares in ([0.0], [1.0] * 64):
                odd = Distribution(low=low, high=high, median=math.nan, shares=shares)
                contents = ReplayContents(ages=odd, oldest_share=math.nan, priorities=odd, zero_share=math.inf)
                panel.show(Snapshot(progress=progress_with(contents)))
                assert any(line.startswith("ages of draws") for line in lines(panel))


def test_contents_survive_the_protocol_and_are_bounded() -> None:
    progress = progress_with(CONTENTS)
    assert framing.decode_event(framing.encode(progress)) == progress
    assert framing.decode_report(framing.encode(progress)) == progress
    for shares in ([], [0.0] * 65, [-0.1], [1.5], [math.nan]):
        ages = msgspec.structs.replace(AGES, shares=shares)
        with pytest.raises(msgspec.DecodeError):
            framing.decode_event(framing.encode(progress_with(ReplayContents(ages=ages, oldest_share=0.0))))
