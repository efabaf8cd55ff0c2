"""A recording whose every number is zero, negative, huge, infinite or none: the screens stand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.protocol.messages import Event, Hello
from engine.runs.recording import read_recording
from mario_tui.app import MarioApp
from tests.support.app import RECORDING, recorded_run, until


def with_numbers(thing: Any, value: float) -> Any:
    """The same message as plain objects, with every number replaced; what can't be a whole number stays one."""
    match thing:
        case bool() | str() | bytes() | None:
            return thing
        case int():
            return int(value) if math.isfinite(value) and abs(value) < 2**63 else thing
        case float():
            return float(value)
        case dict():
            return {key: each if key == "protocol" else with_numbers(each, value) for key, each in thing.items()}
        case _:
            return [with_numbers(each, value) for each in thing]


def spoilt(event: Event, value: float) -> bytes:
    body = msgspec.msgpack.encode(with_numbers(msgspec.to_builtins(event, builtin_types=(bytes,)), value))
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "value",
    [0, math.nan, 2.0**62, *(pytest.param(each, marks=pytest.mark.long) for each in (-1, 1e300, math.inf, -math.inf))],
)
async def test_the_dashboard_of_a_recording_with_extreme_numbers_stands(value: float, tmp_path: Path) -> None:
    run = recorded_run(tmp_path)
    run.history_path.write_bytes(b"".join(spoilt(event, value) for event in read_recording(RECORDING)))
    assert isinstance(read_recording(run.history_path)[0], Hello)
    app = MarioApp(run, run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        dashboard: Any = app.screen
        await until(pilot, lambda: dashboard.shown.points, "the recording")
        for key in (*"123456789", "z", "t", "t", "l", "m", "plus", "right", "left", "0", "escape", "o", "e", "escape"):
            await pilot.press(key)
        await pilot.press("h")  # its preview on home
        await pilot.pause()
    assert app.return_code in (0, None)
