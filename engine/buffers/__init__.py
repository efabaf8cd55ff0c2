"""Experience replay, composed of n-step storage (`frames`, in a `memory`) and a sampler (`sampling`, on `sum_tree`).

`ReplayBuffer` and `PrioritizedReplayBuffer` combine the two. They use NumPy only; `engine.buffers.device.replay` is the
same replay on a torch device.
"""

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.memory import HostMemory, MappedMemory, SharedMemory
from engine.buffers.replay import PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.sampling import NothingToSample, PrioritizedSampler, Sample, Sampler, Survey, UniformSampler
from engine.buffers.sum_tree import SumTree
from engine.envs.lanes import PlayedStep
from engine.runs.replay_file import ReplayShape

__all__ = [
    "Batch",
    "FrameStorage",
    "HostMemory",
    "MappedMemory",
    "NothingToSample",
    "PlayedStep",
    "PrioritizedReplayBuffer",
    "PrioritizedSampler",
    "Replay",
    "ReplayBuffer",
    "ReplayShape",
    "Sample",
    "Sampler",
    "SharedMemory",
    "SumTree",
    "Survey",
    "UniformSampler",
]
