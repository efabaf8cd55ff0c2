"""What a file says that a replay holds is checked before compiled code indexes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.buffers import MappedMemory, PrioritizedReplayBuffer, Replay, ReplayBuffer
from engine.buffers.device.replay import DeviceReplayBuffer
from engine.envs.lanes import PlayedStep
from engine.errors import UserError
from engine.runs.replay_file import ReplayShape

LANES, ACTIONS = 2, 3
OPTIONS: dict[str, Any] = {
    "lanes": LANES,
    "capacity": 20,
    "frame_shape": (2, 2),
    "n_step": 2,
    "action_limit": ACTIONS,
    "mask_actions": ACTIONS,
}


def in_files(folder: Path) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(ReplayShape(**OPTIONS), memory=MappedMemory(folder / "replay"))


def on_device(folder: Path) -> Replay:
    return DeviceReplayBuffer(ReplayShape(**OPTIONS), device=torch.device("cpu"))


def fill(replay: Replay, steps: int) -> None:
    none, frames, masks = np.zeros(LANES, bool), np.zeros((LANES, 2, 2), np.uint8), np.ones((LANES, ACTIONS), bool)
    for step in range(steps):
        ends = none | (step % 7 == 6)
        replay.append(
            PlayedStep(
                frames, np.full(LANES, step % ACTIONS), np.ones(LANES, np.float32), none, ends, frames, masks, masks
            )
        )


def state_of(replay: Replay) -> dict[str, NDArray[Any]]:
    fill(replay, 30)
    for _ in range(2):
        _, sample = replay.sample(8, np.random.default_rng(0))
        replay.update_priorities(sample, np.ones(8, np.float32))
    return {name: column[...].copy() for name, column in replay.state().items()}


CHANGES: dict[str, tuple[str, Any, str]] = {
    "an action beyond the game's": ("storage.actions", ACTIONS, "actions must be between -1 and 2, got 3"),
    "an action before the first": ("storage.actions", -2, "actions must be between -1 and 2, got -2"),
    "another kind of end": ("storage.ends", 3, "ends must be between 0 and 2, got 3"),
    "a reward that is not a number": ("storage.rewards", np.nan, "rewards must be between .* got nan"),
    "an infinite reward": ("storage.rewards", np.inf, "rewards must be between .* got inf"),
    "an episode from before the first entry": ("storage.episode_starts", -1, "episode_starts must be between 0"),
    "an episode that begins after its entry": ("storage.episode_starts", 999, "episode_starts less entries must be"),
    "less than nothing written": ("storage.written", -1, "written must be between 0"),
    "more entries complete than written": ("storage.ended", 2**40, "ended less written must be between"),
    "an episode begun in the future": ("storage.open_start", 2**62, "open_start must be between 0"),
    "a negative priority": ("sampler.priorities", -1.0, "priorities must be between"),
    "an infinite priority": ("sampler.priorities", np.inf, "priorities must be between .* got inf"),
    "a priority that is not a number": ("sampler.priorities", np.nan, "priorities must be between .* got nan"),
    "a priority of what can't be sampled": ("sampler.priorities", 1.0, "priorities must be those of"),
    "no largest priority": ("sampler.largest", 0.0, "largest must be between"),
    "priorities of the future": ("sampler.seen", 2**40, "seen less written must be between"),
    "a lane beyond the last": ("sampler.ahead.lanes", LANES, "ahead.lanes must be between 0 and 1, got 2"),
    "a lane before the first": ("sampler.ahead.lanes", -1, "ahead.lanes must be between 0 and 1, got -1"),
    "a weight that is not a number": ("sampler.ahead.weights", np.nan, "ahead.weights must be between 0 and 1"),
}


@pytest.mark.parametrize("make", [in_files, on_device])
@pytest.mark.parametrize("what", CHANGES)
def test_numbers_that_no_replay_writes_are_refused_and_change_nothing(
    make: Callable[[Path], Replay], what: str, tmp_path: Path
) -> None:
    state = state_of(in_files(tmp_path / "before"))
    name, value, reason = CHANGES[what]
    state[name][...] = value
    replay = make(tmp_path)
    fill(replay, 4)
    before = {name: column[...].copy() for name, column in replay.state().items()}
    with pytest.raises(ValueError, match=reason):
        replay.load_state(state)
    for name, column in replay.state().items():
        assert np.array_equal(column[...], before[name]), name


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("storage.written", lambda array: None, "written is missing"),
        ("storage.frames", lambda array: None, "frames are missing"),
        ("storage.frames", lambda array: array.astype(np.int64), "frames are missing, or not uint8"),
        ("storage.actions", lambda array: array.astype(np.float32), "actions has the type float32 instead of int16"),
        ("storage.actions", lambda array: array[:1], r"actions has the shape \(1, 20\) instead of \(2, 20\)"),
        ("storage.masks", lambda array: array.view(np.uint8) + 1, "masks has the type uint8 instead of bool"),
        (
            "storage.masks",
            lambda array: (array.view(np.uint8) + 1).view(np.bool_),
            "masks must be between 0 and 1, got 2",
        ),
        ("sampler.priorities", lambda array: array[:, :7], r"priorities has the shape \(2, 7\)"),
        ("sampler.largest", lambda array: array[:0], r"largest has the shape \(0,\) instead of \(1,\)"),
    ],
)
def test_arrays_of_another_kind_are_refused(
    name: str, change: Callable[[NDArray[Any]], NDArray[Any] | None], reason: str, tmp_path: Path
) -> None:
    state = state_of(in_files(tmp_path / "before"))
    changed = change(state.pop(name))
    if changed is not None:
        state[name] = changed
    with pytest.raises(ValueError, match=reason):
        in_files(tmp_path).load_state(state)


def test_a_batch_that_was_drawn_without_priorities_is_checked_too(tmp_path: Path) -> None:
    state = state_of(in_files(tmp_path))
    for name in ("priorities", "largest", "seen", "weighed"):
        del state[f"sampler.{name}"]
    state["sampler.ahead.lanes"][0] = LANES
    with pytest.raises(ValueError, match=r"ahead\.lanes must be between 0 and 1, got 2"):
        ReplayBuffer(ReplayShape(**OPTIONS)).load_state(state)


def test_damaged_files_are_refused_or_replaced_on_request(tmp_path: Path) -> None:
    replay = in_files(tmp_path)
    fill(replay, 30)
    replay.storage.actions[1, 4] = 77
    replay.close()
    reason = "contains a replay that is damaged .actions must be between -1 and 2, got 77."
    with pytest.raises(UserError, match=f"{reason}; remove the folder"):
        in_files(tmp_path)
    said: list[str] = []
    memory = MappedMemory(tmp_path / "replay", said.append)
    again = PrioritizedReplayBuffer(ReplayShape(**OPTIONS), memory=memory)
    assert again.size == 0 and said[0].endswith("; starting with an empty replay")
    fill(again, 30)
    again.sample(8, np.random.default_rng(0))
    again.close()
    assert in_files(tmp_path).size == 2 * 20
