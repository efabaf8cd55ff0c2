"""What the metadata of a policy file may say. The file may be foreign, and what it says decides how large a network is
built: so it must name a task that a run can have, and the shapes must be those of the task. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from engine.config.conditions import Conditions
from engine.config.fields import GAMES, ConfigError, must_be_one_of
from engine.config.observation import observation_layout
from engine.config.reading import make_config
from engine.config.run_config import RunConfig, belongs
from engine.runs.run import Count, Score, Seconds

_NETWORKS = {
    "mario": RunConfig.__dataclass_fields__["network"].metadata["choices"],
    "snake": ("grid", "paths"),
    "tetris": ("columns", "afterstates"),
}
_OF_TASK = {
    "mario": ("stage", "reward", "emulator", "observation", "frame_skip", "swim_strokes"),
    "snake": ("reward", "pieces", "death_penalty"),
    "tetris": ("reward", "pieces", "death_penalty", "max_pieces", "next_piece"),
}
"""Options of a run that the metadata have, besides actions and boards."""
_EARLIER = {"mario": {"swim_strokes": False, "reward": "progress"}, "snake": {}, "tetris": {}}
"""What policies of earlier versions lack."""
_REQUIRED = {
    "mario": ("stage", "emulator", "observation", "frame_skip", "actions"),
    "snake": ("board", "reward", "pieces", "death_penalty"),
    "tetris": ("board", "reward", "pieces", "death_penalty"),
}
_MOST_BOARDS = 32
_Side = Annotated[int, msgspec.Meta(ge=1, le=2**12)]


class _Metadata(msgspec.Struct):
    """Fields of every policy."""

    game: str
    network: str
    stack: _Side
    frame_shape: Annotated[list[_Side], msgspec.Meta(min_length=2, max_length=3)]
    outputs: _Side
    version: str = ""
    env_steps: Count = 0
    updates: Count = 0
    seed: Count = 0
    minutes: Seconds = 0.0
    score: Annotated[list[Score], msgspec.Meta(max_length=8)] = []
    evaluation: Conditions | None = None
    teachers: list[str] = []
    options: dict[str, bool | int | float | str | None] = {}
    actions: Annotated[list[str], msgspec.Meta(min_length=1, max_length=256)] | None = None
    board: str | None = None


def checked(said: Any) -> dict[str, Any]:
    """The metadata of a policy, with what those of earlier versions lack. Raises `ValueError` saying what is wrong."""
    policy = msgspec.convert(said, _Metadata)
    game = policy.game
    if game not in GAMES:
        raise ValueError(f"game {must_be_one_of(GAMES, game)}")
    networks = [f"dueling-{name}" for name in _NETWORKS[game]]
    if policy.network not in networks:
        raise ValueError(f"network {must_be_one_of(networks, policy.network)}")
    missing = [name for name in _REQUIRED[game] if said.get(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    complete = _EARLIER[game] | said
    try:
        layout = _layout(policy, complete)
    except ConfigError as error:
        raise ValueError(f"{error.field} {error.reason}") from None
    for name, wanted in zip(("frame_shape", "stack", "outputs"), layout, strict=True):
        if getattr(policy, name) != wanted:
            raise ValueError(f"{name} must be {wanted} for its task, got {getattr(policy, name)}")
    return complete


def _layout(policy: _Metadata, said: Mapping[str, Any]) -> tuple[list[int], int, int]:
    """Shape of a frame, frames per observation and number of actions of the policy's task. Raises `ConfigError` if a
    run can't have this task."""
    game = policy.game
    options = {name: said[name] for name in _OF_TASK[game] if name in said and belongs(name, game, "single")}
    if game == "mario":
        actions = policy.actions or []
        shape, stack, _ = observation_layout(make_config({"game": game, "actions": ",".join(actions), **options}))
        return list(shape), stack, len(actions)
    boards = (policy.board or "").split(",", _MOST_BOARDS)
    layouts = [observation_layout(make_config({"game": game, "board": board, **options})) for board in boards]
    planes, height, width = (max(sides) for sides in zip(*(shape for shape, _, _ in layouts), strict=True))
    return [planes, height, width], layouts[0][1], 4 * (width if game == "tetris" else 1)
