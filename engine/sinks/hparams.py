"""Hyperparameters as summaries of TensorBoard's hparams plugin, which shows them beside the metrics of each run.

TensorBoard takes the columns of its table from one experiment, the first that it finds in any run. So each run's names
the options of all games: otherwise a folder with runs of several games would show only those of one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import (
    DATA_TYPE_BOOL,
    DATA_TYPE_FLOAT64,
    DATA_TYPE_STRING,
    STATUS_FAILURE,
    STATUS_SUCCESS,
    Experiment,
    HParamInfo,
    MetricInfo,
    MetricName,
)
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from engine.config.fields import is_text
from engine.config.run_config import options_of_all
from engine.protocol.sinks import Begin


def experiment(options: Mapping[str, Any], metrics: Sequence[str]) -> Summary.Value:
    """The columns: options of all games and of this run, and the tags of scalars to compare by."""
    infos = [HParamInfo(name=name, type=_type(name, options.get(name))) for name in {**options_of_all(), **options}]
    compared = [MetricInfo(name=MetricName(tag=tag)) for tag in metrics]
    content = HParamsPluginData(experiment=Experiment(hparam_infos=infos, metric_infos=compared))
    return _summary(metadata.EXPERIMENT_TAG, content)


def session_start(run: Begin) -> Summary.Value:
    """The run's options. A number that is unset (`none`), or chosen later (`auto`), is left out: TensorBoard can't sort
    texts among numbers."""
    start = SessionStartInfo(start_time_secs=run.at)
    for name, value in run.options.items():
        kind = _type(name, value)
        if kind == DATA_TYPE_BOOL:
            start.hparams[name].bool_value = value
        elif kind == DATA_TYPE_STRING:
            start.hparams[name].string_value = str(value)
        elif not isinstance(value, str):
            start.hparams[name].number_value = value
    return _summary(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))


def session_end(*, in_order: bool) -> Summary.Value:
    """The end of a run that was finished or stopped, or else failed."""
    end = SessionEndInfo(status=STATUS_SUCCESS if in_order else STATUS_FAILURE, end_time_secs=time.time())
    return _summary(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end))


def _type(name: str, value: Any) -> int:
    """The plugin's type of an option, the same in every run. `value`: of one that the program doesn't know."""
    spec = options_of_all().get(name)
    if isinstance(value if spec is None else spec.default, bool):
        return DATA_TYPE_BOOL
    is_number = isinstance(value, int | float) if spec is None else not is_text(spec)
    return DATA_TYPE_FLOAT64 if is_number else DATA_TYPE_STRING


def _summary(tag: str, content: HParamsPluginData) -> Summary.Value:
    return Summary.Value(tag=tag, tensor=metadata.NULL_TENSOR, metadata=metadata.create_summary_metadata(content))
