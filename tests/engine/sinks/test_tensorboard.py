"""TensorBoard's event files: on a disk that is not always there, and what TensorBoard reads in them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE, STATUS_SUCCESS, Experiment
from tensorboard.plugins.hparams.backend_context import Context

from engine.config.game import game_of
from engine.config.reading import make_config
from engine.config.run_config import options_of_all
from engine.protocol.messages import Evaluation, Failed
from engine.runs.run import CONFIG_FILE, read_config
from engine.sinks import dispatcher
from engine.sinks.dispatcher import Dispatcher
from engine.sinks.files import TensorBoard, compared
from mario_tui.extras.event_files import EventFolder
from mario_tui.extras.event_files.files import part_of
from mario_tui.extras.export.scalars import Points
from tests.support.event_files import read
from tests.support.program import FinishedRun
from tests.support.sinks import begin, tensorboard


def evaluation(env_steps: int) -> Evaluation:
    return Evaluation(env_steps=env_steps, episodes=10, clears=5, mean_return=1.0, best=True, seconds=1.0)


def test_metrics_go_into_another_file_once_the_disk_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_RETRY_EVERY_S", 0.0)
    said: list[tuple[str, str]] = []
    folder = tmp_path / "run"
    folder.touch()  # no file can be created in it
    sinks = Dispatcher({"TensorBoard": TensorBoard(folder)}, log=lambda *line: said.append(line))
    sinks.begin(begin(folder))
    sinks.look(retry=True)
    folder.unlink()
    folder.mkdir()
    sinks.put(evaluation(1))
    sinks.look(retry=False)
    sinks.look(retry=True)
    sinks.look(retry=True)  # it works
    sinks.put(evaluation(2))
    sinks.close()
    shown = EventAccumulator(str(folder)).Reload()
    assert [point.step for point in shown.Scalars("eval/clear_rate")] == [2]
    assert said == [
        ("warning", "no more metrics are written for TensorBoard: Not a directory"),
        ("info", "metrics are written for TensorBoard again"),
    ]


def test_a_link_that_takes_the_name_of_an_open_event_file_is_not_followed(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine"
    run.mkdir()
    mine.write_text("mine")
    sink = tensorboard(run)
    (path,) = run.iterdir()
    kept = path.rename(run / "kept.tfevents")
    path.symlink_to(mine)
    sink.evaluation(evaluation(1))
    sink.close()
    assert mine.read_text() == "mine"
    assert EventAccumulator(str(kept)).Reload().Scalars("eval/clear_rate")


def test_a_clock_that_was_set_back_hides_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for clock, first, last in ((now, 0, 30), (now - 3600, 30, 60), (now - 7200, 40, 80)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        sink = tensorboard(tmp_path)
        sink.restart(first)
        for step in range(first + 10, last + 1, 10):
            sink.evaluation(evaluation(step))
        sink.close()
    steps = [10, 20, 30, 40, 50, 60, 70, 80]
    shown = EventAccumulator(str(tmp_path)).Reload()
    assert [point.step for point in shown.Scalars("eval/clear_rate")] == steps
    newest = max(tmp_path.iterdir(), key=lambda path: part_of(path.name))
    newest.rename(tmp_path / newest.name.replace(f"{now:.6f}"[:10], "0123456789"))  # whatever its time is
    events = EventFolder(tmp_path)
    read(events)
    assert list(events.tags["eval/clear_rate"]["."].steps) == steps
    assert [row[2] for row in Points(tmp_path, "run", ["eval/clear_rate"])] == steps


def experiment_of(folder: Path) -> Experiment:
    """The columns that TensorBoard's own plugin shows for a folder of runs."""
    events = EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    context = Context(TBContext(data_provider=MultiplexerDataProvider(events, str(folder))))
    found = context.hparams_metadata(RequestContext(), "")
    return context.experiment_from_metadata(RequestContext(), "", True, found, [])


@pytest.mark.process
def test_tensorboard_reads_the_hyperparameters_of_a_run_and_how_it_ended(finished_run: FinishedRun) -> None:
    written = EventAccumulator(str(finished_run.run.path)).Reload()
    content = written.PluginTagToContent(metadata.PLUGIN_NAME)
    start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG]).hparams
    options = read_config(finished_run.checkpoint / CONFIG_FILE).options()  # another test resumes the run
    numbers = {name for name, value in options.items() if type(value) in (int, float)}
    assert {name: start[name].number_value for name in numbers} == {name: options[name] for name in numbers}
    assert start["game"].string_value == "mario" and start["amp"].bool_value is True
    assert start.keys() ^ options.keys() <= {"final_gamma"}  # unset
    end = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG])
    assert end.status == STATUS_SUCCESS and end.end_time_secs > finished_run.run.record().created_at
    assert set(written.Tags()["tensors"]) == set(content)  # and no scalar
    events = EventFolder(finished_run.run.path)
    read(events)
    session = events.sessions["."]
    assert session.status == "success" and session.parameters["learning_rate"] == options["learning_rate"]
    assert [metric.tag for metric in session.metrics] == compared(game_of("mario").outcome)


def test_a_folder_with_runs_of_several_games_shows_the_options_of_all(tmp_path: Path) -> None:
    for game in ("snake", "mario"):
        (tmp_path / game).mkdir()
        sink = TensorBoard(tmp_path / game)
        sink.begin(begin(tmp_path / game, game))
        sink.close()
    names = {info.name for info in experiment_of(tmp_path).hparam_infos}
    given = {*make_config({"game": "snake"}).options(), *make_config({"game": "mario"}).options()}
    assert names >= given & options_of_all().keys()  # without those that games find out


def test_a_run_that_failed_says_so(tmp_path: Path) -> None:
    sink = tensorboard(tmp_path)
    sink.end(Failed(reason="a reason", traceback="", log_path="", checkpoint=None))
    sink.close()
    content = EventAccumulator(str(tmp_path)).Reload().PluginTagToContent(metadata.PLUGIN_NAME)
    end = metadata.parse_session_end_info_plugin_data(content[metadata.SESSION_END_INFO_TAG])
    assert end.status == STATUS_FAILURE
