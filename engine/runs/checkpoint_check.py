"""Checks what a checkpoint says before a run is resumed from it. Checksums tell that it is as somebody wrote it, not
that a run did: whoever edits a file can make the manifest anew.

What only the runner knows, such as the shapes of its network and the states of its games, it checks when it loads them.
Does not import torch.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from engine.config.run_config import RunConfig
from engine.runs.checkpoint_state import ARRAYS_FILE, ONLINE_FILE, OPTIMIZER_FILE, REPLAY_FILE, TARGET_FILE, read_state
from engine.runs.checkpoints import POLICY_FILE, CheckpointError, Manifest, check_policy, reading
from engine.runs.run import CONFIG_FILE, read_config
from engine.runs.tensor_check import LARGEST, check_tensors
from engine.runtime.safetensors_header import TensorEntry
from engine.runtime.stored_arrays import LARGEST_COUNT, LARGEST_OBSERVATION, LARGEST_PRIORITY, LARGEST_REWARD

_SLOTS = ("step", "exp_avg", "exp_avg_sq")
"""Tensors of the optimiser for each parameter, `<index>.<slot>`."""
_UPPER = {
    "step": LARGEST_COUNT, "exp_avg_sq": LARGEST, "priorities": LARGEST_PRIORITY, "largest": LARGEST_PRIORITY,
    "scales": LARGEST_PRIORITY**3,
}  # fmt: skip
"""Upper bounds of tensors that are never negative, by the last part of their names."""
_STORAGE = {
    "actions": ("I16", "I64"), "rewards": ("F32",), "ends": ("U8",), "episode_starts": ("I64",),
    "written": ("I64",), "ended": ("I64",), "open_start": ("I64",),
}  # fmt: skip
"""Arrays of a replay [lanes, entries, ...] or [lanes], and their dtypes, which depend on the device."""
_SAMPLER = {"priorities": ("F64",), "largest": ("F64",), "seen": ("I64",), "weighed": ("I64",)}
"""Those of a prioritized replay; other ones have none."""
_PER_ENTRY = {"frames", "actions", "rewards", "ends", "episode_starts", "priorities", "masks"}


def check_contents(checkpoint: Path, manifest: Manifest) -> None:
    """Raises `CheckpointError`, or `UserError` for the options, that names the file and what is wrong with it."""
    config, state = read_config(checkpoint / CONFIG_FILE), read_state(checkpoint)
    for name, found, wanted in (
        ("updates", state.updates, manifest.updates),
        ("env_steps", state.extra.counters.env_steps, manifest.env_steps),
    ):
        if found != wanted:
            raise _damaged(checkpoint, f"{name} must be {wanted:,}, as in its manifest, got {found:,}")
    _check_policy(checkpoint / POLICY_FILE, config)
    online = _tensors(checkpoint / ONLINE_FILE)
    for name in (TARGET_FILE, POLICY_FILE):
        if _layout(_tensors(checkpoint / name)) != _layout(online):
            raise _damaged(checkpoint / name, f"its tensors must have the shapes and dtypes of those in {ONLINE_FILE}")
    _check_optimizer(checkpoint / OPTIMIZER_FILE, online)
    if (checkpoint / REPLAY_FILE).exists():
        _check_replay(checkpoint / REPLAY_FILE, config)
    _tensors(checkpoint / ARRAYS_FILE, LARGEST_REWARD)


def _check_policy(path: Path, config: RunConfig) -> None:
    said = check_policy(path)
    wanted = {
        "game": config.game,
        "network": config.network_name,
        "frame_shape": list(config.spec.frame_shape),
        "stack": config.spec.stack,
    }
    for name, value in wanted.items():
        if said[name] != value:
            raise _damaged(path, f"{name} must be {value}, as its options say, got {said[name]}")


def _check_optimizer(path: Path, online: dict[str, TensorEntry]) -> None:
    """Its tensors belong to the network's parameters; those that are no parameters have none."""
    held = _tensors(path)
    by_index: dict[str, dict[str, TensorEntry]] = {}
    for name, entry in held.items():
        index, _, slot = name.partition(".")
        by_index.setdefault(index, {})[slot] = entry
    if by_index.keys() != {str(index) for index in range(len(by_index))}:
        raise _damaged(path, "its tensors must be numbered from 0")
    moments = Counter[tuple[int, ...]]()
    for index, slots in by_index.items():
        if slots.keys() != set(_SLOTS) or any(entry.dtype != "F32" for entry in slots.values()):
            raise _damaged(path, f"{index} must have {', '.join(_SLOTS)}, all F32")
        step, *shapes = (slots[name].shape for name in _SLOTS)
        if step or shapes[0] != shapes[1]:
            raise _damaged(path, f"{index} must have a number and two tensors of one shape")
        moments[tuple(shapes[0])] += 1
    if moments - Counter(tuple(entry.shape) for entry in online.values()):
        raise _damaged(path, f"its tensors must have the shapes of those in {ONLINE_FILE}")


def _check_replay(path: Path, config: RunConfig) -> None:
    # A batch that a replay in files has drawn in advance is checked when it is loaded.
    held = {name: entry for name, entry in _tensors(path).items() if not name.startswith("sampler.ahead.")}
    wanted = {f"storage.{name}": dtypes for name, dtypes in _STORAGE.items()}
    wanted["storage.frames"] = ("F32" if config.spec.frame_dtype == "float32" else "U8",)
    masks = config.spec.mask_actions
    if masks:
        wanted["storage.masks"] = ("BOOL",)
    if any(name.startswith("sampler.") for name in held):
        wanted |= {f"sampler.{name}": dtypes for name, dtypes in _SAMPLER.items()}
    if held.keys() != wanted.keys():
        raise _damaged(path, f"must have {', '.join(sorted(wanted))}, got {', '.join(sorted(held)[:20])}")
    lanes_and_entries = held["storage.actions"].shape
    inner = {"frames": list(config.spec.frame_shape), "masks": [masks]}
    for key, entry in held.items():
        name = key.partition(".")[2]
        shape = [*lanes_and_entries, *inner.get(name, [])] if name in _PER_ENTRY else lanes_and_entries[:1]
        shape = [1] if name == "largest" else shape
        if entry.dtype not in wanted[key] or entry.shape != shape or len(lanes_and_entries) != 2:
            raise _damaged(path, f"{key} must be {wanted[key][0]} {shape}, got {entry.dtype} {entry.shape}")


def _tensors(path: Path, largest: float = LARGEST) -> dict[str, TensorEntry]:
    with reading(path):
        return check_tensors(path, lambda name: _bounds(name.rpartition(".")[2], largest))


def _bounds(name: str, largest: float) -> tuple[float, float]:
    largest = LARGEST_REWARD if name == "rewards" else LARGEST_OBSERVATION if name == "frames" else largest
    return (0.0, _UPPER[name]) if name in _UPPER else (-largest, largest)


def _layout(tensors: dict[str, TensorEntry]) -> dict[str, tuple[str, list[int]]]:
    return {name: (entry.dtype, entry.shape) for name, entry in tensors.items()}


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path}: damaged ({reason})")
