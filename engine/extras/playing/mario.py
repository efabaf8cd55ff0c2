"""Super Mario Bros that is played or watched, frame by frame, played by a policy or a person."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from engine.config.game import game_of
from engine.console.protocol import FRAMES_PER_S
from engine.console.view import VIEWS, View
from engine.envs.episode import EpisodeRecord, add_cleared, ended_episodes
from engine.envs.lanes import FrameStack
from engine.envs.played_game import PersonControls
from engine.errors import UserError
from engine.evaluation.policy import load_policy
from engine.games.mario import rules
from engine.games.mario.actions import WITHOUT_HALFWAY, action_buttons, has_halfway, stages_of
from engine.games.mario.factory import task_of_policy
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.options import MarioOptions
from engine.games.mario.task import MarioTask
from engine.protocol.outcome import Conditions
from engine.runs.checkpoints import policy_metadata


class MarioPolicy:
    """Plays with a policy file: greedy except for random and sticky actions."""

    forgets = False  # one that plays several stages in one go has learned so

    def __init__(self, path: Path, metadata: Mapping[str, Any], epsilon: float, sticky: float) -> None:
        self.hold, self.swim_strokes = metadata["frame_skip"], metadata["swim_strokes"]
        self.view, self.stages = VIEWS[metadata["observation"]], stages_of(metadata["stage"])
        self._network = load_policy(path)
        self._buttons = action_buttons(",".join(metadata["actions"]))
        self._epsilon, self._sticky = epsilon, sticky
        self.begin(0)

    def begin(self, seed: int) -> None:
        self._random, self.held = np.random.default_rng(seed), 0

    def enter(self, stage: str) -> None: ...

    @torch.no_grad()
    def choose(self, obs: NDArray[np.uint8]) -> None:
        if self._random.random() < self._epsilon:
            action = int(self._random.integers(len(self._buttons)))
        else:
            action = int(self._network(torch.from_numpy(obs)).argmax())
        self._chosen = self._buttons[action]

    def buttons(self) -> int:
        if not self._sticky or self._random.random() >= self._sticky:
            self.held = self._chosen
        return self.held


class MarioRelay:
    """Plays each stage with the first policy trained on it, and stages that none was trained on with the last one. Each
    begins as it did in training: with a full stack of the stage's frames, and after `noop_min` to `noop_max` frames
    without buttons, here whole steps of them. Raises `UserError` for policies that can't take turns."""

    def __init__(self, policies: Sequence[MarioPolicy], conditions: Conditions) -> None:
        self._policies, self._now, self._conditions = policies, policies[-1], conditions
        self._by_stage = {stage: policy for policy in reversed(policies) for stage in policy.stages}
        self.hold = self._now.hold
        seen = {(policy.hold, dataclasses.replace(policy.view, brightness="gray")) for policy in policies}
        if len(seen) > 1:
            raise UserError("CHECKPOINT: policies that take turns must have the same frame skip and size of pictures")

    @property
    def forgets(self) -> bool:
        return not self._acts

    @property
    def swim_strokes(self) -> bool:
        return self._now.swim_strokes

    @property
    def view(self) -> View:
        return self._now.view

    def begin(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        for policy in self._policies:
            policy.begin(seed)

    def enter(self, stage: str) -> None:
        self._now = self._by_stage.get(stage, self._policies[-1])
        self._now.held = 0
        self._acts = False  # the step in which it begins ends without buttons, of which it would get only the rest
        least, most = (noops // self.hold for noops in (self._conditions.noop_min, self._conditions.noop_max))
        self._waits = int(self._random.integers(least, most, endpoint=True))

    def choose(self, obs: NDArray[np.uint8]) -> None:
        self._acts = self._waits == 0
        self._waits = max(self._waits - 1, 0)
        if self._acts:
            self._now.choose(obs)

    def buttons(self) -> int:
        return self._now.buttons() if self._acts else 0


class MarioPerson:
    """A person, who may press other buttons in every frame. `held`: the buttons that they hold."""

    hold, swim_strokes, view, forgets = 1, False, None, False

    def __init__(self, held: Callable[[], int]) -> None:
        self._held = held

    def begin(self, seed: int) -> None: ...

    def enter(self, stage: str) -> None: ...

    def choose(self, obs: NDArray[np.uint8]) -> None: ...

    def buttons(self) -> int:
        return self._held()


def facts(info: Mapping[str, int]) -> dict[str, int | str]:
    """Return what gym-super-mario-bros tells of a game, in words that players use."""
    return {
        "world": f"{info['world']}-{info['stage']}",
        "x": info["x_pos"],
        "y": info["y_pos"],
        "time": info["time"],
        "score": info["score"],
        "coins": info["coins"],
        "lives": (info["life"] + 1) % 256,  # the console counts those in reserve, and -1 is none
        "": rules.STATUS_NAMES[info["status"]],
    }


class MarioGame:
    """A game on one console; see `engine.envs.played_game`. A tick is a frame."""

    ticks_per_s, ticks_per_picture = FRAMES_PER_S, 2
    idle = False

    def __init__(
        self, make_lanes: Callable[[str], MarioLanes], stage: str, player: MarioPolicy | MarioRelay | MarioPerson
    ) -> None:
        self._make_lanes, self._player = make_lanes, player
        self.outcome = game_of("mario").outcome
        self.actions: list[str] = []
        self._tour = [part.strip() for part in stage.split(",")]
        self.stage, self._lanes = self._tour[0], make_lanes(self._tour[0])
        self._ticks = 0

    @property
    def steps(self) -> int:
        return -(-self._ticks // self._player.hold)

    @property
    def place(self) -> str:
        return f"{self._info[rules.INFO_WORLD]}-{self._info[rules.INFO_STAGE]}"

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
        frames = self._lanes.reset()
        self._player.begin(seed)
        self._attempt, self._cleared = [-1, -1, 0], np.zeros(1, np.int64)
        self._enter()
        self._stack = FrameStack(self._seen(frames), self._lanes.spec.stack)
        self._ticks = 0
        self._info = np.empty(len(rules.INFO_NAMES), np.int64)
        rules.read_info(self._lanes.emulator.ram[0], self._info)

    def tick(self) -> EpisodeRecord | None:
        hold, is_first = self._player.hold, self._ticks % self._player.hold == 0
        if is_first:
            self._player.choose(self._stack.obs)
        pressed = self._player.buttons()
        if is_first:
            pressed = rules.first_buttons(self._lanes.emulator.ram[0], pressed, self._player.swim_strokes)
        step = self._lanes.step_buttons(np.array([pressed], np.uint8))
        self._info = step.info[0]
        self._ticks += 1
        self._enter()
        if self._ticks % hold == 0:
            self._stack.push(self._seen(step.frames), np.array([self._player.forgets]))
        add_cleared(self._cleared, step)
        for episode in ended_episodes(step, self._cleared):
            return dataclasses.replace(episode, length=self.steps)
        return None

    def _enter(self) -> None:
        """Tell the player if a stage begins, also again after a lost life; not if a life was won."""
        ram = self._lanes.emulator.ram[0]
        (*before, had), (*stage, lives) = self._attempt, map(int, ram[[rules.WORLD, rules.STAGE, rules.LIVES]])
        self._attempt = [*stage, lives]
        if stage != before or (lives != had and (lives - had) % 256 != 1):
            self._player.enter(f"{ram[rules.WORLD] + 1}-{ram[rules.STAGE] + 1}")

    def _seen(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The lanes' frames as the player sees them."""
        view = self._player.view
        return frames if view in (None, self._lanes.task.view) else self._lanes.frames_in(view)

    def picture(self) -> NDArray[np.uint8]:
        return self._lanes.screen(0)

    def facts(self) -> dict[str, int | str]:
        return facts(dict(zip(rules.INFO_NAMES, self._info.tolist(), strict=True)))

    def thought(self) -> None: ...

    def close(self) -> None:
        self._lanes.close()


def of_policy(
    policy: Path,
    metadata: Mapping[str, Any],
    conditions: Conditions,
    *,
    stage: str | None = None,
    emulator: str | None = None,
    rom: str | None = None,
    others: Sequence[Path] = (),
) -> MarioGame:
    """The game of a policy; `stage` and `emulator` override those of its metadata. `others`: policies that play the
    stages that they were trained on."""

    tour = stage or metadata["stage"]
    if conditions.halfway_starts and not has_halfway(tour):
        raise UserError(f"--halfway-starts must be 0 {WITHOUT_HALFWAY}, got {conditions.halfway_starts:g}")

    def make_lanes(stage: str) -> MarioLanes:
        task = task_of_policy(
            metadata,
            stage=stage,
            conditions=msgspec.structs.replace(
                conditions,
                noop_min=0 if others else conditions.noop_min,  # the relay waits
                noop_max=0 if others else conditions.noop_max,
                halfway_starts=conditions.halfway_starts if has_halfway(stage) else 0.0,
            ),
            frame_by_frame=True,
        )
        return MarioLanes(task, 1, emulator=emulator or metadata["emulator"], restart=False, rom=_path(rom))

    every = [
        MarioPolicy(path, policy_metadata(path), conditions.epsilon, conditions.sticky_actions)
        for path in (*others, policy)
    ]
    return MarioGame(make_lanes, tour, MarioRelay(every, conditions) if others else every[0])


def of_person(
    controls: PersonControls, *, stage: str | None = None, emulator: str | None = None, rom: str | None = None
) -> MarioGame:
    """The game of a person, who can also play `random` and the whole game, and whose episodes are never truncated."""

    def make_lanes(stage: str) -> MarioLanes:
        task = MarioTask(stage=stage, frame_skip=1, noop_max=0, stall_steps=0)
        return MarioLanes(task, 1, emulator=emulator or MarioOptions.emulator, restart=False, rom=_path(rom))

    return MarioGame(make_lanes, stage or MarioTask.stage, MarioPerson(lambda: controls.buttons))


def _path(rom: str | None) -> Path | None:
    return None if rom is None else Path(rom)
