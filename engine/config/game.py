"""The contract between the program and a game, and the registry of games.

A game is a package with a descriptor, a subclass of `Game`, that every process imports: so it imports neither torch nor
the compiler, and names the code that makes lanes and networks instead. Nothing else in the program knows a game by its
name. What only some games can do is a capability of its own: see `engine.config.capabilities`.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from engine.config.entry_points import installed
from engine.protocol.outcome import Outcome

if TYPE_CHECKING:
    from engine.config.fields import FieldSpec, Role
    from engine.config.reading import Following
    from engine.config.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """Options that only one game has: a frozen dataclass of `engine.config.fields.option` fields, whose roles say what
    depends on each."""

    choose_game: ClassVar[bool] = True
    """Whether options that only this game has choose it, where no `--game` is given."""

    @classmethod
    def of(cls, config: RunConfig) -> Self:
        """These options of a run of their game."""
        assert isinstance(config.game_options, cls)
        return config.game_options


FrameDtype: TypeAlias = Literal["uint8", "float32"]


@dataclass(frozen=True)
class Spec:
    """The properties of a game that replay and networks depend on."""

    frame_shape: tuple[int, ...]
    """(height, width) of a screen, (planes, height, width) of a board, or (numbers,) of a vector; with `numbers`, their
    rows included."""
    actions: int
    stack: int = 1
    """Frames per observation."""
    hold: int = 1
    """Maximum number of environment steps for which a random action is held during exploration."""
    masked: bool = False
    """Whether some actions may be illegal."""
    frame_dtype: FrameDtype = "uint8"
    """Of the elements of a frame: uint8 from 0 to 255, or finite numbers."""
    normalized: bool = False
    """Whether the network shifts and scales a vector, or the numbers, by a running mean and deviation."""
    numbers: int = 0
    """Numbers beside an image. The last rows of a frame, `rows_of_numbers`, hold their bytes as float32."""
    hold_power: int = 0
    """Holds of n steps are drawn in proportion to 1 / n^hold_power; see `engine.agents.exploration.Holds`."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        return math.prod(self.frame_shape) * (4 if self.frame_dtype == "float32" else 1)

    @property
    def mask_actions(self) -> int:
        """Length of a mask of legal actions; 0 if all actions are always legal."""
        return self.actions if self.masked else 0


def rows_of_numbers(numbers: int, frame_shape: tuple[int, ...]) -> int:
    """Rows of frames of this shape, one below another in all planes, that hold the bytes of so many float32."""
    return math.ceil(4 * numbers / (math.prod(frame_shape[:-2]) * frame_shape[-1]))


@dataclass(frozen=True)
class Preset:
    """A named set of options by field name, and what they are, in a few words."""

    help: str
    options: dict[str, Any]


class Game(ABC):
    """What the program asks of every game."""

    name: ClassVar[str]
    """As `--game` takes it."""
    options: ClassVar[type[GameOptions]]
    tasks: ClassVar[str]
    """The option, text, that tells what is played, a stage or a board. Its value is part of a run's name."""
    outcome: ClassVar[Outcome] = Outcome()
    """What its episodes yield besides return and length."""
    networks: ClassVar[tuple[str, ...]]
    """Networks that fit the game, of `engine.agents.networks.NETWORKS` and `own_networks`."""
    own_networks: ClassVar[Mapping[str, str]] = {}
    """Networks that the game brings: what makes each, as `module:name`, from the frames in an observation, the shape of
    a frame and the number of actions."""
    presets: ClassVar[Mapping[str, Preset]] = {}
    """Named sets of options, by their names."""
    lanes: ClassVar[str]
    """What makes the lanes of a run, as `module:name`; see `engine.envs.factory.MakeLanes`."""

    @abstractmethod
    def spec(self, config: RunConfig) -> Spec:
        """Return the `Spec` of the run's lanes, from the options alone."""

    @abstractmethod
    def action_names(self, config: RunConfig) -> list[str]:
        """Return a name for each action, in the order of the agent's Q-values."""

    def network(self, config: RunConfig) -> str:
        """Return the run's network, one of `networks`."""
        return self.networks[0]

    def tasks_of(self, value: str) -> tuple[str, ...]:
        """Return the tasks that a value of the option `tasks` names."""
        return (value,)

    def defaults(self) -> Mapping[str, Any]:
        """Return defaults of new runs, where they differ from those of the fields, which runs that lack an option
        have."""
        return {}

    def follow(self, following: Following) -> None:
        """Let defaults make room for the game's options that were given."""

    def check(self, config: RunConfig) -> None:
        """Raise `ConfigError` for the first option that can't hold together with the others."""


class _Names(Sequence[str]):
    """The names of all games. They are looked for when they are needed: a built-in one is known without that."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in _built_in() or _descriptor(name) is not None)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(games())

    def __getitem__(self, index: Any) -> Any:
        return games()[index]


GAMES = _Names()
DESCRIPTORS: dict[str, Game | None] = {}
"""The descriptors that this process has imported; None for a game that can't be used."""


def games() -> tuple[str, ...]:
    """Return the names of all games: the built-in ones, and those of installed packages that can be used."""
    return (*_built_in(), *(name for name in installed() if _descriptor(name) is not None))


def game_of(name: str) -> Game:
    """Return the descriptor of a game, one of `games()`. Raises `KeyError` for another name."""
    if (game := _descriptor(name)) is None:
        raise KeyError(name)
    return game


def _descriptor(name: str) -> Game | None:
    """Import a game's descriptor; None, and a line on standard error, if that of an installed package can't be used."""
    if name in DESCRIPTORS:
        return DESCRIPTORS[name]
    if name not in _built_in():
        if name in installed():  # `engine.config.plugins` builds on this module
            importlib.import_module("engine.config.plugins").described(installed()[name])
        return DESCRIPTORS.get(name)
    game: Game = pkgutil.resolve_name(_built_in()[name])()
    DESCRIPTORS[name] = game
    return game


@cache
def own_options(name: str) -> Mapping[str, FieldSpec]:
    """Return the options that a game has besides those of all games, by name."""
    return {spec.name: spec for spec in fields(game_of(name).options)}


@cache
def options_with(role: Role, game: str) -> tuple[str, ...]:
    """Return the options of a game that have a role."""
    return tuple(name for name, spec in own_options(game).items() if role in spec.metadata["roles"])


@cache
def _built_in() -> Mapping[str, str]:
    places: Mapping[str, str] = importlib.import_module("engine.games").BUILT_IN
    return places
