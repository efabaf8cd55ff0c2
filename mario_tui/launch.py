"""From options to a running host: merging option sources, new runs and resumed ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.config.presets import preset
from engine.config.run_config import ConfigError, RunConfig, carried_over, load_toml, make_config
from engine.errors import UserError
from engine.host.client import HostProcess
from engine.host.preflight import check_start
from engine.runs.checkpoints import find_source
from engine.runs.registry import create_run
from engine.runs.run import CONFIG_FILE, Run, read_config


@dataclass(frozen=True)
class Plan:
    """A validated request. `run` is the run it continues, `checkpoint` what it begins from."""

    config: RunConfig
    run: Run | None = None
    checkpoint: Path | None = None

    def start(self, *, foreground: bool = False) -> HostProcess:
        """Make or reopen the run's folder and start its host. Raises `UserError` if this machine can't run it, before
        anything is made, or if the folder can't be written."""
        check_start(self.config, new=self.run is None)
        run = create_run(self.config) if self.run is None else self.run
        try:
            config = None if self.run is None else self.config
            return HostProcess(run, self.checkpoint, config=config, foreground=foreground)
        except OSError as error:
            raise UserError(f"--run-dir: {run.path}: can't be written ({error.strerror or error})") from None


def make_plan(
    given: Mapping[str, Any], config_file: Path | None = None, resume: str | None = None, preset_name: str | None = None
) -> Plan:
    """Options in rising order: defaults, the resumed run's, the preset's, the file's, the command line's.

    Raises `UserError` in one line: which field or file, and what is accepted.
    """
    given = _with_paths(given, Path.cwd())
    from_file = {} if config_file is None else _with_paths(load_toml(config_file), config_file.parent)
    file_says = from_file.keys() - given.keys()
    if preset_name is not None:
        from_file = {**preset(preset_name), **from_file}
    asked = {**from_file, **given}
    try:
        return _plan(asked, resume)
    except ConfigError as error:
        if error.field in file_says:
            raise UserError(f"{config_file}: {error.field}: {error.reason}") from None
        raise


def _plan(asked: Mapping[str, Any], resume: str | None) -> Plan:
    if resume is None:
        return Plan(make_config(asked))
    source = find_source(resume, asked.get("run_dir"))
    if source.run is not None and source.run.is_alive():
        raise UserError(f"--resume: {source.run.name} is running; use: mario-tui attach {source.run.name}")
    before = read_config(source.path / CONFIG_FILE)
    kept = before.options()
    for name in ("game", "board", "actions", "observation", "network"):
        of_network = getattr(before, name)
        if of_network is not None and asked.get(name, of_network) != of_network:
            raise ConfigError(name, f"the checkpoint's network is for {of_network}; accepted: that, or a new run")
    config = make_config({**carried_over(kept, before.game, asked.get("runner", before.runner)), **asked})
    if config.steps <= source.manifest.env_steps:
        raise ConfigError(
            "steps",
            f"{config.steps:,} are done: the checkpoint is at {source.manifest.env_steps:,} environment steps; "
            "accepted: a larger number",
        )
    if source.run is not None and config.episodes is not None:
        done = source.run.record().episodes
        if done >= config.episodes:
            raise ConfigError("episodes", f"{done:,} are done; accepted: a larger number")
    return Plan(config, source.run, source.path)


def _with_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """With `~` as a shell takes it, and the cartridge's path as it was meant where it was written: the engine works in
    the run's folder."""
    paths = {
        name: str(expanded(values[name]))
        for name in ("rom", "run_dir")
        if isinstance(values.get(name), str) and values[name]
    }
    if "rom" in paths:
        paths["rom"] = str((folder / paths["rom"]).resolve())
    return {**values, **paths}


def expanded(path: str) -> Path:
    """With `~` as a shell takes it; of somebody unknown it stays."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
