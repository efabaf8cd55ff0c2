"""When an actor on a cluster is late, and how much it is asked for."""

from __future__ import annotations

import pytest

from engine.extras.ray.chunks import MAX_STEPS
from engine.extras.ray.slot import Call, RemoteSlot
from engine.runners.links import START_LIMIT_S
from engine.runners.processes import FailedStarts
from engine.runners.shared_state import FIRST_S

HEARTBEAT_S = 4.0


def playing(at: float) -> RemoteSlot:
    """An actor that has answered one call for 16 steps, after 0.4 s, at the time `at`."""
    slot = RemoteSlot(0)
    slot.called(Call("chunk", 16, False, at - 0.4))
    slot.replied(at + 60)  # the learner was evaluating
    slot.played_in(0.4, 16)
    return slot


def test_a_chunk_lasts_a_quarter_of_a_second_longer_with_many_actors_and_shorter_with_a_picture() -> None:
    slot = playing(100.0)
    assert slot.seconds_per_step == pytest.approx(0.025)
    assert RemoteSlot(1).chunk(32, 1, 0.0) == (16, 0.25)  # at most so many, while the speed is not known
    assert slot.chunk(32, actors=4, picture_fps=0.0) == (10, 0.25)
    assert slot.chunk(32, actors=400, picture_fps=0.0) == (40, 1.0)
    assert slot.chunk(32, actors=4, picture_fps=10.0) == (4, 0.1)
    assert slot.chunk(32, actors=4, picture_fps=0.01) == (10, 0.25)
    assert RemoteSlot(1).chunk(1024, 1, 0.0) == (1, 0.25)
    slot.seconds_per_step = 1e-9
    assert slot.chunk(32, 4, 0.0) == (MAX_STEPS, 0.25)
    slot.seconds_per_step = 9.0
    assert slot.chunk(32, 4, 0.0) == (1, 0.25)


def test_an_actor_is_asked_for_a_pulse_once_while_it_does_not_answer() -> None:
    slot = playing(100.0)
    assert not slot.is_silent(slot.since + 1) and slot.is_silent(slot.since + 3)
    slot.pulse = "pulse"
    assert not slot.is_silent(slot.since + 3)


def test_the_first_chunk_and_long_ones_have_more_time() -> None:
    first = RemoteSlot(0)
    first.called(Call("chunk", 16, False, 100.0))
    assert not first.is_late(100 + FIRST_S - 0.1, HEARTBEAT_S) and first.is_late(100 + FIRST_S + 0.1, HEARTBEAT_S)
    slot = playing(100.0)
    slot.called(Call("chunk", 40, False, 100.0))  # 1 s of play
    slot.called(Call("next", 40, False, 101.0))  # begins when the first is answered
    assert not slot.is_late(107.9, HEARTBEAT_S) and slot.is_late(108.1, HEARTBEAT_S)
    slot.replied(101.0)
    assert slot.awaited == "next" and not slot.is_late(108.1, HEARTBEAT_S) and slot.is_late(109.1, HEARTBEAT_S)


def test_a_start_has_ten_minutes() -> None:
    slot = playing(100.0)
    slot.begin("process", "greeting")
    assert slot.awaited == "greeting" and not slot.calls and not slot.seconds_per_step
    assert not slot.is_late(slot.since + START_LIMIT_S - 1, HEARTBEAT_S)
    assert slot.is_late(slot.since + START_LIMIT_S + 1, HEARTBEAT_S)


def test_an_actor_plays_once_it_has_greeted_and_built() -> None:
    slot = RemoteSlot(0)
    slot.begin("process", "greeting")
    assert not slot.plays and slot.awaited == "greeting"
    slot.greeted("machine", "node")
    slot.builds("building")
    assert (slot.plays, slot.awaited) == (False, "building")
    slot.built()
    assert (slot.plays, slot.awaited) == (True, None)


def test_a_member_that_is_lost_three_times_in_a_row_without_a_step_fails_to_start() -> None:
    starts = FailedStarts()
    lost_at = (100, 100, 100, 150, 150, 150)
    assert not any(starts.count(played) for played in lost_at)
    assert starts.count(150)
    assert FailedStarts().count(0) is False
