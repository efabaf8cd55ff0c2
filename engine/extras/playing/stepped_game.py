"""Any game that is played or watched: its lanes, step by step at an even pace, played by a policy or a person."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from engine.agents.exploration import greedy, mask_illegal, random_actions
from engine.config.capabilities import HasStages
from engine.config.game import Game, game_of
from engine.config.reading import config_of_policy, make_config, tasks_of
from engine.envs.episode import EpisodeRecord, ended_episodes
from engine.envs.factory import describe_task, lanes_of_policy
from engine.envs.lanes import Frames, FrameStack, Lanes
from engine.envs.played_game import PICTURES_PER_S, PersonControls, PlayedGame, ShowsPolicies
from engine.evaluation.policy import load_policy
from engine.protocol.messages import Thought
from engine.protocol.results import EvaluationOrder, PlayOrder
from engine.runtime.stored_arrays import seed_global_random

_STEPS_PER_S = 10.0
"""Of games without a pace of their own."""


class Player(ABC):
    """Chooses the actions in an episode of one game, on one lane, whose picture and values are shown."""

    paced = True
    """Whether the game moves on at a fixed pace, instead of waiting for an action."""

    def __init__(self, lanes: Lanes, seed: int) -> None:
        self._lanes = lanes

    @abstractmethod
    def action(self) -> int | None:
        """The action of this step; None if there is none yet."""

    def observe(self, obs: Frames) -> None:
        """Begin a step with observations uint8 [1, stack, *frame_shape]."""

    def on_tick(self, presses: list[int]) -> None:
        """Process the buttons pressed since the last tick."""

    def picture(self, progress: float) -> NDArray[np.uint8]:
        """The screen, RGB uint8 [240, 256, 3]. progress: the part of a paced step's time that has passed."""
        return self._lanes.screen(0, self.thought())

    def facts(self) -> dict[str, int]:
        """Values of the game to show beside the picture."""
        return self._lanes.facts(0)

    def thought(self) -> Thought | None:
        """The decision of a policy; None of a person."""
        return None


class PersonPlayer(Player):
    """A person. Subclasses say what buttons do, by `on_tick` and `action`."""


class PolicyPlayer(Player):
    """Plays with a policy's network: greedy, or with probability `epsilon` a random legal action."""

    def __init__(self, network: nn.Module, lanes: Lanes, epsilon: float, seed: int) -> None:
        super().__init__(lanes, seed)
        self._network, self._epsilon, self._random = network, epsilon, np.random.default_rng(seed)

    @torch.no_grad()
    def observe(self, obs: Frames) -> None:
        masks = self._lanes.masks
        q_values = self._network(torch.from_numpy(obs))
        at_random = self._random.random() < self._epsilon
        if at_random:
            action = random_actions(self._random, 1, self._lanes.spec.actions, masks)[0]
        else:
            action = greedy(q_values, masks)[0]
        self._thought = Thought(
            q_values=mask_illegal(q_values, masks)[0].tolist(),
            action=int(action),
            random=at_random,
            shape=(0, 0, 0, 0),
            seen=b"",
        )

    def action(self) -> int:
        return self._thought.action

    def thought(self) -> Thought:
        return self._thought


class SteppedGame:
    """A game on one lane; see `engine.envs.played_game`. A tick is a picture, unless the pace needs several.

    Args:
        metadata: metadata of a policy, or those that a policy for this game would have.
        new_player: makes the player of an episode, from its lanes and seed.
        steps_per_s: the pace.
        presses: returns the buttons that the person has pressed since the last call, in order; None if a policy plays.
    """

    may_pause = True

    def __init__(
        self,
        metadata: Mapping[str, Any],
        new_player: Callable[[Lanes, int], Player],
        *,
        steps_per_s: float,
        presses: Callable[[], list[int]] | None = None,
    ) -> None:
        self._metadata, self._new_player, self._presses = metadata, new_player, presses
        self._game = game_of(metadata["game"])
        self.outcome = self._game.outcome
        self.ticks_per_picture = math.ceil(steps_per_s / PICTURES_PER_S)
        self.ticks_per_s = float(PICTURES_PER_S * self.ticks_per_picture)
        self._ticks_per_step = self.ticks_per_s / steps_per_s
        self._tour = tasks_of(metadata)
        self._lanes: Lanes | None = None
        self.stage = ""

    @property
    def place(self) -> str:
        return self.stage

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        tour = self._tour if stage is None else (stage,)
        task = tour[(episode - 1) % len(tour)]
        metadata = {**self._metadata, self._game.tasks: task}
        seed_global_random(seed)
        lanes = lanes_of_policy(metadata, 1, threads=1, seed=seed)
        self.close()
        self._lanes, self._tour = lanes, tour
        self.stage = task if isinstance(self._game, HasStages) else ""
        self.actions = self._game.action_names(config_of_policy(metadata))
        self._stack = FrameStack(lanes.reset(), lanes.spec.stack)
        self._player = self._new_player(lanes, seed)
        self._player.observe(self._stack.obs)
        self._clock, self._due = 0, self._ticks_per_step if self._presses is None else 0.0
        self.steps, self.idle = 0, False
        self._pressed()  # those of the last episode
        self._show(0.0)

    def _pressed(self) -> list[int]:
        return [] if self._presses is None else self._presses()

    def tick(self) -> EpisodeRecord | None:
        assert self._lanes is not None
        self._clock += 1
        player = self._player
        player.on_tick(self._pressed())
        if not player.paced or self._clock >= self._due:
            action = player.action()
            self.idle = action is None
            if action is not None:
                self._due = max(self._due, self._clock - 1) + self._ticks_per_step
                step = self._lanes.step(np.array([action]))
                self.steps += 1
                for episode in ended_episodes(step):
                    return episode  # the lanes show the next one already; the picture stays
                self._stack.push(step.frames, step.terminated | step.truncated)
                player.observe(self._stack.obs)
        self._show(1 - (self._due - self._clock) / self._ticks_per_step)
        return None

    def _show(self, progress: float) -> None:
        player = self._player
        self._picture, self._facts, self._thought = player.picture(progress), player.facts(), player.thought()

    def picture(self) -> NDArray[np.uint8]:
        return self._picture

    def facts(self) -> dict[str, int | str]:
        return dict(self._facts)

    def thought(self) -> Thought | None:
        return self._thought

    def close(self) -> None:
        if self._lanes is not None:
            self._lanes.close()


@runtime_checkable
class HasPace(Protocol):
    """A game that is watched at a pace of its own."""

    steps_per_s: float
    """Environment steps per second."""


def _pace(game: Game) -> float:
    return game.steps_per_s if isinstance(game, HasPace) else _STEPS_PER_S


def game_of_policy(
    policy: Path,
    metadata: Mapping[str, Any],
    epsilon: float,
    *,
    player: Callable[[nn.Module, Lanes, float, int], Player] = PolicyPlayer,
    steps_per_s: float | None = None,
) -> SteppedGame:
    """The game of a policy, from its file and its metadata. `steps_per_s`: the pace; None for the game's."""
    network = load_policy(policy, metadata["network"])
    return SteppedGame(
        metadata,
        lambda lanes, seed: player(network, lanes, epsilon, seed),
        steps_per_s=steps_per_s or _pace(game_of(metadata["game"])),
    )


def game_of_person(
    game: Game,
    new_player: Callable[[Lanes, int], Player],
    controls: PersonControls,
    *,
    steps_per_s: float | None = None,
    **options: Any,
) -> SteppedGame:
    """The game of a person, with these options of the game. `steps_per_s`: the pace; None for the game's."""
    metadata = {**options, **describe_task(make_config({"game": game.name, **options}))}
    return SteppedGame(metadata, new_player, steps_per_s=steps_per_s or _pace(game), presses=controls.presses)


def game_to_show(order: EvaluationOrder | PlayOrder, policy: Path, metadata: Mapping[str, Any]) -> PlayedGame:
    """The game in which the policy of an order plays, maybe with others."""
    game = game_of(metadata["game"])
    if not isinstance(game, ShowsPolicies):
        return game_of_policy(policy, metadata, order.conditions.epsilon)
    others = {"others": [Path(other) for other in order.others]} if order.others else {}
    return game.game_of_policy(policy, metadata, order.conditions, **others, **order.own)
