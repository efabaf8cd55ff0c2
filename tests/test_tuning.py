"""Numbers of a run that are changed by hand: while it goes on, and with options on resume."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine.messages import Changed, Log, Set
from engine.runners.ledger import Ledger
from engine.runners.player import follow
from tests.in_process import of_kind, train
from tests.test_agents import CONFIG, feed, make_learner

SNAKE = {"game": "snake", "board": "5x5", "burnin": 100, "batch_size": 32, "buffer_size": 2000}


def test_beta_is_taken_each_time_that_it_is_set_also_to_what_it_was_set_to_before() -> None:
    learner, ledger = make_learner(dataclasses.replace(CONFIG, beta_annealing=0.01)), Ledger(1)
    ledger.open()
    for _ in range(2):
        ledger.tune("beta", 0.6)
        follow(ledger, learner)
        assert learner.replay.beta == 0.6
        feed(learner, 30, seed=0)
        annealed = learner.replay.beta
        assert annealed > 0.6
        follow(ledger, learner)  # told again, but not set again
        assert learner.replay.beta == annealed


@pytest.mark.parametrize("prioritized", [True, False])
def test_beta_of_a_uniform_replay_is_not_announced_as_changed(prioritized: bool, tmp_path: Path) -> None:
    commands = [Set(name="beta", value=0.7), Set(name="learning_rate", value=0.125)]
    reports = train(tmp_path, {**SNAKE, "prioritized_replay": prioritized}, 16, commands=commands)
    warnings = [log.text for log in of_kind(Log, reports) if log.level == "warning"]
    assert [changed.name for changed in of_kind(Changed, reports)] == ["beta", "learning_rate"][1 - prioritized :]
    assert warnings == ([] if prioritized else ["beta: has no effect on a uniform replay; accepted with: "
                                                "--prioritized-replay"])  # fmt: skip
