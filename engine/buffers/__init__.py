"""Replay in three separable parts: storage (`frames`, in a `memory`), sampling (`sampling`, on `sum_tree`), n-step.

Everything here is NumPy; `engine.buffers.device` has the same on a torch device.
"""

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.memory import HostMemory, MappedMemory, Memory, SharedMemory
from engine.buffers.sampling import PrioritizedSampler, Sample, Sampler, UniformSampler
from engine.buffers.sum_tree import SumTree

__all__ = [
    "Batch",
    "FrameStorage",
    "HostMemory",
    "MappedMemory",
    "Memory",
    "PrioritizedSampler",
    "Sample",
    "Sampler",
    "SharedMemory",
    "SumTree",
    "UniformSampler",
]
