"""Each rule of alerts: what breaks it, what doesn't, and that it says so once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine.config.game import game_of
from engine.monitoring.alerts import MADE_ANEW, AlertRules
from engine.protocol.alerts import AlertLimits, alert_limits
from engine.protocol.messages import Episode, Evaluation, Event, Log, Member, Members, Progress, System
from engine.protocol.outcome import Outcome

GIB = 2**30
MARIO = game_of("mario").outcome


def told(
    *events: Event, limits: AlertLimits | None = None, outcome: Outcome | None = None, steps: int = 1_000_000
) -> list[tuple[str, str]]:
    """What the rules say of these events, in order."""
    rules = AlertRules(limits or AlertLimits(disk=None), steps, outcome or Outcome(), Path())
    return [each for event in events for each in rules.take(event)]


def broken(*events: Event, **how: Any) -> list[str]:
    return [rule for rule, _ in told(*events, **how)]


def progress(env_steps: int = 0, **numbers: Any) -> Progress:
    zeros: dict[str, Any] = dict.fromkeys(Progress.__struct_fields__[: Progress.__struct_fields__.index("replay")], 0)
    zeros |= {"state": "running", "updates": 1, "loss": 0.1, "mean_return": math.nan}
    return Progress(**zeros | {"env_steps": env_steps} | numbers)


def evaluation(env_steps: int, mean_return: float, clears: int = 0) -> Evaluation:
    return Evaluation(env_steps=env_steps, episodes=10, clears=clears, mean_return=mean_return, best=False, seconds=1.0)


def evaluations(*returns: float, cleared: Iterable[int] = ()) -> list[Evaluation]:
    clears = [*cleared] or [0] * len(returns)
    return [evaluation(1000 * at, each, clears[at - 1]) for at, each in enumerate(returns, 1)]


# ---------------------------------------------------------------------------------------------- learning


def test_a_loss_that_is_not_finite_is_told_once_until_it_is_finite_again() -> None:
    good, unknown, bad = progress(loss=3.0), progress(loss=math.nan), progress(loss=math.inf)
    assert told(good, unknown, bad, bad) == [("loss", "the loss is not finite")]
    assert broken(progress(not_finite={"loss": 5})) == ["loss"]  # of a loop that tells so
    assert broken(bad, good, bad) == ["loss", "loss"]
    assert broken(good, unknown, progress(q_mean=math.inf)) == broken(bad, limits=alert_limits("loss=none")) == []


def test_an_evaluation_that_has_fallen_is_told_in_a_game_that_is_judged_by_clears() -> None:
    fallen = evaluations(*[1.0] * 4, cleared=(0, 8, 5, 4))
    said = "the evaluation at 4,000 fell to 40% of its episodes cleared, after 80% of its episodes cleared"
    assert told(*fallen, outcome=MARIO) == [("fell", said)]
    assert broken(*evaluations(*[1.0] * 4, cleared=(0, 8, 5, 5)), outcome=MARIO) == []  # less than half of it
    assert broken(*evaluations(9.0, 1.0, cleared=(5, 0)), outcome=MARIO) == []  # it was never above a half
    low = alert_limits("above=0.2,fell=0.9")
    assert broken(*evaluations(9.0, 1.0, cleared=(5, 0)), outcome=MARIO, limits=low) == ["fell"]


def test_an_evaluation_that_has_fallen_is_told_in_a_game_that_is_judged_by_returns() -> None:
    risen = (-100.0, -80.0, -40.0, 0.0, 50.0)
    assert told(*evaluations(*risen, -30.0)) == [
        ("fell", "the evaluation at 6,000 fell to a mean return of -30, after a mean return of 50")
    ]
    assert broken(*evaluations(*risen, -20.0)) == []  # less than half of what it had gained
    assert broken(*evaluations(-100.0, 50.0, -100.0)) == []  # too few evaluations to tell
    assert broken(*evaluations(-100.0, 50.0, -100.0), limits=alert_limits("above=0")) == ["fell"]
    assert broken(*evaluations(*risen, -30.0, -30.0, 20.0, -30.0)) == ["fell", "fell"]  # it had recovered
    assert broken(*evaluations(*risen, math.nan)) == []
    assert broken(*evaluations(*[7.0] * 6, -5.0)) == []  # it had gained nothing


def test_a_run_without_a_better_evaluation_is_told() -> None:
    better = evaluation(100_000, 5.0)
    assert broken(better, progress(349_999)) == []
    assert told(better, evaluation(200_000, 5.0), progress(350_001)) == [
        ("stalled", "no better evaluation for 250,001 environment steps")
    ]
    assert broken(better, evaluation(200_000, 6.0), progress(350_001)) == []
    assert broken(better, progress(350_001), evaluation(360_000, 9.0), progress(360_000), progress(700_000)) == [
        "stalled", "stalled",
    ]  # fmt: skip
    assert broken(better, progress(350_001), steps=0) == []  # a share of what is unknown
    assert broken(better, progress(350_001), steps=0, limits=alert_limits("stalled=2e5,disk=none")) == ["stalled"]
    assert broken(better, progress(150_001), steps=100_000) == []  # a short run need not have any


def test_a_run_that_clears_everything_has_not_stalled_nor_one_whose_return_rises() -> None:
    best = evaluation(1000, 5.0, clears=10)
    assert broken(best, progress(900_000), outcome=MARIO) == []
    assert broken(evaluation(1000, 5.0, clears=9), progress(900_000), outcome=MARIO) == ["stalled"]
    rising = [progress(100_000 * at, mean_return=float(at)) for at in range(1, 9)]
    assert broken(*rising) == []
    assert broken(*rising, progress(1_100_000, mean_return=2.0)) == ["stalled"]
    waiting = [progress(0, burnin_left=9), progress(900_000, burnin_left=1), progress(900_001, state="paused")]
    assert broken(*waiting) == []
    assert broken(best, progress(200_000), progress(1000), progress(100_000)) == []  # it has begun again


# ---------------------------------------------------------------------------------------------- speed and processes


def seconds(begin: int, end: int, rate: float, **more: Any) -> list[Progress]:
    return [progress(at, wall_s=float(at), env_steps_per_s=rate, **more) for at in range(begin, end)]


def test_steps_per_second_at_a_third_for_a_minute_are_told() -> None:
    usual = seconds(0, 200, 900.0)
    assert told(*usual, *seconds(200, 270, 250.0))[0] == ("slow", "250 steps/s for a minute, 900 before")
    assert broken(*usual, *seconds(200, 270, 350.0)) == []
    assert broken(*usual, *seconds(200, 215, 0.0), *seconds(215, 300, 900.0)) == []  # an evaluation
    assert broken(*seconds(0, 60, 9000.0, burnin_left=1), *seconds(60, 200, 900.0)) == []  # it had not learned
    assert broken(*usual, *seconds(200, 500, 250.0, state="paused")) == []
    again = (*seconds(200, 300, 250.0), *seconds(300, 400, 900.0), *seconds(400, 500, 250.0))
    assert broken(*usual, *again) == ["slow", "slow"]


def members(*restarts: int) -> Members:
    return Members(
        members=[
            Member("actor", index, True, 1, 0, 0.0, 0, math.nan, 0.0, 0.0, count, 0, 0.0)
            for index, count in enumerate(restarts)
        ],
        inserts_per_s=0.0, samples_per_s=0.0, ratio=0.0, learner_waiting_percent=0.0,
    )  # fmt: skip


def test_an_actor_that_is_lost_again_and_again_is_told() -> None:
    assert told(members(0, 2), members(2, 2), members(2, 3), members(2, 3)) == [("lost", "actor 1 was lost 3 times")]
    assert broken(members(2, 2)) == broken(members(9), limits=alert_limits("lost=none")) == []
    assert broken(members(3), members(5), members(6)) == ["lost", "lost"]
    assert broken(members(2), members(0), members(2)) == []  # the run has been restarted


# ---------------------------------------------------------------------------------------------- machine


def system(left_bytes: float) -> System:
    return System(
        cpu_percent=[1.0], memory_used_bytes=int(100 * GIB - left_bytes), memory_total_bytes=100 * GIB,
        run_cpu_percent=1.0, run_memory_bytes=1, processes=1, gpus=[], gpu_note="",
    )  # fmt: skip


def test_memory_that_gets_short_is_told() -> None:
    assert told(system(5 * GIB), system(3 * GIB), system(4.5 * GIB), system(3 * GIB)) == [
        ("memory", "only 3.0 GiB of memory left")
    ]
    assert broken(system(4.1 * GIB)) == []
    assert broken(system(3 * GIB), system(7 * GIB), system(3 * GIB)) == ["memory", "memory"]


def test_disk_space_that_gets_short_is_told(tmp_path: Path) -> None:
    for limit, expected in (("1e9", ["disk"]), ("0", []), ("none", [])):
        rules = AlertRules(alert_limits(f"disk={limit}"), 1, Outcome(), tmp_path)
        assert [rule for rule, _ in rules.take(system(50 * GIB))] == expected
    gone = AlertRules(alert_limits("disk=1e9"), 1, Outcome(), tmp_path / "gone")
    assert gone.take(system(50 * GIB)) == []


def test_an_environment_that_fails_in_many_episodes_is_told() -> None:
    whole = Episode(actor=0, lane=0, env_steps=1, episode=1, episode_return=1.0, length=1, success=False, epsilon=0.0)
    failure = Log(at=1.0, level="warning", text=f"Env-v0: lane 3, episode 2, step 9: ValueError; {MADE_ANEW}")
    assert told(*[whole] * 40, *[failure] * 5) == [
        ("failing", "the environment has failed in 11 % of the last 45 episodes")
    ]
    assert broken(*[whole] * 40, *[failure] * 4) == []
    assert broken(*[failure] * 5) == []  # too few to tell
    assert broken(*[whole] * 20, *[failure] * 5, *[whole] * 100, *[failure] * 11) == ["failing", "failing"]
    other = Log(at=1.0, level="warning", text="something else")
    assert broken(*[whole] * 20, *[other] * 30) == []


# ---------------------------------------------------------------------------------------------- limits


def test_limits_are_read_and_wrong_ones_refused() -> None:
    assert alert_limits("usual") == AlertLimits() and alert_limits("slow=5, disk=none") == AlertLimits(
        slow=5, disk=None
    )
    assert broken(progress(loss=math.inf), members(9), system(0), limits=alert_limits("none")) == []
    for text in ("slow", "slow=x", "slow=-1", "speed=1", "", "slow=1,,"):
        with pytest.raises(ValueError, match=r"^must be usual, none, or RULE=NUMBER"):
            alert_limits(text)
