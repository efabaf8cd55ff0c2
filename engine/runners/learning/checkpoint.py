"""Writes the checkpoints and policies of a run, and restores a learner from them.

If writing fails while the run trains, training continues.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file, save, save_file

from engine import __version__
from engine.config.run_config import HEAD_OPTIONS, RunConfig
from engine.envs.factory import describe_evaluation, describe_task
from engine.protocol.messages import Saved, Written
from engine.runners.learning.learner import Learner, advantage_learning
from engine.runners.links import ParentLink
from engine.runners.start import unchanged
from engine.runs import checkpoints
from engine.runs.checkpoint_state import (
    ARRAYS_FILE,
    LARGEST_CREDIT,
    ONLINE_FILE,
    OPTIMIZER_FILE,
    REPLAY_FILE,
    STATE_FILE,
    TARGET_FILE,
    CheckpointState,
    Extra,
    read_state,
)
from engine.runs.checkpoints import POLICY_FORMAT, CheckpointError
from engine.runs.replay_file import mapped_arrays, save_arrays
from engine.runs.run import CONFIG_FILE, Run, read_config
from engine.runtime.devices import is_out_of_memory
from engine.runtime.files import is_full, new_file, why_not_written


def save_policy(learner: Learner, path: Path, env_steps: int, score: tuple[float, ...] = ()) -> None:
    """Write the policy network and the `score` that it reached, if there is one."""
    try:
        with new_file(path) as file:
            file.write(save(on_cpu(learner.agent.policy.state_dict()), _metadata(learner, env_steps, score)))
    except BaseException:
        path.unlink(missing_ok=True)  # a partial file, if the disk is full
        raise


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as safetensors takes them: on the CPU, and none in the memory of another, as those of layers that share
    their weights are."""
    taken, found = set[int](), dict[str, torch.Tensor]()
    for name, tensor in tensors.items():
        found[name] = tensor.detach().cpu().contiguous()
        place = found[name].untyped_storage().data_ptr()
        if place in taken:
            found[name] = found[name].clone()
        taken.add(place)
    return found


def _metadata(learner: Learner, env_steps: int, score: tuple[float, ...]) -> dict[str, str]:
    """The safetensors header."""
    config, spec = learner.config, learner.spec
    policy = {
        "version": __version__,
        "network": config.network_name,
        **{name: config.value(name) for name in HEAD_OPTIONS if config.value(name)},
        "stack": spec.stack,
        "frame_shape": spec.frame_shape,
        "outputs": spec.actions,
        **describe_task(config),
        "env_steps": env_steps,
        "updates": learner.updates,
        "seed": config.seed,
        **({"score": score, **describe_evaluation(config)} if score else {}),
    }
    return {"format": POLICY_FORMAT, "policy": json.dumps(policy)}


def write_checkpoint(
    learner: Learner,
    partial: Path,
    env_steps: int,
    config: RunConfig,
    extra: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Write everything into the folder `partial` and seal it; call `progress` after each piece of large files.

    `config` is the run's own, not a rank's with its device. `read_extra` reads `extra` (JSON) and `arrays` again.
    """
    agent = learner.agent
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()  # new, so no file in it leads elsewhere
    save_policy(learner, partial / checkpoints.POLICY_FILE, env_steps)
    save_file(on_cpu(agent.online.state_dict()), partial / ONLINE_FILE)
    save_file(on_cpu(agent.target.state_dict()), partial / TARGET_FILE)
    save_file(on_cpu(agent.optimizer_tensors()), partial / OPTIMIZER_FILE)
    state = {
        "updates": learner.updates,
        "credit": min(max(learner.pace.credit, -LARGEST_CREDIT), LARGEST_CREDIT),
        "beta": learner.replay.beta,
        "choices": learner.choices.state(),
        "accumulate": agent.accumulate,
        "fill": learner.pace.fill,
        **learner.random.state(),
        "scaler": agent.scaler_state(),
        "gap_share": agent.gap_share,
        "extra": extra,
    }
    if learner.config.checkpoint_replay:
        save_arrays(partial / REPLAY_FILE, learner.replay.state(), progress)
    save_arrays(partial / ARRAYS_FILE, arrays)
    for name, text in ((STATE_FILE, json.dumps(state)), (CONFIG_FILE, config.to_toml())):
        with new_file(partial / name) as file:
            file.write(text.encode())
    checkpoints.seal(partial, env_steps, learner.updates, progress)


def read_extra(folder: Path) -> tuple[Extra, dict[str, NDArray[Any]]]:
    """The `extra` and `arrays` that were passed to `write_checkpoint`. Raises `CheckpointError`."""
    path = folder / ARRAYS_FILE
    try:
        return read_state(folder).extra, load_arrays(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged ({str(error).splitlines()[0]})") from None


def load_checkpoint(learner: Learner, folder: Path, state: CheckpointState, *, with_random: bool) -> None:
    """Restore a learner from a checkpoint and its `state`. Raises `CheckpointError` if it is damaged, or of another
    network."""
    try:
        _load(learner, folder, state, with_random)
    except (SafetensorError, RuntimeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, RuntimeError) and is_out_of_memory(error):
            raise
        raise CheckpointError(f"{folder}: can't be resumed ({str(error).splitlines()[0]})") from None


def _load(learner: Learner, folder: Path, state: CheckpointState, with_random: bool) -> None:
    config, agent, replay = learner.config, learner.agent, learner.replay
    agent.online.load_state_dict(load_file(folder / ONLINE_FILE))
    agent.target.load_state_dict(load_file(folder / TARGET_FILE))
    agent.load_policy(load_file(folder / checkpoints.POLICY_FILE))
    agent.load_optimizer_tensors(load_file(folder / OPTIMIZER_FILE))
    agent.updates = state.updates
    if config.prioritized_replay and unchanged(config, folder, "prioritized_replay", "beta"):
        replay.beta = state.beta
    if with_random:
        learner.random.load_state(state)
    if unchanged(config, folder, "accumulate"):
        agent.accumulate = state.accumulate  # more parts than requested, if memory had run out
    if config.advantage_learning:
        largest = advantage_learning(config, 0.0)  # earlier versions were there at once
        agent.gap_share = largest if state.gap_share is None else state.gap_share
    agent.load_scaler_state(msgspec.to_builtins(state.scaler))
    kept = (folder / REPLAY_FILE).exists() and unchanged(config, folder, *config.replay_options)
    restored, earlier = kept and _load_replay(learner, folder), read_config(folder / CONFIG_FILE)
    burnin = _burnin(learner.pace.burnin, earlier, state, restored)
    learner.pace.resume(_credit(config, earlier, state), burnin)


def _burnin(burnin: int, earlier: RunConfig, state: CheckpointState, restored: bool) -> int:
    """Transitions with which learning goes on. `burnin`: those of a new run; `earlier`: the checkpoint's options;
    `restored`: whether its replay was."""
    if restored:
        return math.ceil(state.fill * burnin / math.ceil(earlier.burnin / earlier.learners))
    return math.ceil(burnin / 4) if state.updates else burnin  # a trained policy fills it


def _credit(config: RunConfig, earlier: RunConfig, state: CheckpointState) -> float:
    """Updates due for the environment steps from which a checkpoint's run, with the options `earlier`, had not learned
    yet."""
    is_new = earlier.replay_ratio != config.replay_ratio
    ratio = state.extra.tuned.get("replay_ratio", earlier.replay_ratio) if is_new else config.replay_ratio
    samples = state.credit * state.choices.batch_size * earlier.learners
    credit = samples / (config.batch_size * config.learners) * (config.replay_ratio / ratio)
    return min(max(credit, -LARGEST_CREDIT), LARGEST_CREDIT)


def _load_replay(learner: Learner, folder: Path) -> bool:
    """Load a checkpoint's replay; False if it has another shape. Raises `CheckpointError` if it is damaged."""
    try:
        return learner.replay.load_state(replay_arrays(learner.config, folder))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: its replay can't be resumed ({error})") from None


def replay_arrays(config: RunConfig, folder: Path) -> dict[str, NDArray[Any]]:
    """A checkpoint's replay, memory-mapped; without priorities if an option that determines them has changed."""
    arrays = mapped_arrays(folder / REPLAY_FILE)
    if unchanged(config, folder, "prioritized_replay", "n_step", "alpha"):
        return arrays
    return {name: array for name, array in arrays.items() if not name.startswith("sampler.")}


@contextlib.contextmanager
def refused(what: str) -> Iterator[None]:
    """Raise `CheckpointError` if the state of `what`, such as a schedule, is that of another kind."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"the checkpoint's {what} is damaged ({error})") from None


_SAVING_S = 600.0
"""Seconds that writing one piece of a checkpoint may take before the host treats this process as hung."""


class CheckpointWriter:
    """Writes what `learner` has learned into the folder `run`. `config`: the run's own."""

    def __init__(self, run: Path, config: RunConfig, link: ParentLink, learner: Learner) -> None:
        self._run, self._config, self._link, self._learner = run, config, link, learner
        self._writes = 0

    def write(self, env_steps: int, extra: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> bool:
        """Write a partial folder, which the host checks, renames and announces; `extra` and `arrays` as in
        `write_checkpoint`. Returns whether that succeeded; the host decides what a missing final checkpoint means."""
        name = checkpoints.folder_name(env_steps)
        self._writes += 1  # the host may still be committing one of the same step
        partial, final = self._run / f".{name}.{self._writes}.partial", self._run / name
        beat = functools.partial(self._link.beat, _SAVING_S)
        beat()
        try:
            while True:
                try:
                    write_checkpoint(self._learner, partial, env_steps, self._config, extra, arrays, beat)
                    break
                except Exception as error:  # safetensors raises exceptions of its own when the disk is full
                    shutil.rmtree(partial, ignore_errors=True)  # frees space on a full disk
                    if not (is_full(error) and self._give_way(env_steps)):
                        self._link.log(
                            f"{why_not_written(error)}: no checkpoint was written at {env_steps:,} steps", "error"
                        )
                        return False
        finally:
            self._link.beat()
        self._link.send(Written(partial=str(partial), final=str(final), env_steps=env_steps))
        return True

    def save_policy(self, env_steps: int) -> None:
        """Write a policy file among the run's `policies`, and announce it."""
        folder = self._run / "policies"
        path = folder / f"policy-{env_steps:012d}.safetensors"
        partial = folder / f".{path.name}.partial"
        try:
            folder.mkdir(exist_ok=True)
            save_policy(self._learner, partial, env_steps)
            partial.replace(path)
        except Exception as error:  # see `write`
            self._link.log(f"{why_not_written(error)}: the policy was not saved", "error")
            return
        self._link.send(Saved(kind="policy", path=str(path.resolve()), env_steps=env_steps))

    def _give_way(self, env_steps: int) -> bool:
        """Remove the oldest checkpoint, as the disk is full. Returns whether that made room for a newer one."""
        removed = checkpoints.give_way(Run(self._run), lambda done: self._link.beat(_SAVING_S))
        if removed is not None:
            text = f"the disk is full: {removed.name} was removed to make room for the checkpoint at {env_steps:,}"
            self._link.log(text, "warning")
        return removed is not None
