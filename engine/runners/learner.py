"""The learner: owns the agent and the replay, decides when an update is due, and writes and reads checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save, save_file

from engine import __version__
from engine.agents import DoubleDQN, Losses
from engine.agents.autotune import choose, still_valid
from engine.agents.initial_weights import for_actions
from engine.agents.networks import make_networks
from engine.agents.policy_weights import policy_weights
from engine.buffers import Replay
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.buffers.saved_arrays import mapped_arrays, save_arrays
from engine.config.run_config import RunConfig
from engine.config.torchrun import is_first_here
from engine.envs.factory import describe_evaluation, describe_task
from engine.envs.lanes import Frames, PlayedStep, Spec
from engine.monitoring.memory_budget import check_memory
from engine.protocol.commands import Tunable
from engine.protocol.failures import HopelessError
from engine.runners.device import resolve_device
from engine.runners.device_update import DeviceUpdate
from engine.runners.learner_state import unchanged
from engine.runners.learning_rates import CUT
from engine.runners.replay_factory import belongs_on_device, device_replay_or, make_replay
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
    read_state,
)
from engine.runs.initial_policy import fitting_policy
from engine.runs.run import CONFIG_FILE, read_config
from engine.runtime.devices import is_out_of_memory
from engine.runtime.files import new_file
from engine.runtime.stopwatch import stopwatch

_L = TypeVar("_L", bound=Losses)


class DivergedError(HopelessError):
    """The loss is not finite; further training would only write bad checkpoints."""


class Learner:
    """Double DQN on replay, with `replay_ratio` learned samples per environment step.

    `resume_from` restores weights, optimiser, counters, random state and beta (unless beta is given again). The replay
    itself is restored only from a checkpoint that holds it, or from files in `replay_folder`, if shape and task fit.
    Otherwise learning waits until the replay holds a quarter of the burn-in; that is enough, because a trained policy
    fills it.
    """

    def __init__(
        self,
        config: RunConfig,
        spec: Spec,
        *,
        seed: int,
        threads: int = 1,
        agent: Callable[..., DoubleDQN] = DoubleDQN,
        replay: Replay | None = None,
        index: int = 0,
        share: int = 1,
        choices: dict[str, Any] | None = None,
        log: Callable[[str], None] = lambda text: None,
        beat: Callable[[], object] = lambda: None,
        resume_from: Path | None = None,
        replay_folder: Path | None = None,
    ) -> None:
        """Build agent and replay.

        Args:
            agent: makes the agent from `DoubleDQN`'s arguments.
            replay: a replay that other processes fill. Without one, this is learner `index` of `share`, each with its
                own replay; they divide burn-in and transitions. A checkpoint's random states are learner 0's.
            choices: autotuned settings of another learner of the run.
            log: receives log lines.
            beat: called before every update; many can be due at once.
        """
        state = None if resume_from is None else read_state(resume_from)
        lanes = config.parallel_envs * (1 if replay is None else config.processes)
        device = resolve_device(config.device)
        if choices is None and resume_from is not None and state is not None:
            choices = still_valid(state.choices.state(), read_config(resume_from / CONFIG_FILE), config)
        self.choices = choose(config, spec, device, threads, choices, log)
        config = dataclasses.replace(config, batch_size=self.choices.batch_size)
        on_device = replay is None and belongs_on_device(config, spec, device, index, share)
        elsewhere = replay is None and (config.replay_in_files or (on_device and device.type != "cpu"))
        if is_first_here(index):  # checks for all processes on this machine, before the others allocate
            check_memory(config, with_replay=not elsewhere)
        self._config, self._spec = config, spec
        torch.manual_seed(seed)
        network, target = make_networks(config, spec)
        if config.initial_policy is not None and resume_from is None and index == 0:  # others copy learner 0's weights
            network.load_state_dict(_initial_weights(config))
        self.agent = agent(
            network,
            target,
            device=device,
            learning_rate=config.learning_rate,
            precision=self.choices.precision,
            sync_every=config.sync_every,
            tau=config.tau,
            policy_tau=config.policy_tau,
            double_q=config.double_q,
            advantage_learning=config.advantage_learning,
            threads=self.choices.threads,
            accumulate=config.accumulate,
            on_out_of_memory=lambda parts: log(f"out of memory: batches are now processed in {parts} parts"),
        )
        renew = None if resume_from is None else log  # such as after a change of processes or lanes
        if replay is None:
            others = share - 1 if index == 0 else 0
            make = partial(make_replay, config, spec, folder=replay_folder, share=share, renew=renew, others=others)
            replay = device_replay_or(make, device, config, log) if on_device else make(None)
        self.replay = replay
        self._random = np.random.default_rng(seed)
        self._generator = torch.Generator(device).manual_seed(seed) if device.type == "cuda" else None
        self._device_update = (
            DeviceUpdate(
                self.agent,
                self.replay,
                config.batch_size,
                random=self._random,
                generator=self._generator,
                log=log,
            )
            if isinstance(self.replay, DeviceReplayBuffer) and type(self.agent) is DoubleDQN
            else None  # models of several processes exchange weights or gradients within an update
        )
        self._credit = 0.0  # updates that are due
        self._burnin = math.ceil(config.burnin / share)
        self._lanes = lanes
        self._fill = self._burnin
        self._ratio = config.replay_ratio
        self._tunings: dict[str, int] = {}
        self._beat = beat
        if resume_from is not None and state is not None:
            try:
                self._load(resume_from, state, with_random=index == 0)
            except (SafetensorError, RuntimeError, LookupError, TypeError, ValueError) as error:
                if isinstance(error, RuntimeError) and is_out_of_memory(error):
                    raise
                reason = str(error).splitlines()[0]
                raise checkpoints.CheckpointError(f"{resume_from}: can't be resumed ({reason})") from None
        self._burnin_left = self.burnin_left  # at the last count

    @property
    def burnin_left(self) -> int:
        """Transitions still to store before learning starts: at least one batch, and one complete n-step window."""
        fill = max(self._fill, self._config.batch_size, self._lanes * (self._config.n_step + 1))
        return max(0, fill - self.replay.size)

    @property
    def hold(self) -> int:
        """Most steps for which a random action is held; see `Spec`."""
        return self._spec.hold

    @property
    def updates(self) -> int:
        """Updates of the network since it was created."""
        return self.agent.updates

    @property
    def backlog(self) -> int:
        """Environment steps played but not yet learned from, at the replay ratio."""
        return math.ceil(self._credit * self._config.batch_size / self._ratio)

    @property
    def due_within(self) -> int:
        """Environment steps after which an update is certainly due."""
        return math.ceil(self._config.batch_size / self._ratio) + 1

    @property
    def tuned(self) -> dict[str, float]:
        """Current values of the settings that can be changed while learning."""
        return {
            "learning_rate": self.agent.learning_rate,
            "beta": self.replay.beta,
            "replay_ratio": self._ratio,
            "gamma": self.replay.gamma,
        }

    def tune(self, name: Tunable, value: float, tuning: int) -> None:
        """Apply a changed setting. `tuning` counts its changes, so that repeated calls apply each change once."""
        if self._tunings.get(name) == tuning:
            return
        self._tunings[name] = tuning
        match name:
            case "learning_rate":
                self.agent.learning_rate = value
                self.agent.advantage_learning = self._advantage_learning()
            case "beta":
                self.replay.beta = value
            case "replay_ratio":
                self._ratio = value
            case "gamma":
                self.replay.gamma = value
                self.agent.set_gamma(value)

    def _advantage_learning(self) -> float:
        """The share at the present learning rate."""
        share, final = self._config.advantage_learning, self._config.final_advantage_learning
        is_low = self.agent.learning_rate <= CUT * self._config.learning_rate
        return final if share and is_low and final is not None else share

    @stopwatch("insert")
    def insert(self, step: PlayedStep) -> None:
        """Store one step of all lanes."""
        if not isinstance(self.replay, DeviceReplayBuffer):
            step = dataclasses.replace(step, frames=_on_host(step.frames), final_frames=_on_host(step.final_frames))
        self.replay.append(step)
        self.count_env_steps(self._config.parallel_envs)

    def count_env_steps(self, env_steps: int) -> None:
        """Count environment steps added to the replay, as credit for updates. Steps of the burn-in give none."""
        burnin, self._burnin_left = self._burnin_left, self.burnin_left
        if self._burnin_left == 0:
            self._credit += max(0, env_steps - burnin) * self._ratio / self._config.batch_size

    def due(self, ahead: int = 0) -> int:
        """Updates due now, or `ahead` environment steps later."""
        if self.burnin_left > 0:  # credit from a checkpoint waits until the replay is filled
            return 0
        return max(0, int(self._credit + ahead * self._ratio / self._config.batch_size))

    def learn(self, updates: int | None = None) -> list[Losses]:
        """Take `updates` updates (default: all that are due); returns the losses that are known by now.

        Raises `DivergedError` if the loss is not finite; `NothingToSample`, with the update still due, if other
        processes have overwritten everything that could be sampled.
        """
        done: list[Losses] = []
        for _ in range(self.due() if updates is None else updates):
            self._beat()
            if self._device_update is None:
                done.append(self._update())
            else:
                self._device_update()
                self._credit -= 1
                if self._device_update.should_read:
                    done += self.unread_losses()
        return done

    def _update(self) -> Losses:
        """Take an update with a batch that may lie elsewhere than the agent."""
        with stopwatch("sample"):
            batch, sample = self.replay.sample(self._config.batch_size, self._random)
        self._credit -= 1
        weights = sample.weights
        if self._config.prioritized_replay:  # otherwise all are 1
            weights = self.agent.common_weights(weights, sample.scales)
        result = self._finite(self.agent.update(batch, weights))
        with stopwatch("sample"):
            self.replay.update_priorities(sample, result.td_errors)
        return result

    def unread_losses(self) -> list[Losses]:
        """Losses of updates on a device that `learn` has not returned yet. Raises `DivergedError` like it."""
        losses = None if self._device_update is None else self._device_update.read()
        return [] if losses is None else [self._finite(losses)]

    def _finite(self, losses: _L) -> _L:
        if not math.isfinite(losses.loss):
            raise DivergedError(f"the loss is {losses.loss} at update {self.updates}; try a lower --learning-rate")
        return losses

    def policy_metadata(self, env_steps: int, score: tuple[float, ...] = ()) -> dict[str, str]:
        """The safetensors header that makes a policy file playable without its run, with the score if there is one."""
        policy = {
            "version": __version__,
            "network": self._config.network_name,
            "stack": self._spec.stack,
            "frame_shape": self._spec.frame_shape,
            "outputs": self._spec.actions,
            **describe_task(self._config),
            "env_steps": env_steps,
            "updates": self.updates,
            "seed": self._config.seed,
            **({"score": score, **describe_evaluation(self._config)} if score else {}),
        }
        return {"format": checkpoints.POLICY_FORMAT, "policy": json.dumps(policy)}

    def save_policy(self, path: Path, env_steps: int, score: tuple[float, ...] = ()) -> None:
        """Write the policy network and the `score` that it reached."""
        try:
            with new_file(path) as file:
                file.write(save(_on_cpu(self.agent.policy.state_dict()), self.policy_metadata(env_steps, score)))
        except BaseException:
            path.unlink(missing_ok=True)  # a partial file, if the disk is full
            raise

    def write_checkpoint(
        self,
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
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()  # new, so no file in it leads elsewhere
        self.save_policy(partial / checkpoints.POLICY_FILE, env_steps)
        save_file(_on_cpu(self.agent.online.state_dict()), partial / ONLINE_FILE)
        save_file(_on_cpu(self.agent.target.state_dict()), partial / TARGET_FILE)
        save_file(_on_cpu(self.agent.optimizer_tensors()), partial / OPTIMIZER_FILE)
        state = {
            "updates": self.updates,
            "credit": min(max(self._credit, -LARGEST_CREDIT), LARGEST_CREDIT),
            "beta": self.replay.beta,
            "random": self._random.bit_generator.state,
            "choices": self.choices.state(),
            "accumulate": self.agent.accumulate,
            "fill": self._fill,
            "torch_random": torch.get_rng_state().numpy().tobytes().hex(),
            "device_random": None if self._generator is None else self._generator.get_state().numpy().tobytes().hex(),
            "scaler": self.agent.scaler_state(),
            "extra": extra,
        }
        if self._config.checkpoint_replay:
            save_arrays(partial / REPLAY_FILE, self.replay.state(), progress)
        save_arrays(partial / ARRAYS_FILE, arrays)
        for name, text in ((STATE_FILE, json.dumps(state)), (CONFIG_FILE, config.to_toml())):
            with new_file(partial / name) as file:
                file.write(text.encode())
        checkpoints.seal(partial, env_steps, self.updates, progress)

    def close(self) -> None:
        self.agent.close()
        self.replay.close()

    def _load(self, folder: Path, state: CheckpointState, *, with_random: bool) -> None:
        self.agent.online.load_state_dict(load_file(folder / ONLINE_FILE))
        self.agent.target.load_state_dict(load_file(folder / TARGET_FILE))
        self.agent.load_policy(load_file(folder / checkpoints.POLICY_FILE))
        self.agent.load_optimizer_tensors(load_file(folder / OPTIMIZER_FILE))
        self.agent.updates = state.updates
        self._credit = state.credit
        if self._config.prioritized_replay and unchanged(self._config, folder, "prioritized_replay", "beta"):
            self.replay.beta = state.beta
        if with_random:
            self._random.bit_generator.state = msgspec.to_builtins(state.random)
            torch.set_rng_state(_random_state(state.torch_random))
            if self._generator is not None and state.device_random is not None:
                self._generator.set_state(_random_state(state.device_random))
        if unchanged(self._config, folder, "accumulate"):
            self.agent.accumulate = state.accumulate  # more parts than requested, if memory had run out
        self.agent.load_scaler_state(msgspec.to_builtins(state.scaler))
        kept = (folder / REPLAY_FILE).exists() and unchanged(self._config, folder, *self._config.task_options)
        if kept and self._load_replay(folder):
            self._fill = state.fill
        else:
            self._fill = math.ceil(self._burnin / 4)

    def _load_replay(self, folder: Path) -> bool:
        """Load a checkpoint's replay; False if it has another shape. Raises `CheckpointError` if it is damaged."""
        try:
            return self.replay.load_state(self._replay_arrays(folder))
        except (OSError, ValueError) as error:
            raise checkpoints.CheckpointError(f"{folder}: its replay can't be resumed ({error})") from None

    def _replay_arrays(self, folder: Path) -> dict[str, NDArray[Any]]:
        """A checkpoint's replay, memory-mapped; without priorities if an option that determines them has changed."""
        arrays = mapped_arrays(folder / REPLAY_FILE)
        if unchanged(self._config, folder, "prioritized_replay", "n_step", "alpha"):
            return arrays
        return {name: array for name, array in arrays.items() if not name.startswith("sampler.")}


def _initial_weights(config: RunConfig) -> dict[str, torch.Tensor]:
    """The weights with which a run with `--initial-policy` begins."""
    policy = fitting_policy(config)
    weights = policy_weights(policy)
    actions = checkpoints.policy_metadata(policy).get("actions")
    game = config.game_info
    if actions is None:
        return weights
    return for_actions(weights, actions, game.action_names(config), game.most_similar_action)


def _on_host(frames: Frames) -> NDArray[np.uint8]:
    """Frames as an array; copied only if they lie on another device."""
    array: NDArray[np.uint8] = frames.cpu().numpy() if isinstance(frames, torch.Tensor) else frames
    return array


def _random_state(text: str) -> torch.Tensor:
    """The state of a generator of PyTorch from its hexadecimal digits."""
    return torch.from_numpy(np.frombuffer(bytes.fromhex(text), np.uint8).copy())


def _on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
