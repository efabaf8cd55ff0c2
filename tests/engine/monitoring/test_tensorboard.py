"""Scalars for TensorBoard on a disk that is not always there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from engine.config.game import game_of
from engine.monitoring import tensorboard
from engine.monitoring.tensorboard import ScalarWriter
from engine.protocol.messages import Evaluation

MARIO = game_of("mario").outcome


def evaluation(env_steps: int) -> Evaluation:
    return Evaluation(env_steps=env_steps, episodes=10, clears=5, mean_return=1.0, best=True, seconds=1.0)


def test_scalars_go_into_another_file_once_the_disk_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "_REOPEN_EVERY_S", 0.0)
    said: list[str] = []
    folder = tmp_path / "run"
    folder.touch()  # no file can be created in it
    writer = ScalarWriter(folder, MARIO, complain=said.append)
    assert not writer.reopen()
    folder.unlink()
    folder.mkdir()
    writer.evaluation(evaluation(1))
    assert writer.reopen()
    assert not writer.reopen()  # it works
    writer.evaluation(evaluation(2))
    writer.close()
    shown = EventAccumulator(str(folder))
    shown.Reload()
    assert [point.step for point in shown.Scalars("eval/clear_rate")] == [2]
    (text,) = said
    assert "no more scalars are written for TensorBoard" in text


def test_a_link_that_takes_the_name_of_an_open_event_file_is_not_followed(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine"
    run.mkdir()
    mine.write_text("mine")
    writer = ScalarWriter(run, MARIO, complain=print)
    (path,) = run.iterdir()
    before = path.stat().st_size
    kept = path.rename(run / "kept.tfevents")
    path.symlink_to(mine)
    writer.evaluation(evaluation(1))
    writer.close()
    assert mine.read_text() == "mine"
    assert kept.stat().st_size > before
