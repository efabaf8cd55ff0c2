"""The options of sweeps: what varies, plan files, and what can't be combined."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from engine.config.features import feature
from engine.config.fields import must_be_one_of
from engine.config.reading import about, flat, with_task
from engine.config.run_config import RunConfig, check_ray, stored_options
from engine.errors import UserError
from engine.host.preflight import check_setup
from engine.protocol.messages import Failed
from engine.protocol.results import Checked
from engine.runs.sweep import MOST_RUNS, Member, SweepPlan
from engine.runtime.formats import read_toml
from engine.runtime.threads import available_cores
from mario_tui.commands.options import whole
from mario_tui.commands.schema import options_schema
from mario_tui.data.format import counted
from mario_tui.engine_command import EngineCommand, failure_text
from mario_tui.extras.sweeps.folder import STARTUP_SETTINGS
from mario_tui.extras.sweeps.results import listed, setting_text
from mario_tui.extras.sweeps.search import check_optuna
from mario_tui.extras.sweeps.variations import grid, sample, texts
from mario_tui.launch import make_plan, with_paths
from mario_tui.option_files import check_file
from mario_tui.terminal.console import progress_bar

PLAN_KEYS = (
    "vary", "seeds", "first-seed", "sample", "sample-seed", "search", "metric", "prune", "prune-after", "jobs", "name",
    "options",
)  # fmt: skip
RAY = "Ray cluster whose nodes the runs are placed on: auto (the one of this machine, or $RAY_ADDRESS) or HOST:PORT"
_MOST_JOBS = 1000
CHOICES = {"search": ("tpe",), "metric": ("best", "last"), "prune": ("median",)}


def _one_of(name: str, text: str) -> str:
    if text not in CHOICES[name]:
        raise UserError(f"--{name} {must_be_one_of(CHOICES[name], text)}")
    return text


def jobs_of(text: str) -> int:
    """0 for `auto`."""
    return 0 if text == "auto" else whole("--jobs", 1, _MOST_JOBS)(text)


_BOUNDS = {
    "seeds": (1, MOST_RUNS),
    "first-seed": (0, 2**32 - MOST_RUNS),
    "sample": (1, MOST_RUNS),
    "sample-seed": (0, 2**31),
    "prune-after": (0, 2**32),
}
"""Of whole numbers."""
PARSERS: dict[str, Callable[[str], Any]] = {
    **{name: whole(f"--{name}", *bounds) for name, bounds in _BOUNDS.items()},
    **{name: partial(_one_of, name) for name in CHOICES},
    "jobs": jobs_of,
    "name": str,
}


def schema() -> dict[str, Any]:
    """The JSON Schema of a plan: each key by itself. Options may have hyphens there, as flags have."""
    options = options_schema()["properties"]
    spelt = {each: name for name in options for each in (name, name.replace("_", "-"))}
    one = {each: {"$ref": f"#/$defs/{name}"} for each, name in spelt.items()}
    text = {"type": "string"}  # of several values, or a range
    varied = {each: {"anyOf": [of, {"type": "array", "minItems": 1, "items": of}, text]} for each, of in one.items()}
    keys = {name: {"type": "integer", "minimum": low, "maximum": high} for name, (low, high) in _BOUNDS.items()}
    keys |= {name: {"enum": list(choices)} for name, choices in CHOICES.items()}
    keys |= {
        "jobs": {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": _MOST_JOBS}]},
        "name": {"type": "string"},
        "vary": {"type": "object", "properties": varied, "additionalProperties": False},
        "options": {"type": "object", "properties": one, "additionalProperties": False},
    }
    return {"type": "object", "properties": keys, "additionalProperties": False, "$defs": options}


def add_variations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vary", action="append", metavar="OPTION=VALUES",
        help="values of an option, separated by commas; with --sample also a range LOW..HIGH or log:LOW..HIGH",
    )  # fmt: skip
    parser.add_argument("--sample", type=PARSERS["sample"], metavar="N", help="N random settings")
    parser.add_argument(
        "--sample-seed", type=PARSERS["sample-seed"], metavar="N", help="seed of the sample (default: 0)"
    )
    parser.add_argument("--seeds", type=PARSERS["seeds"], metavar="N", help="seeds of each setting")
    parser.add_argument("--first-seed", type=PARSERS["first-seed"], metavar="N", help="first seed (default: 0)")


def asked_settings(options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.sample is not None and not options.vary:
        raise UserError("--sample needs --vary OPTION=LOW..HIGH")
    if options.sample_seed is not None and options.sample is None:
        raise UserError("--sample-seed needs --sample N")
    if options.sample is not None:
        return sample(options.vary, options.sample, options.sample_seed or 0)
    return grid(options.vary or [])


def read_plan(path: Path, options: argparse.Namespace, typed: Mapping[str, Any]) -> dict[str, Any]:
    """The run options of a file; what else it has, and flags have not, goes to `options`. `typed`: run options that
    replace its own. Raises `UserError`."""
    try:
        values = read_toml(path)
    except (OSError, ValueError) as error:
        raise UserError(f"--plan: {path}: can't be read ({error})") from None
    for key, value in values.items():
        if key not in PLAN_KEYS:
            raise UserError(f"--plan: {path}: unknown key {key!r}; must be one of {', '.join(PLAN_KEYS)}")
        name = key.replace("-", "_")
        if key in ("vary", "options"):
            if not isinstance(value, dict):
                raise UserError(f"--plan: {path}: {key} must be a table, got {value!r}")
        elif getattr(options, name) is None:
            setattr(options, name, PARSERS[key](str(value)))
    varied = []
    if options.vary is None:
        varied = [
            f"{name}={each if isinstance(each, str) else listed(_resolved(name, each, path.parent))}"
            for name, each in values.get("vary", {}).items()
        ]
        options.vary = varied or None
    with about(f"--plan: {path}"):
        found = with_task(flat({name.replace("-", "_"): value for name, value in values.get("options", {}).items()}))
    for name in found:
        if name not in stored_options():
            raise UserError(f"--plan: {path}: unknown option {name!r}")
    found = with_paths(found, path.parent)
    of_file = [{name: value for name, value in found.items() if name not in typed}, *texts(varied)]
    try:
        check_file(path, of_file, trusted=options.trust)
    except OSError as error:
        raise UserError(f"--plan: {error.filename}: {error.strerror}") from None
    return found


def _resolved(name: str, value: Any, folder: Path) -> list[Any]:
    """The values of an option, with paths as the file's folder has them."""
    name, values = name.strip().removeprefix("--").replace("-", "_"), value if isinstance(value, list) else [value]
    return [with_paths({name: each}, folder)[name] for each in values]


def check_count(count: int) -> None:
    if count > MOST_RUNS:
        raise UserError(f"a sweep must have at most {MOST_RUNS:,} runs, got {count:,}")


def check_runs(plan: SweepPlan, settings: list[dict[str, Any]], run_dir: Path) -> tuple[list[RunConfig], list[str]]:
    """Options of a run of each setting, and what is to be said of options without effect. Raises `UserError` naming the
    setting if those of one don't fit together."""
    check_devices(plan, settings)
    plans = []
    for setting in settings:
        try:
            plans.append(make_plan({**plan.values(Member(setting, 0)), "run_dir": str(run_dir)}))
        except UserError as error:
            raise UserError(f"{error} (with {setting_text(setting)})" if setting else str(error)) from None
    configs = [each.config for each in plans]
    if plan.ray == "none":  # nodes have their own devices, files and modules
        _check_here(configs)
    warnings = dict.fromkeys(text for each in plans for level, text in each.notes if level == "warning")
    return configs, list(warnings)


def _check_here(configs: Iterable[RunConfig]) -> None:
    """Check what a single run finds out at its start. Raises `UserError`."""
    networks = dict[tuple[str, int, tuple[int, ...], int, int], None]()
    for config in configs:
        check_setup(config)
        if ":" in (name := config.network_name):
            spec = config.spec
            networks[name, spec.stack, spec.frame_shape, spec.actions, spec.numbers] = None
    if not networks:
        return
    command = EngineCommand("check_networks", msgspec.json.encode([*networks]).decode())
    with command, progress_bar(f"checking {counted(len(networks), 'network')}", None):
        result = command.result(Checked)
    if isinstance(result, Failed):
        raise UserError(failure_text(result))


def check_devices(plan: SweepPlan, settings: list[dict[str, Any]]) -> None:
    """Raises `UserError` for a GPU by its number on a cluster: Ray shows each run its own as `cuda:0`."""
    for device in [str({**plan.options, **setting}.get("device")) for setting in settings]:
        if plan.ray != "none" and device.startswith("cuda:"):
            raise UserError(f"--device must be auto, cpu, mps or cuda with --ray, which chooses GPUs, got {device!r}")


def prune_after(options: argparse.Namespace, configs: list[RunConfig]) -> int | None:
    """Steps before which no setting is pruned; None if none ever is. Raises `UserError` if none could be."""
    if options.prune is None:
        if options.prune_after is not None:
            raise UserError("--prune-after needs --prune")
        return None
    if len(configs) <= STARTUP_SETTINGS:
        raise UserError(f"--prune needs at least {STARTUP_SETTINGS + 1} settings, to compare them, got {len(configs)}")
    if any(config.eval_every == 0 for config in configs):
        raise UserError("--prune compares evaluations: --eval-every must be above 0")
    check_optuna("--prune")
    return min(config.steps for config in configs) // 4 if options.prune_after is None else int(options.prune_after)


def cluster_of(asked: str) -> str:
    """Return what `--ray` names, once a cluster answers there. Raises `UserError`."""
    check_ray(asked, ("none", "auto"))  # a sweep on one machine needs no cluster
    if asked != "none":
        feature("ray", "--ray").check_cluster(asked)
    return asked


def shared_cores(ray: str, runs: int, jobs: int | None, threads: int | None) -> tuple[int | None, int | None]:
    """Return how many runs train at once, None for as many as a cluster carries, and the cores of each; None where
    processes can't be bound to cores."""
    if ray != "none":
        return jobs, threads or (1 if hasattr(os, "sched_setaffinity") else None)
    cores = available_cores()
    jobs = min(runs, jobs or max(1, cores // (threads or 1)))
    if threads is None and hasattr(os, "sched_setaffinity"):
        threads = max(1, cores // jobs)
    return jobs, threads
