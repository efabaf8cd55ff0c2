"""Replay in three separable parts: storage (`frames`), sampling (`sampling`, on `sum_tree`) and n-step assembly."""

from engine.buffers.frames import Batch, FrameStorage
from engine.buffers.sampling import PrioritizedSampler, Sample, Sampler, UniformSampler
from engine.buffers.sum_tree import SumTree

__all__ = ["Batch", "FrameStorage", "PrioritizedSampler", "Sample", "Sampler", "SumTree", "UniformSampler"]
