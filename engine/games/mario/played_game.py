"""Super Mario Bros for `mario-tui play`, frame by frame, played by a policy or a person."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.config.conditions import Conditions
from engine.config.games import game_of
from engine.emulators.protocol import FRAMES_PER_S
from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.frame_stack import FrameStack
from engine.envs.played_game import PersonControls
from engine.evaluation.policy import load_policy
from engine.games.mario.actions import action_buttons
from engine.games.mario.factory import task_of_policy
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.options import MarioOptions
from engine.games.mario.rules import INFO_NAMES, INFO_STAGE, INFO_WORLD, STATUS_NAMES, first_buttons, read_info
from engine.games.mario.task import MarioTask


class _Player(Protocol):
    """Chooses the buttons: a policy or a person."""

    hold: int
    """Frames for which they are held: those of an environment step."""
    swim_strokes: bool
    """See `MarioTask`."""

    def begin(self, seed: int) -> None:
        """Begin an episode."""

    def buttons(self, obs: NDArray[np.uint8]) -> int:
        """The joypad byte for an observation, uint8 [1, stack, height, width]."""


class MarioPolicy:
    """Plays with a policy file: greedy except for random and sticky actions."""

    def __init__(self, path: Path, metadata: Mapping[str, Any], epsilon: float, sticky: float) -> None:
        self.hold, self.swim_strokes = metadata["frame_skip"], metadata["swim_strokes"]
        self._network = load_policy(path)
        self._buttons = action_buttons(",".join(metadata["actions"]))
        self._epsilon, self._sticky = epsilon, sticky
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._random, self._held = np.random.default_rng(seed), 0

    def buttons(self, obs: NDArray[np.uint8]) -> int:
        chosen = self._choose(obs)
        if not self._sticky or self._random.random() >= self._sticky:
            self._held = chosen
        return self._held

    @torch.no_grad()
    def _choose(self, obs: NDArray[np.uint8]) -> int:
        if self._random.random() < self._epsilon:
            return self._buttons[int(self._random.integers(len(self._buttons)))]
        return self._buttons[int(self._network(torch.from_numpy(obs)).argmax())]


class MarioPerson:
    """A person, who may press other buttons in every frame. `held`: the buttons that they hold."""

    hold, swim_strokes = 1, False

    def __init__(self, held: Callable[[], int]) -> None:
        self._held = held

    def begin(self, seed: int) -> None: ...

    def buttons(self, obs: NDArray[np.uint8]) -> int:
        return self._held()


def facts(info: Mapping[str, int]) -> dict[str, int | str]:
    """What gym-super-mario-bros tells of a game, in words that players use."""
    return {
        "world": f"{info['world']}-{info['stage']}",
        "x": info["x_pos"],
        "y": info["y_pos"],
        "time": info["time"],
        "score": info["score"],
        "coins": info["coins"],
        "lives": (info["life"] + 1) % 256,  # the console counts those in reserve, and -1 is none
        "": STATUS_NAMES[info["status"]],
    }


class MarioGame:
    """A game on one console; see `engine.envs.played_game`. A tick is a frame."""

    ticks_per_s, ticks_per_picture = FRAMES_PER_S, 2
    idle = False

    def __init__(self, make_lanes: Callable[[str], MarioLanes], stage: str, player: _Player) -> None:
        self._make_lanes, self._player = make_lanes, player
        self.outcome = game_of("mario").outcome
        self.actions: list[str] = []
        self._tour = [part.strip() for part in stage.split(",")]
        self.stage, self._lanes = self._tour[0], make_lanes(self._tour[0])
        self._ticks = self._held = 0

    @property
    def steps(self) -> int:
        return -(-self._ticks // self._player.hold)

    @property
    def place(self) -> str:
        return f"{self._info[INFO_WORLD]}-{self._info[INFO_STAGE]}"

    @property
    def may_pause(self) -> bool:
        return self._ticks % self._player.hold == 0

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        tour = self._tour if stage is None else [stage]
        wanted = tour[(episode - 1) % len(tour)]
        if wanted != self.stage:
            lanes = self._make_lanes(wanted)
            self._lanes.close()
            self._lanes, self.stage = lanes, wanted
        self._tour = tour
        self._lanes.reseed(0, seed)
        self._stack = FrameStack(self._lanes.reset(), self._lanes.spec.stack)
        self._player.begin(seed)
        self._ticks = 0
        self._info = np.empty(len(INFO_NAMES), np.int64)
        read_info(self._lanes.emulator.ram[0], self._info)

    def tick(self) -> EpisodeRecord | None:
        hold = self._player.hold
        pressed = self._held
        if self._ticks % hold == 0:
            self._held = self._player.buttons(self._stack.obs)
            pressed = first_buttons(self._lanes.emulator.ram[0], self._held, self._player.swim_strokes)
        step = self._lanes.step_buttons(np.array([pressed], np.uint8))
        self._info = step.info[0]
        self._ticks += 1
        if self._ticks % hold == 0:
            self._stack.push(step.frames, np.zeros(1, np.bool_))
        for episode in ended_episodes(step):
            return dataclasses.replace(episode, length=self.steps)
        return None

    def picture(self) -> NDArray[np.uint8]:
        return self._lanes.screen(0)

    def facts(self) -> dict[str, int | str]:
        return facts(dict(zip(INFO_NAMES, self._info.tolist(), strict=True)))

    def thought(self) -> None: ...

    def close(self) -> None:
        self._lanes.close()


def mario_of_policy(
    policy: Path,
    metadata: Mapping[str, Any],
    conditions: Conditions,
    *,
    stage: str | None = None,
    emulator: str | None = None,
    rom: str | None = None,
) -> MarioGame:
    """The game of a policy; `stage` and `emulator` override those of its metadata."""

    def make_lanes(stage: str) -> MarioLanes:
        noops = {"noop_min": conditions.noop_min, "noop_max": conditions.noop_max}
        task = task_of_policy(metadata, stage=stage, **noops, frame_by_frame=True)
        return MarioLanes(task, 1, emulator=emulator or metadata["emulator"], restart=False, rom=_path(rom))

    player = MarioPolicy(policy, metadata, conditions.epsilon, conditions.sticky_actions)
    return MarioGame(make_lanes, stage or metadata["stage"], player)


def mario_of_person(
    controls: PersonControls, *, stage: str | None = None, emulator: str | None = None, rom: str | None = None
) -> MarioGame:
    """The game of a person, who can also play `random` and the whole game, and whose episodes are never truncated."""

    def make_lanes(stage: str) -> MarioLanes:
        task = MarioTask(stage=stage, frame_skip=1, noop_max=0, stall_steps=0)
        return MarioLanes(task, 1, emulator=emulator or MarioOptions.emulator, restart=False, rom=_path(rom))

    return MarioGame(make_lanes, stage or MarioTask.stage, MarioPerson(lambda: controls.buttons))


def _path(rom: str | None) -> Path | None:
    return None if rom is None else Path(rom)
