"""The contract between the program and a game.

A game is a package with a descriptor, a subclass of `Game`. Everything that differs between games is asked of the
descriptor; nothing else in the program knows a game by its name. A built-in descriptor imports neither torch nor the
compiler: what needs them is imported when lanes are made. That of an installed package may import anything, so
terminal and host never import it; see `engine.config.plugins`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from engine.config.conditions import Conditions
from engine.errors import UserError
from engine.protocol.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch
    from torch import nn

    from engine.config.following import Following
    from engine.config.run_config import RunConfig
    from engine.distillation.search import Search
    from engine.envs.curriculum import Curriculum
    from engine.envs.guide import Guide
    from engine.envs.lanes import Lanes
    from engine.envs.played_game import PersonControls, PlayedGame


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """Options that only one game has: a frozen dataclass of `engine.config.fields.option` fields."""


FrameDtype: TypeAlias = Literal["uint8", "float32"]


@dataclass(frozen=True)
class Spec:
    """The properties of a game that replay and networks depend on."""

    frame_shape: tuple[int, ...]
    """(height, width) of a screen, (planes, height, width) of a board, or (numbers,) of a vector."""
    actions: int
    stack: int
    """Frames per observation."""
    hold: int
    """Maximum number of environment steps for which a random action is held during exploration."""
    masked: bool
    """Whether some actions may be illegal."""
    frame_dtype: FrameDtype = "uint8"
    """Of the elements of a frame, finite ones."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        return math.prod(self.frame_shape) * (4 if self.frame_dtype == "float32" else 1)

    @property
    def mask_actions(self) -> int:
        """Length of a mask of legal actions; 0 if all actions are always legal."""
        return self.actions if self.masked else 0


@dataclass(frozen=True)
class Preset:
    """A named set of options by field name, and what they are, in a few words."""

    help: str
    options: dict[str, Any]


@dataclass(frozen=True)
class CommandOption:
    """How a command other than training takes one of a game's own options."""

    help: str
    metavar: str | None = None
    """None: as in training."""


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How `mario-tui distill` makes one policy from several of a game."""

    network: str
    """Of the student, unless another is given."""
    lanes: int
    """Of each task."""
    must_agree: tuple[str, ...] = ()
    """Fields of the metadata in which all teachers must agree."""
    copied: tuple[str, ...] = ()
    """Fields of the metadata that the student has from its first teacher."""
    searched: tuple[str, ...] = ()
    """Tasks that can be given instead of a policy: `Game.make_search` teaches them."""
    untaught: tuple[str, ...] = ()
    """Values of the option `tasks` whose policies can't be teachers."""
    options: Mapping[str, CommandOption] = field(default_factory=dict)
    """Options of the game that the command takes. `network` is the student's; others go to `Game.lanes_of_policy`."""
    search_options: tuple[str, ...] = ()
    """Those that go to `Game.described_for_search` instead."""
    told: tuple[str, ...] = ()
    """Those that the student's metadata tells among what it depends on."""


@dataclass(frozen=True)
class PersonKeys:
    """The keys of a person's own game in `mario-tui play --human`."""

    buttons: Mapping[str, int]
    """Textual's names of keys, and their joypad bits, or the 16 bits above them."""
    help: Mapping[str, str]
    """What groups of keys do."""
    held: bool = False
    """Whether the game looks in each of its frames which buttons are held; otherwise each press counts once."""
    brief: str = ""
    """The keys besides those that move, for `--help`."""

    def line(self) -> str:
        """The help in one line."""
        return "   ".join(f"{keys}: {action}" for keys, action in self.help.items())


class Game(ABC):
    """What the program asks of a game."""

    name: ClassVar[str]
    """As `--game` takes it."""
    options: ClassVar[type[GameOptions]]
    tasks: ClassVar[str]
    """The option that tells what is played, a stage or a board. Its value is part of a run's name."""
    task_options: ClassVar[tuple[str, ...]]
    """Options that decide what is learned: observations, actions, rewards and ends."""
    network_options: ClassVar[tuple[str, ...]]
    """Options that decide which network fits a run: a resumed one has those of its checkpoint."""
    networks: ClassVar[tuple[str, ...]]
    """Networks that fit the game, of `engine.agents.networks.NETWORKS` and `own_networks`."""
    own_networks: ClassVar[Mapping[str, str]] = {}
    """Networks that the game brings: what makes each, as `module:name`, from the frames in an observation, the shape of
    a frame and the number of actions."""
    takes_networks: ClassVar[bool] = False
    """Whether a run may also name a network of the user's own, as `MODULE:CLASS`."""
    chosen_by_options: ClassVar[bool] = True
    """Whether options that only this game has choose it, where no `--game` is given."""
    imports: ClassVar[tuple[str, ...]] = ()
    """Options whose value may name code to import, as `MODULE:NAME`; see `engine.config.user_code`."""
    policy_options: ClassVar[tuple[str, ...]]
    """Options that a policy file stores, because it can't be played without them."""
    state_options: ClassVar[tuple[str, ...]] = ()
    """Further options on which the state of a game that is stored in a checkpoint depends."""
    of_policy: ClassVar[tuple[str, ...]] = ()
    """Options that have the values of the `--initial-policy`, if there is one, unless they are given."""
    evaluation_options: ClassVar[tuple[str, ...]] = ()
    """Options besides the task's that decide what an evaluation's score means."""
    presets: ClassVar[Mapping[str, Preset]] = {}
    """Named sets of options, by their names."""
    conditions: ClassVar[tuple[str, ...]] = ("epsilon",)
    """Fields of `Conditions` that evaluations and `mario-tui play` can vary."""
    of_earlier_policies: ClassVar[Mapping[str, Any]] = {}
    """Options that policy files of the version before may lack, and the values that they had."""
    played_options: ClassVar[Mapping[str, CommandOption]] = {}
    """Options that `mario-tui eval` and `play` take instead of those that a policy was trained with."""
    person_options: ClassVar[Mapping[str, CommandOption]] = {}
    """Options that `mario-tui play` takes without a policy."""
    person_keys: ClassVar[PersonKeys | None] = None
    """The keys of `game_of_person`; None if no person plays it, or if `keys_of_person` knows them."""
    steps_per_s: ClassVar[float] = 10.0
    """Environment steps of a game that somebody watches, unless the game has a time of its own."""
    stages: ClassVar[tuple[str, ...]] = ()
    """Names of the places at which episodes can begin, in order, if `mario-tui play` may step through them."""
    outcome: ClassVar[Outcome] = Outcome()
    """What its episodes yield besides return and length."""
    judged: ClassVar[Mapping[str, tuple[str, Conditions]]] = {"": ("", Conditions(noop_max=0))}
    """Emulator (empty: none) and conditions under which policies that come with the package are judged, by the column
    of their table."""
    stages_of_world: ClassVar[int] = 1
    """Stages that are a world together."""
    distillation: ClassVar[Distillation | None] = None
    """None if policies of the game can't be distilled."""
    sample_bytes: ClassVar[int]
    """Memory of an update per sample and byte of an observation, for the largest network."""

    @abstractmethod
    def spec(self, config: RunConfig) -> Spec:
        """The `Spec` of the run's lanes, from the options alone."""

    @abstractmethod
    def action_names(self, config: RunConfig) -> list[str]:
        """A name for each action, in the order of the agent's Q-values."""

    @abstractmethod
    def network(self, config: RunConfig) -> str:
        """The run's network, one of `networks`."""

    @abstractmethod
    def tasks_of(self, value: str) -> tuple[str, ...]:
        """The tasks that a value of the option `tasks` names."""

    def task_label(self, value: str) -> str:
        """A value of the option `tasks` as people see it, and as a part of a run's name."""
        return value

    def learned_apart(self, value: str) -> tuple[str, ...]:
        """The values of the option `tasks` under which the parts of a policy were learned that were distilled into
        one."""
        return (value,)

    def spec_for_all(self, specs: Sequence[Spec]) -> Spec:
        """The `Spec` of a policy that plays what was learned with these."""
        return specs[0]

    def defaults(self) -> Mapping[str, Any]:
        """Defaults of options that all games have, where they differ from those of `RunConfig`."""
        return {}

    def check(self, config: RunConfig) -> None:
        """Raise `ConfigError` for the first option that can't hold together with the others."""

    def check_files(self, config: RunConfig) -> None:
        """Raise `UserError` if a file that an option names can't be used. Called before a run starts."""

    def files(self, config: RunConfig) -> dict[str, bytes]:
        """The contents of files that options name, by option: actors on other machines are sent them. Raises
        `UserError` if one can't be read."""
        return {}

    def starts_slowly(self, config: RunConfig) -> bool:
        """Whether each lane takes up to a second to begin an episode, and nothing has to be compiled for it."""
        return False

    def faster(self, config: RunConfig) -> Mapping[str, Any]:
        """Options with which the same lanes step much faster, for `mario-tui profile`."""
        return {}

    def follow(self, following: Following) -> None:
        """Let defaults make room for the game's options that were given."""

    @abstractmethod
    def make_lanes(
        self,
        config: RunConfig,
        lanes: int,
        *,
        threads: int,
        seed: int,
        device: torch.device | None = None,
        once: bool = False,
    ) -> Lanes:
        """Lanes of a run. Only this and `lanes_of_policy` may import torch, the compiler or a console.

        Args:
            config: options of the run.
            lanes: number of games.
            threads: threads that may step them.
            seed: seed of all random decisions.
            device: where frames of games that are computed in tensors stay; None for the CPU, with frames as arrays.
            once: for evaluations: each lane plays under the evaluation's conditions, one episode if the game has no
                reason to play on, and several tasks are distributed over the lanes.
        """

    @abstractmethod
    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        """Lanes for playing a policy, from its metadata. `others`: further choices that
        the game offers."""

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame | None:
        """The game of a policy for `mario-tui play`, with the `played_options` that were given; None if it is played
        step by step, as any game can be."""
        return None

    def keys_of_person(self, config: RunConfig) -> PersonKeys | None:
        """The keys of `game_of_person` with these options; None if no person plays the game. Raises `UserError` if none
        can be found."""
        return self.person_keys

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        """The game of a person, with the `person_options` that were given. Only games with keys have one."""
        raise UserError(f"{self.name} can't be played by a person")

    def described_for_search(self, task: str, like: Mapping[str, Any], **others: Any) -> dict[str, Any]:
        """The metadata of a teacher that is a search, for one of the tasks in `Distillation.searched`, with the
        `search_options` that were given. It sees what the policy with the metadata `like` sees, if that is not
        empty."""
        raise UserError(f"{self.name} has no search that could teach")

    def search_options_of(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        """The `search_options` of a student with this metadata."""
        return {}

    def make_search(self, student: Mapping[str, Any], *, seed: int, threads: int, **others: Any) -> Search:
        """What teaches tasks without a policy.

        Args:
            student: its metadata.
            seed: seed of the search.
            threads: threads that step the lanes of a task.
            others: those of `Distillation.options` that are for lanes.
        """
        raise UserError(f"{self.name} has no search that could teach")

    def also_described(self, config: RunConfig) -> dict[str, Any]:
        """What a policy file says of its task besides `policy_options`, or in other words than they."""
        return {}

    def prepare_network(self, config: RunConfig, network: nn.Module) -> None:
        """Tell a new network of the run what it has to know besides observations."""

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a run has if it begins with the weights of this policy, unless others are given. Values of a
        file from elsewhere may be invalid."""
        return {}

    def most_similar_action(self, action: str, known: Sequence[str]) -> str | None:
        """The action of a policy with whose weights a new action of a run begins; None for the mean of all."""
        return None

    def policy_must_have(self, config: RunConfig) -> Mapping[str, Any]:
        """Fields of a policy's metadata, and what they must be so that its weights fit the run. Of a list of `actions`
        it may have some."""
        return {"frame_shape": list(self.spec(config).frame_shape)}

    def trained_conditions(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields of `Conditions` besides `conditions`: those under which a policy was trained, and is always played."""
        return {}

    def describe_conditions(self, config: RunConfig) -> dict[str, Any]:
        """The conditions of evaluations that a policy file stores beside its score; empty if they can't vary."""
        return {}

    def make_curriculum(self, config: RunConfig, begin: int) -> Curriculum | None:
        """The curriculum of a run, which begins when the run has played `begin` environment steps; None if it has
        none."""
        return None

    def keeps_gamma(self, config: RunConfig) -> bool:
        """Whether the rewards of a run contain its discount factor, which then never changes: a replay holds them."""
        return False

    def make_guide(self, config: RunConfig, lanes: Lanes, seed: np.random.SeedSequence) -> Guide | None:
        """What begins some of the lanes' episodes with actions that are not the agent's; None if nothing does."""
        return None

    def eval_conditions(self, config: RunConfig) -> Conditions:
        """The conditions of a run's evaluations."""
        return Conditions(noop_max=0)
