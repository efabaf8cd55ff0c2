"""Find the run, sweep, checkpoint or policy that a user names; rename or delete a run or sweep.

Where a run is named in place of a sweep or the other way round, the error says so. Folders that somebody else has made
are data like any others: only what is a run or a sweep of this user's is touched, and nothing outside of it:
`shutil.rmtree` follows no link.

Policy files: the one with whose weights a run begins, whether it fits, and where one comes from, as far as its place
and its metadata tell. Does not import torch.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from engine.config.capabilities import StartsFromPolicy, task_label
from engine.config.features import feature, has_feature
from engine.config.fields import ConfigError, check
from engine.config.game import GAMES, game_of
from engine.config.reading import NOT_TRAINED
from engine.config.run_config import HEAD_OPTIONS, RunConfig, specs_of
from engine.config.runners import is_run_name
from engine.errors import UserError
from engine.protocol.results import PolicyKind
from engine.runs import marks, policies
from engine.runs.checkpoints import (
    BEST_POLICY_FILE,
    MANIFEST,
    POLICY_FILE,
    CheckpointError,
    Manifest,
    OnProgress,
    check_policy,
    committed,
    newest,
    policy_metadata,
    read_manifest,
    verify,
)
from engine.runs.marks import RECORD_FILE, is_run, run_folder, user_name
from engine.runs.registry import LATEST, SWEEP_FILE, discard_run, list_records, list_runs, name_error
from engine.runs.run import CONFIG_FILE, LOOP_FILE, Run
from engine.runs.sweep import Sweep, list_sweeps
from engine.runtime.files import is_own
from engine.runtime.text import in_words

HUB = "hf://"
"""Begins the address of a policy on the Hugging Face Hub."""
_RunOrSweep = TypeVar("_RunOrSweep", bound=Run | Sweep)


class WrongNameError(UserError):
    """The name belongs to a sweep where a run is expected, or to more than one run or sweep."""


def find_run(name: str, run_dir: str | Path | None = None) -> Run:
    """Find a run by its path, or among those of `list_runs` by its name or `latest`.

    Raises `WrongNameError` if it is a sweep, or if several have the name; `UserError`, with the names of the newest
    runs, if there is no such run.
    """
    if name != LATEST and is_run(Path(name)):
        return Run(Path(name))
    runs = list_runs(run_dir)
    if found := _named(name, runs, run_dir):
        return found
    where = "" if run_dir is None else f" in {run_dir}"
    if name == LATEST:
        raise UserError(f"latest: there is no run{where} yet")
    if _is_sweep(Path(name)) or any(sweep.name == name for sweep in list_sweeps()):
        raise WrongNameError(
            f"{name}: is a sweep, not a run; use: mario-tui sweep watch {name} (or sweep stop, resume, wait)"
        )
    known = ", ".join(run.name for run in runs[:5]) or "none"
    raise UserError(f"{name}: no such run{where}; accepted: a run's name or path, or latest (newest: {known})")


def find_run_or_sweep(name: str, run_dir: str | Path | None = None) -> Run | Sweep:
    """Find a run or a sweep by its path, or among all of both by its name; `latest` is a run. Raises `UserError` if
    there is none, `WrongNameError` if several have the name."""
    path = Path(name)
    if name != LATEST and _is_sweep(path):
        return Sweep(path)
    if name == LATEST or is_run(path):
        return find_run(name, run_dir)
    known: list[Run | Sweep] = [*list_runs(run_dir), *list_sweeps(run_dir)]
    if found := _named(name, known, run_dir):
        return found
    newest = ", ".join(each.name for each in known[:5]) or "none"
    where = "" if run_dir is None else f" in {run_dir}"
    raise UserError(f"{name}: no such run or sweep{where}; accepted: a name or path, or latest (newest: {newest})")


NO_SWEEPS = "no sweeps yet; start one with: mario-tui sweep --vary OPTION=VALUE,VALUE --seeds N"


def find_sweep(name: str, run_dir: str | Path | None = None) -> Sweep:
    """A sweep by its path, or among those of `list_sweeps` by its name or `latest`. Raises `UserError` if there is
    none, if it is a run, or if several have the name."""
    if name != LATEST and _is_sweep(Path(name)):
        return Sweep(Path(name))
    sweeps = list_sweeps(run_dir)
    if found := _named(name, sweeps, run_dir):
        return found
    if name != LATEST and (is_run(Path(name)) or any(run.name == name for run in list_runs())):
        raise UserError(f"{name}: is a run, not a sweep; use: mario-tui attach {name} (or stop, pause, wait)")
    where = "" if run_dir is None else f" in {run_dir}"
    if not sweeps and not where:
        raise UserError(NO_SWEEPS if name == LATEST else f"no sweep {name!r}; {NO_SWEEPS}")
    known = ", ".join(sweep.name for sweep in sweeps[:5]) or "none"
    raise UserError(f"no sweep {name!r}{where}; there are: {known}")


def how_to_name(found: Run | Sweep) -> str:
    """Return what a command finds it by: its name, or if that is another's here, its path."""
    with contextlib.suppress(UserError):
        same = find_run(found.name) if isinstance(found, Run) else find_sweep(found.name)
        if same.path == found.path:
            return found.name
    return shlex.quote(str(found.path))


def _is_sweep(folder: Path) -> bool:
    return (folder / SWEEP_FILE).is_file()


def _named(name: str, known: Sequence[_RunOrSweep], run_dir: str | Path | None) -> _RunOrSweep | None:
    """The newest for `latest`; else the one with the name. Of several it is the one in the run folder, or in a sweep
    there. Raises `WrongNameError` if that leaves more than one."""
    if name == LATEST:
        return known[0] if known else None
    found = [each for each in known if each.name == name]
    if len(found) < 2:
        return found[0] if found else None
    here = Path(run_dir or RunConfig.run_dir).resolve()
    in_it = [each for each in found if each.path.parent == here]
    below = [each for each in found if here in each.path.parents]
    nearest = in_it or below
    if len(nearest) == 1:
        return nearest[0]
    paths = ", ".join(str(each.path) for each in found)
    raise WrongNameError(f"{name}: {len(found)} have this name; give one of the paths: {paths}")


def check_idle(found: Run | Sweep) -> None:
    """Raise `UserError` unless it can be renamed and deleted: it is a run or a sweep, belongs to this user, and nothing
    in it trains."""
    if isinstance(found, Sweep):
        if not (found.path / SWEEP_FILE).is_file():
            raise UserError(f"{found.path}: not a sweep of mario-tui")
        if found.queue_pid() is not None:
            raise UserError(f"{found.name}: is running; stop it first: mario-tui sweep stop {found.name}")
    elif not _is_whole(found) or any(found.path.glob(f"*/{RECORD_FILE}")):
        raise UserError(f"{found.path}: not a run of mario-tui")
    if not is_own(found.path):
        owner = user_name(found.path.lstat().st_uid)
        raise UserError(f"{found.path}: belongs to {owner}; only its owner can rename or delete it")
    for run in runs_of(found):
        if run.is_alive():
            raise UserError(f"{run.name}: is running; stop it first: mario-tui stop {run.name}")


def _is_whole(run: Run) -> bool:
    """Return whether a folder is a run: another program's may have a file of the same name."""
    described = any((run.path / name).is_file() for name in (CONFIG_FILE, LOOP_FILE))
    return is_run(run.path) and (described or run.record().state != "damaged")


def _sweep_of(run: Run) -> Sweep | None:
    """The sweep in whose folder the run lies."""
    folder = run.path.parent
    return Sweep(folder) if (folder / SWEEP_FILE).is_file() else None


def runs_of(found: Run | Sweep) -> list[Run]:
    """The run, or those of the sweep that have begun."""
    if isinstance(found, Run):
        return [found]
    folders = (path.parent for path in found.path.glob(f"*/{RECORD_FILE}"))
    return [Run(folder) for folder in folders if not folder.is_symlink()]


def rename(found: Run | Sweep, name: str) -> Run | Sweep:
    """Give its folder another name in the same place. What is trusted goes with it. Raises `UserError` if it can't have
    that name, is a run of a sweep, or see `check_idle`."""
    check_idle(found)
    if isinstance(found, Run) and (sweep := _sweep_of(found)):
        raise UserError(f"{found.name}: is a run of the sweep {sweep.name}, which can be renamed as a whole")
    if reason := name_error(name, None):
        raise UserError(f"the new name {reason}")
    now = found.path.with_name(name)
    if os.path.lexists(now):
        raise UserError(f"{now} exists already; choose another name")
    if isinstance(found, Sweep) and not is_run_name(found.plan().name):  # of an earlier version: by its folder's name
        with found.changed_plan() as (plan, write):
            write(msgspec.structs.replace(plan, name=found.name))
    moved = [found.path, *(run.path for run in runs_of(found))]
    contents = [marks.marks_of(path) for path in moved]
    with _changing(found.path, "renamed"), found.lock():
        found.path.rename(now)
    for path, noted in zip(moved, contents, strict=True):
        marks.move(path, now / path.relative_to(found.path), noted)
    return type(found)(now)


def delete(found: Run | Sweep) -> None:
    """Delete its folder with everything in it. If it belongs to a sweep, that knows from now on. Raises `UserError` if
    that can't be done, or see `check_idle`."""
    check_idle(found)
    if isinstance(found, Run):
        if sweep := _sweep_of(found):
            with contextlib.suppress(UserError):  # it can't be written, such as another user's
                sweep.note("deleted", found)
        discard_run(found)
        return
    with _changing(found.path, "removed"):
        with found.lock():
            for run in runs_of(found):
                discard_run(run)
            (found.path / SWEEP_FILE).unlink()  # after its runs: what is left after a crash is a sweep, or none
        shutil.rmtree(found.path)
    marks.forget(found.path)


@contextlib.contextmanager
def _changing(folder: Path, what: str) -> Iterator[None]:
    """Raises `UserError` for what can't be done to the folder."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: can't be {what} ({error.strerror or error})") from None


@dataclass(frozen=True)
class Source:
    """A checkpoint to resume from. `run` is the run that it continues; None if it starts a new run."""

    path: Path
    manifest: Manifest
    run: Run | None


def find_source(spec: str, run_dir: str | Path | None, progress: OnProgress = lambda done: None) -> Source:
    """Resolve `--resume RUN|PATH|latest`; runs are those of `list_runs(run_dir)`.

    The newest checkpoint of a run continues that run. An older one, or one outside a run's folder, starts a new run.
    Raises `UserError` if there is nothing to resume from.
    """
    folder = Path(spec)
    if spec == LATEST:
        run = next((run for run in list_runs(run_dir) if committed(run)), None)
        if run is None:
            where = "" if run_dir is None else f" in {run_dir}"
            raise CheckpointError(f"--resume latest: no run{where} has a checkpoint yet")
        return _newest_source(run, progress)
    if folder.is_dir() and (folder / MANIFEST).is_file():
        folder = folder.resolve()
        manifest = verify(folder, progress=progress)
        owner = Run(folder.parent)
        siblings = committed(owner)
        is_newest = bool(siblings) and siblings[-1] == folder and is_run(owner.path)
        return Source(folder, manifest, owner if is_newest else None)
    try:
        run = find_run(spec, run_dir)
    except UserError as error:
        if policies.has_card(spec) or folder.is_file():
            raise CheckpointError(
                f"--resume: {spec} is {'a file' if folder.is_file() else 'a policy that comes with the package'}, "
                f"not a run or a checkpoint; to begin a run with the weights of a policy: --initial-policy {spec}"
            ) from None
        if folder.exists() and not isinstance(error, WrongNameError):
            raise CheckpointError(f"--resume: {spec}: not a checkpoint of mario-tui (no {MANIFEST})") from None
        raise CheckpointError(f"--resume: {error}") from None
    return _newest_source(run, progress)


def find_policy(spec: str, run_dir: str | Path | None, progress: OnProgress = lambda done: None) -> Path:
    """The policy file (safetensors) for `spec`: a policy file, the name of a policy in the package, a checkpoint
    folder, a run or `latest`, or an address on the Hub, from which it may be downloaded.

    For a run it is the best-evaluated policy, or that of the newest checkpoint if none was evaluated. Raises
    `CheckpointError` if there is none.
    """
    path = Path(spec)
    shipped = policies.path_of(spec)
    if spec.startswith(HUB):
        policy = kept_policy(pinned_policy(spec))
        assert policy is not None
    elif path.is_file():
        policy = path
    elif shipped is not None:
        policy = shipped
    elif (path / POLICY_FILE).is_file():
        policy = path / POLICY_FILE
    else:
        try:
            newest = newest_with_policy(run_dir) if spec == LATEST else None
            run = newest or find_run(spec, run_dir)
        except UserError as error:
            if spec == LATEST or isinstance(error, WrongNameError):
                raise CheckpointError(str(error)) from None
            if policies.has_card(spec):
                raise CheckpointError(policies.how_to_install(spec)) from None
            raise CheckpointError(
                f"{spec}: no such checkpoint; accepted: a policy file (.safetensors), a checkpoint folder, "
                "a run's name or path, latest, or a policy that comes with the package"
            ) from None
        best = run.path / BEST_POLICY_FILE
        policy = best if best.is_file() else _newest_source(run, progress).path / POLICY_FILE
    check_policy(policy)
    return policy.resolve()


def pinned_policy(spec: str) -> str:
    """The address of a policy on the Hub with the commit that it means now; it is downloaded unless it was before.
    Raises `CheckpointError`."""
    try:
        pinned: str = feature("downloads from the Hub", spec).pinned(spec)
    except UserError as error:
        raise CheckpointError(str(error)) from None
    return pinned


def with_pinned_policy(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the commit in the address of an initial policy on the Hub: a run and all runs of a sweep begin
    with the same weights, however often they are resumed. Raises `ConfigError`."""
    policy = asked.get("initial_policy")
    if not (isinstance(policy, str) and policy.startswith(HUB)):
        return asked
    try:
        return {**asked, "initial_policy": pinned_policy(policy)}
    except CheckpointError as error:
        raise ConfigError("initial_policy", f"must be a policy; {error}") from None


def kept_policy(spec: str) -> Path | None:
    """The file for an address on the Hub with a commit; None if it is not here."""
    kept: Path | None = feature("downloads from the Hub", spec).kept(spec)
    return kept


def newest_with_policy(run_dir: str | Path | None, game: str | None = None, task: str | None = None) -> Run | None:
    """The newest run that has a policy, of a game, and of what is played in it, if they are given."""
    return next(
        (
            run
            for run, record in list_records(run_dir)
            if game in (None, record.game)
            and task in (None, record.task)
            and ((run.path / BEST_POLICY_FILE).is_file() or committed(run))
        ),
        None,
    )


def _newest_source(run: Run, progress: OnProgress) -> Source:
    skipped: list[str] = []
    path = newest(run, skipped.append, progress)
    if path is None:
        if (run.path / LOOP_FILE).exists():
            raise CheckpointError(f"{run.name} {NOT_TRAINED}")
        why = f" ({skipped[0]})" if skipped else ""
        raise CheckpointError(f"{run.name}: has no complete checkpoint{why}")
    return Source(path, read_manifest(path), run)


@runtime_checkable
class RestrictsPolicies(Protocol):
    """A game that says which policies' weights fit a run. In others the shape of a frame must be the run's."""

    def policy_must_have(self, config: RunConfig) -> Mapping[str, Any]:
        """Return fields of a policy's metadata, and what they must be. Of a list of `actions` it may have some."""


def options_of_policy(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an initial policy decides in a new run unless it was `asked` for: the game, and the options that its
    weights fit. Empty if there is no such policy, or it is of another game than the one that was asked for."""
    policy, run_dir = asked.get("initial_policy"), asked.get("run_dir", RunConfig.run_dir)
    if not (isinstance(policy, str) and isinstance(run_dir, str)):
        return {}
    if policy.startswith(HUB) and not (has_feature("downloads from the Hub") and kept_policy(policy)):
        return {}  # somebody is just typing it
    try:
        said = policy_metadata(find_policy(policy, run_dir))
    except CheckpointError:
        return {}  # `with_located_policy` tells why
    game = said["game"]
    if game not in GAMES or asked.get("game", game) != game:
        return {}
    info, valid = game_of(game), dict[str, Any](game=game)
    decided = {name: said[name] for name in HEAD_OPTIONS if said[name]}
    decided |= info.options_of_policy(said) if isinstance(info, StartsFromPolicy) else {}
    for name, value in decided.items():
        with contextlib.suppress(ConfigError):  # a file from elsewhere
            check(specs_of(game)[name], value)
            valid[name] = value
    return valid


def with_located_policy(config: RunConfig) -> RunConfig:
    """The options of a new run with its initial policy as an absolute path, unless it is one of the package or on the
    Hub: the run's processes have another working directory, and the name of a run may come to mean another policy.

    Raises `ConfigError` if there is no such policy, or if it doesn't fit.
    """
    if config.initial_policy is None:
        return config
    path = fitting_policy(config)
    if config.initial_policy.startswith(HUB):
        return config
    return config if path == policies.path_of(config.initial_policy) else replace(config, initial_policy=str(path))


def fitting_policy(config: RunConfig) -> Path:
    """The file of a run's initial policy. Raises `ConfigError` if it is gone, or its weights don't fit the run."""
    try:
        path = find_policy(config.initial_policy or "", config.run_dir)
    except CheckpointError as error:
        raise ConfigError("initial_policy", f"must be a policy; {error}") from None
    metadata = policy_metadata(path)
    for field, wanted in _must_be(config):
        found = metadata.get(field)
        some = field == "actions" and isinstance(found, list) and found and all(each in wanted for each in found)
        if found != wanted and not some:
            accepted = in_words(wanted) + ", or some of these" * (field == "actions")
            raise ConfigError(
                "initial_policy", f"must have {field} {accepted}, as this run, got {in_words(found)} in {path.name}"
            )
    return path


def _must_be(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Fields of the metadata, and what they must be."""
    yield "game", config.game
    yield "network", config.network_name
    yield from ((name, config.value(name)) for name in HEAD_OPTIONS)
    yield "stack", config.spec.stack
    game = config.game_info
    if isinstance(game, RestrictsPolicies):
        yield from game.policy_must_have(config).items()
    else:
        yield "frame_shape", list(config.spec.frame_shape)
    yield "normalized", config.spec.normalized


@dataclass(frozen=True)
class Origin:
    """What is not known is None, or empty."""

    name: str
    """Short name: that of a policy that comes with the package, a run and what of it, or the file's name."""
    kind: PolicyKind
    run: str | None
    """The run in whose folder the file is."""
    trained_on: str
    """What the game's option `tasks` was: Mario's stages, or the size of a board."""
    env_steps: int | None
    updates: int | None


def origin_of(policy: Path) -> Origin:
    """Return where a policy file comes from. Raises `CheckpointError` if it is not a policy of mario-tui."""
    metadata = policy_metadata(policy)
    game = game_of(metadata["game"])
    run = run_folder(policy)
    name, kind = _kind_of(policy, run)
    return Origin(
        name=name,
        kind=kind,
        run=None if run is None else run.name,
        trained_on=task_label(game, metadata[game.tasks]),
        env_steps=metadata.get("env_steps"),
        updates=metadata.get("updates"),
    )


def _kind_of(policy: Path, run: Path | None) -> tuple[str, PolicyKind]:
    if run is not None:
        if policy.parent != run:
            kind: PolicyKind = "checkpoint" if policy.name == POLICY_FILE else "saved"
            return f"{run.name} {policy.parent.name}", kind
        if policy.name == BEST_POLICY_FILE:
            return f"{run.name} best", "best"
        return f"{run.name} {policy.stem}", "saved"
    shipped = policies.path_of(policy.stem)
    if shipped is not None and shipped.resolve() == policy.resolve():
        return policy.stem, "included"
    return policy.name, "file"
