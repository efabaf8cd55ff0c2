"""The learner: owns the agent and the replay, decides when an update is due, and writes and reads checkpoints."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from engine import __version__, checkpoints
from engine.agents import DoubleDQN, DuelingQNetwork, Losses
from engine.agents.double_dqn import Precision, choose_precision, resolve_device
from engine.buffers import Batch, FrameStorage, PrioritizedSampler, Sampler, UniformSampler
from engine.config import RunConfig
from engine.envs.make import describe_task
from engine.envs.mario import VectorStep
from engine.envs.stack import STACK

_TARGET_FILE, _OPTIMIZER_FILE, _STATE_FILE = "target.safetensors", "optimizer.safetensors", "state.json"


class DivergedError(Exception):
    """The loss is no longer a number; going on would only spoil the checkpoints."""


class Learner:
    """Double DQN on replay at `replay_ratio` learned samples per environment step.

    With `resume_from`, weights, optimiser, counters, beta and the random state continue. The replay's contents do not:
    it fills to a quarter of the burn-in before learning goes on, enough because the policy that fills it is trained.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        frame_shape: tuple[int, int],
        actions: int,
        seed: int,
        threads: int = 1,
        resume_from: Path | None = None,
    ) -> None:
        self._config = config
        self._frame_shape, self._actions = frame_shape, actions
        state = None if resume_from is None else json.loads((resume_from / _STATE_FILE).read_text("utf-8"))
        device = resolve_device(config.device)
        precision: Precision = choose_precision(device, config.amp)
        if state is not None and state["device"] == device.type and config.amp:
            precision = state["precision"]  # what was decided once holds for the whole run
        torch.manual_seed(seed)
        networks = [DuelingQNetwork(STACK, frame_shape, actions) for _ in range(2)]
        self.agent = DoubleDQN(
            *networks, device=device, learning_rate=config.learning_rate, precision=precision, threads=threads
        )
        self.storage = FrameStorage(
            config.parallel_envs,
            math.ceil(config.buffer_size / config.parallel_envs),
            frame_shape,
            stack=STACK,
            n_step=config.n_step,
            gamma=config.gamma,
        )
        self.sampler: Sampler = (
            PrioritizedSampler(self.storage, alpha=config.alpha, beta=config.beta, beta_annealing=config.beta_annealing)
            if config.prioritized_replay
            else UniformSampler(self.storage)
        )
        self._random = np.random.default_rng(seed)
        self._credit = 0.0  # updates that are due
        self._batch: Batch | None = None
        self._fill = config.burnin
        self.updates = 0
        if resume_from is not None and state is not None:
            self._load(resume_from, state)

    @property
    def burnin_left(self) -> int:
        """Transitions to store before learning begins; at least one batch and one complete window a lane."""
        fill = max(self._fill, self._config.batch_size, self._config.parallel_envs * (self._config.n_step + 1))
        return max(0, fill - self.storage.size)

    def insert(self, frames: NDArray[np.uint8], actions: NDArray[np.int64], step: VectorStep) -> None:
        """Store one step of all lanes: the pictures acted on [lanes, height, width], the actions, the outcome."""
        self.storage.append(frames, actions, step.rewards, step.terminated, step.truncated, step.final_frames)
        self.sampler.appended()
        if self.burnin_left == 0:
            self._credit += self.storage.lanes * self._config.replay_ratio / self._config.batch_size

    def learn(self) -> list[Losses]:
        """The updates that are due. Raises `DivergedError` if the loss is not finite."""
        done = []
        while self._credit >= 1 and self.burnin_left == 0:  # a resumed credit waits for the replay
            self._credit -= 1
            sample = self.sampler.sample(self._config.batch_size, self._random)
            self._batch = self.storage.gather(sample.lanes, sample.entries, into=self._batch)
            losses = self.agent.update(self._batch, sample.weights)
            if not math.isfinite(losses.loss):
                raise DivergedError(f"the loss is {losses.loss} at update {self.updates}; try a lower --learning-rate")
            self.sampler.update(sample, losses.td_errors)
            self.updates += 1
            if self.updates % self._config.sync_every == 0:
                self.agent.sync_target()
            done.append(losses)
        return done

    def policy_metadata(self, env_steps: int) -> dict[str, str]:
        """The safetensors header that lets a policy file be played without its run."""
        policy = {
            "version": __version__,
            "network": "dueling",
            "stack": STACK,
            "frame_shape": self._frame_shape,
            **describe_task(self._config),
            "env_steps": env_steps,
            "updates": self.updates,
            "seed": self._config.seed,
        }
        return {"format": checkpoints.POLICY_FORMAT, "policy": json.dumps(policy)}

    def save_policy(self, path: Path, env_steps: int) -> None:
        """Write the online network alone."""
        save_file(_on_cpu(self.agent.online.state_dict()), path, self.policy_metadata(env_steps))

    def write_checkpoint(self, partial: Path, env_steps: int, extra: dict[str, Any]) -> None:
        """Write everything into the folder `partial` and seal it; `extra` (JSON) is what `read_extra` gives back."""
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        self.save_policy(partial / checkpoints.POLICY_FILE, env_steps)
        save_file(_on_cpu(self.agent.target.state_dict()), partial / _TARGET_FILE)
        save_file(_on_cpu(self.agent.optimizer_tensors()), partial / _OPTIMIZER_FILE)
        state = {
            "updates": self.updates,
            "credit": self._credit,
            "beta": self.sampler.beta,
            "random": self._random.bit_generator.state,
            "torch_random": torch.get_rng_state().numpy().tobytes().hex(),
            "device": self.agent.device.type,
            "precision": self.agent.precision,
            "extra": extra,
        }
        (partial / _STATE_FILE).write_text(json.dumps(state), encoding="utf-8")
        (partial / "config.toml").write_text(self._config.to_toml(), encoding="utf-8")
        checkpoints.seal(partial, env_steps, self.updates)

    def close(self) -> None:
        self.agent.close()

    def _load(self, folder: Path, state: dict[str, Any]) -> None:
        self.agent.online.load_state_dict(load_file(folder / checkpoints.POLICY_FILE))
        self.agent.target.load_state_dict(load_file(folder / _TARGET_FILE))
        self.agent.load_optimizer_tensors(load_file(folder / _OPTIMIZER_FILE))
        self.updates = state["updates"]
        self._credit = state["credit"]
        self.sampler.beta = state["beta"]
        self._random.bit_generator.state = state["random"]
        torch.set_rng_state(torch.from_numpy(np.frombuffer(bytes.fromhex(state["torch_random"]), np.uint8).copy()))
        self._fill = math.ceil(self._config.burnin / 4)


def read_extra(folder: Path) -> dict[str, Any]:
    """What the runner gave `write_checkpoint` as `extra`."""
    return dict(json.loads((folder / _STATE_FILE).read_text("utf-8"))["extra"])


def _on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
