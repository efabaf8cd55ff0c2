"""From options to a running host: merges the option sources, and starts new or resumed runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from engine.config.command_line import preset, without_effect
from engine.config.features import place_of_feature
from engine.config.fields import ConfigError, coerce, shown
from engine.config.game import options_with
from engine.config.reading import as_given, carried_over, completed, load_toml, make_config
from engine.config.run_config import HEAD_OPTIONS, RunConfig, belongs, specs_of
from engine.config.runners import RUNNERS, TorchrunRank, torchrun_rank
from engine.config.sinks import JSON_LINES, sink_names
from engine.config.user_code import located
from engine.errors import RemovedError, UserError
from engine.host.client import HostProcess
from engine.host.preflight import check_start
from engine.runs.checkpoints import OnProgress, committed, read_manifest
from engine.runs.lookup import HUB, find_source, how_to_name, options_of_policy, with_located_policy, with_pinned_policy
from engine.runs.marks import check_code, is_run, mark_own, was_created_here
from engine.runs.registry import create_run, discard_run, list_records, name_error
from engine.runs.run import CONFIG_FILE, Annotation, Run, read_config, write_annotation
from engine.runtime.files import expanded, misses_file_of
from engine.runtime.threads import cpu_seconds
from mario_tui.option_files import check_file

_MOST_NAMED = 3
_MEASURED_S = 0.5
_END_S = 60.0
"""Seconds that the host of lost ranks has to end before its run starts again."""


@dataclass(frozen=True)
class Plan:
    """A validated request to start a run. When resuming, `run` is that run and `checkpoint` its starting point."""

    config: RunConfig
    run: Run | None = None
    checkpoint: Path | None = None
    name: str | None = None
    """Of a new run; None: after its game and the time."""
    is_done: bool = False
    """Whether `run` has done all its steps."""
    notes: tuple[tuple[str, str], ...] = ()
    """Lines (level, text) for the run's log: options that follow others, or have no effect."""
    annotation: Annotation | None = None
    """To write into the run's folder; None: what is there is kept."""

    def start(self, *, foreground: bool = False, keep_refused: bool = False) -> HostProcess:
        """Create or reopen the run's folder and start its host. See `HostProcess`.

        Raises `UserError` if this machine can't run it (nothing is created then), or if the folder can't be written;
        `RemovedError` if somebody removed the folder meanwhile.
        """
        check_start(self.config, new=self.run is None)
        run = create_run(self.config, self.name) if self.run is None else self.run
        mark_own(run.path, self.config.values())
        try:
            if self.annotation is not None:
                write_annotation(run, self.annotation)
            config = None if self.run is None else self.config
            return HostProcess(
                run, self.checkpoint, config=config, foreground=foreground, keep_refused=keep_refused, notes=self.notes
            )
        except (OSError, UserError) as error:
            if misses_file_of(run.path, error) or not is_run(run.path):
                raise RemovedError(f"{run.path}: was removed while the run started") from None
            if self.run is None:
                with contextlib.suppress(UserError):
                    discard_run(run)
            if isinstance(error, UserError):
                raise
            raise UserError(f"--run-dir: {run.path}: can't be written ({error.strerror or error})") from None


def busy_warning(run: Run) -> str:
    """A line that names the other runs that are training on this machine, with the cores that are not left for this
    one; empty if there are none. Measures for half a second."""
    try:
        records = list_records()
    except UserError:
        return ""
    others = [
        other.name
        for other, record in records
        if other.path != run.path and record.state in ("starting", "running") and not record.elsewhere
    ]
    if not others:
        return ""
    names = ", ".join(others[:_MOST_NAMED]) + (f", {len(others) - _MOST_NAMED} more" * (len(others) > _MOST_NAMED))
    cores = psutil.cpu_count() or 1
    busy = "core is" if cores == 1 else "cores are"
    return f"{_taken_cores():.1f} of {cores} {busy} busy with {names} and other programs"


def _taken_cores() -> float:
    """Return how many cores other processes keep busy than this one and those that it has started."""
    this, began = psutil.Process(), time.monotonic()
    before = cpu_seconds(this)
    busy = psutil.cpu_percent(interval=_MEASURED_S) / 100 * (psutil.cpu_count() or 1)
    return max(0.0, busy - (cpu_seconds(this) - before) / (time.monotonic() - began))


def make_plan(
    given: Mapping[str, Any],
    config_file: Path | None = None,
    resume: str | None = None,
    preset_name: str | None = None,
    name: str | None = None,
    progress: OnProgress = lambda done: None,
    *,
    trusted: bool = False,
) -> Plan:
    """Merge the options. Later sources override earlier ones: defaults, resumed run, preset, file, command line.

    `progress`: of verifying the checkpoint that is resumed, which reads all of it. `trusted`: see `check_file`.

    Raises `UserError` that names the field or file and what it must be.
    """
    with _naming(config_file, given):
        asked, notes = _merged(given, config_file, preset_name, trusted)
        rank = torchrun_rank()
        if rank is not None:
            if name is not None:
                raise UserError("--name: torchrun's --rdzv-id names the run")
            return _plan_of_rank(rank, asked, resume)
        plan = _named(_plan(asked, resume, progress), name)
        return replace(plan, notes=(*notes, *plan.notes))


def asked_options(
    given: Mapping[str, Any], config_file: Path | None, preset_name: str | None, *, trusted: bool = False
) -> dict[str, Any]:
    """The options of preset, file and command line, each overriding the one before; see `with_pinned_policy`. Raises
    `UserError`."""
    with _naming(config_file, given):
        return dict(with_pinned_policy(_merged(given, config_file, preset_name, trusted)[0]))


def _merged(
    given: Mapping[str, Any], config_file: Path | None, preset_name: str | None, trusted: bool
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The options, and lines (level, text) about the file for the run's log."""
    options, notes = {} if preset_name is None else preset(preset_name), []
    if config_file is not None:
        of_file = with_paths(load_toml(config_file), config_file.parent)
        not_typed = {name: value for name, value in of_file.items() if name not in given}
        if line := check_file(config_file, [not_typed], trusted=trusted):
            notes.append(("info", line))
        options |= of_file
    return {**options, **with_paths(given, Path.cwd())}, notes


@contextlib.contextmanager
def _naming(config_file: Path | None, given: Mapping[str, Any]) -> Iterator[None]:
    """Raise `UserError` that names the file if it has the wrong option."""
    try:
        yield
    except ConfigError as error:
        if config_file is not None and error.field not in given and error.field in load_toml(config_file):
            raise UserError(f"{config_file}: {error.field} {error.reason}") from None
        raise
    except OSError as error:  # a name that is too long, or a folder that may not be read
        raise UserError(f"{error.filename}: {error.strerror}") from None


def _named(plan: Plan, name: str | None) -> Plan:
    """The plan of a run with that name. Raises `UserError` if it can't have it."""
    if name is None:
        return plan
    if plan.run is not None:
        raise UserError(f"--name: can't rename {plan.run.name}, which is resumed in its own folder")
    if reason := name_error(name, plan.config.run_dir):
        raise UserError(f"--name: {reason}")
    return replace(plan, name=name)


def _plan_of_rank(rank: TorchrunRank, asked: Mapping[str, Any], resume: str | None) -> Plan:
    """The plan of a process that torchrun has started. The run has the name of torchrun's job. If it exists, it resumes
    from its newest checkpoint. Ranks other than 0 only check the options."""
    runner = asked.get("runner", RunConfig.runner)
    accepted = [name for name, info in RUNNERS.items() if info.under_torchrun]
    if runner not in accepted:
        raise ConfigError("runner", f"must be {' or '.join(accepted)} under torchrun, got {runner}")
    place_of_feature("torchrun", "torchrun")
    if (ranks := asked.get("num_processes", rank.ranks)) != rank.ranks:
        raise ConfigError("num_processes", f"must be {rank.ranks}, the number of torchrun's ranks, got {ranks}")
    asked = {**asked, "num_processes": rank.ranks}
    run = Run(Path(asked.get("run_dir", RunConfig.run_dir)) / rank.name)
    exists = run.record_path.exists()
    newest = committed(run)[-1:] if exists else []
    if newest:
        kept = _kept(run, read_config(newest[0] / CONFIG_FILE))
        if asked.get("steps", kept.steps) <= read_manifest(newest[0]).env_steps:
            return Plan(kept, run, is_done=True)
    if rank.index:  # when resuming, rank 0 checks the options
        return Plan(RunConfig(run_dir=str(run.path.parent)) if newest or resume else make_config(asked))
    if not exists:
        if reason := name_error(rank.name, run.path.parent):
            raise UserError(f"--rdzv-id: {reason}")
        return replace(_plan(asked, resume), run=None, name=rank.name)
    deadline = time.monotonic() + _END_S
    while run.is_alive() and time.monotonic() < deadline:
        time.sleep(0.1)
    newest = committed(run)[-1:]  # its host may have written one more
    return replace(_plan(asked, str(run.path) if newest else resume), run=run)


def _kept(run: Run, before: RunConfig) -> RunConfig:
    """The options of a run that go on to hold: its newest, which may have been given since its checkpoint with the
    options `before`. Those that decide which network fits are the checkpoint's."""
    try:
        kept = run.config()
    except UserError:  # damaged
        return before
    if kept.game != before.game:
        return before
    of_network = (*options_with("network", before.game), *HEAD_OPTIONS)
    return kept.changed(**{name: before.value(name) for name in of_network})


def _check_fits(config: RunConfig, before: RunConfig, asked: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for an option that was `asked` for and changes the game so that the network of a checkpoint,
    which has the options `before`, does not fit."""
    changed = [name for name in before.task_options if name in asked and config.value(name) != before.value(name)]
    if not changed:
        return
    for part, what in (("frame_shape", "shape of frames"), ("stack", "frame stack"), ("actions", "number of actions")):
        trained, now = getattr(before.spec, part), getattr(config.spec, part)
        if now != trained:
            values = (shown(each.value(changed[0])) for each in (before, config))
            needed = "must be {}, as in the checkpoint, got {!r}".format(*values)
            raise ConfigError(changed[0], f"{needed}, with which the {what} is {now}, not {trained}")


def _plan(asked: Mapping[str, Any], resume: str | None, progress: OnProgress = lambda done: None) -> Plan:
    if resume is None:
        asked = with_pinned_policy(asked)
        defaults = options_of_policy(asked)
        config = make_config(asked, defaults=defaults)
        check_code(config.values(), asked, None, "the policy")
        notes = _notes(config, asked, completed(asked, defaults).lines())
        return Plan(with_located_policy(config), notes=notes)
    from engine.runs.checkpoint_state import check_contents  # imports NumPy

    source = find_source(resume, asked.get("run_dir"), progress)
    if source.run is not None and source.run.is_alive():
        machine = source.run.record().elsewhere
        how = f" on {machine}; attach to it there" if machine else f"; use: mario-tui attach {how_to_name(source.run)}"
        raise UserError(f"--resume: {source.run.name} is running{how}")
    before = read_config(source.path / CONFIG_FILE)
    kept = before if source.run is None else _kept(source.run, before)
    gamma = ("gamma",) if before.keeps_gamma else ()
    for name in ("game", *options_with("network", before.game), *HEAD_OPTIONS, "optimizer", *gamma):
        trained = before.value(name)
        if name in asked and coerce(specs_of(before.game)[name], asked[name]) != trained:
            needed = f"must be {shown(trained)}, as in the checkpoint, got {shown(asked[name])!r}"
            raise ConfigError(name, f"{needed}; for another one start a new run")
    if asked.get("initial_policy", before.initial_policy) != before.initial_policy:
        raise ConfigError("initial_policy", "can't be given to resume: the checkpoint has its own weights")
    runner = asked.get("runner", kept.runner)
    if (
        belongs("ray", kept.game, runner) and kept.ray not in ("none", "local") and "ray" not in asked
    ):  # the folder may be foreign
        raise ConfigError("ray", f"must be given again to resume; the run used {kept.ray}; none: on this machine")
    check_code({**kept.values(), **asked}, asked, source.path, "the run")
    foreign = set(sink_names(kept.sinks)) - {JSON_LINES}
    if foreign and "sinks" not in asked and not was_created_here(source.path.parent):  # it would run somebody's choice
        raise ConfigError("sinks", f"must be given again to resume; the run used {kept.sinks}; none: only TensorBoard")
    options = kept.options()
    defaults = carried_over(options, before.game, runner)
    values = {**carried_over(as_given(options), before.game, runner), **asked}
    config = make_config(values, defaults=defaults)
    _check_fits(config, before, asked)
    if config.steps <= source.manifest.env_steps:
        needed = f"must be above {source.manifest.env_steps:,}, the checkpoint's environment steps"
        if "steps" not in asked:
            name = source.path.name if source.run is None else source.run.name
            raise ConfigError("steps", f"{needed}, for {name} has done all of its {config.steps:,}; add --steps N")
        raise ConfigError("steps", f"{needed}, got {config.steps:,}")
    if source.run is not None and config.episodes is not None:
        done = source.run.record().episodes
        if done >= config.episodes:
            raise ConfigError("episodes", f"must be above {done:,}, the episodes done, got {config.episodes:,}")
    check_contents(source.path, source.manifest)
    notes = _notes(config, asked, completed(values, defaults).lines())
    return Plan(config, source.run, source.path, notes=notes)


def _notes(config: RunConfig, asked: Mapping[str, Any], followed: list[str]) -> tuple[tuple[str, str], ...]:
    ignored = without_effect(asked, config)
    return (*(("info", line) for line in followed), *(("warning", line) for line in ignored))


def with_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The values with `~` expanded, and paths that the engine reads resolved against `folder`: its working directory is
    the run's folder. An address on the Hub is kept as it is."""
    paths = {
        name: str(expanded(values[name]))
        for name in ("rom", "run_dir", "initial_policy")
        if isinstance(values.get(name), str) and values[name] and not values[name].startswith(HUB)
    }
    for name, path in paths.items():
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in path):
            raise ConfigError(name, f"must be valid UTF-8 without NUL characters, got {values[name]!r}")
    for name in ("rom", "initial_policy"):
        if name in paths and (name == "rom" or (folder / paths[name]).exists()):  # a policy may be a run's name
            paths[name] = str((folder / paths[name]).resolve())
    return {**located(values, folder), **paths}
