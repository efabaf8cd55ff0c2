"""Replay in separable parts: n-step storage (`frames`, in a `memory`) and sampling (`sampling`, on `sum_tree`).

`ReplayBuffer` and `PrioritizedReplayBuffer` compose them. All of it is NumPy; `engine.buffers.device.replay` has
the same on a torch device.
"""

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.memory import HostMemory, MappedMemory, Memory, SharedMemory
from engine.buffers.replay import PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.sampling import NothingToSample, PrioritizedSampler, Sample, Sampler, UniformSampler
from engine.buffers.sum_tree import SumTree

__all__ = [
    "Batch",
    "FrameStorage",
    "HostMemory",
    "MappedMemory",
    "Memory",
    "NothingToSample",
    "PrioritizedReplayBuffer",
    "PrioritizedSampler",
    "Replay",
    "ReplayBuffer",
    "Sample",
    "Sampler",
    "SharedMemory",
    "SumTree",
    "UniformSampler",
]
