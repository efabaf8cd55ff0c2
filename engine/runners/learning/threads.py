"""The threads of a process that plays and learns."""

from __future__ import annotations

import torch

from engine.agents.autotune import BATCH_SIZES
from engine.config.run_config import RunConfig
from engine.runtime.threads import ThreadBudget, keep_freed_memory, thread_budget


def learning_threads(config: RunConfig, processes: int) -> ThreadBudget:
    """The thread budget of each of `processes` that play and learn. Also sets torch's thread count."""
    averages = config.runner_info.averages_gradients  # during its backward pass, so in one thread
    batch_size = config.batch_size or BATCH_SIZES[-1]
    threads = thread_budget(config.parallel_envs, batch_size, processes, 1 if averages else None)
    torch.set_num_threads(threads.torch_threads)
    keep_freed_memory()
    return threads
