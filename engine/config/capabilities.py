"""What only some games can do, with the conditions of their evaluations and the buttons of their players.

A game has a capability if its descriptor has the members of the protocol; who needs it asks with `isinstance`, and
knows what to do for games without it. Those that only one package uses stand there: `engine.agents.networks`,
`engine.commands`, `engine.envs`, `engine.extras.distillation.contract` and `engine.extras.playing.stepped_game`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from engine.config.game import Game, Spec
    from engine.config.run_config import RunConfig
    from engine.envs.lanes import Curriculum, Lanes
    from engine.envs.played_game import PersonControls, PlayedGame
    from engine.protocol.outcome import Conditions, Outcome

# Bits of the joypad byte, in the order of nes-py.
RIGHT, LEFT, DOWN, UP, START, SELECT, B, A = 0x80, 0x40, 0x20, 0x10, 0x08, 0x04, 0x02, 0x01

MOVE_KEYS = {
    "left": LEFT, "right": RIGHT, "up": UP, "down": DOWN,
    "a": LEFT, "d": RIGHT, "w": UP, "s": DOWN,
}  # fmt: skip
"""Keys of a keyboard, by Textual's names, that a person moves with."""


EVALUATION_SEED = 20_000
"""The same starts and draws in every evaluation of every run, so that policies can be compared."""
FRESH_SEED = 40_000
"""Of final evaluations, which play other episodes. Neither is a seed of training: those are 32-bit hashes."""


# ---------------------------------------------------------------------------------------------------- tasks


@runtime_checkable
class LabelsTasks(Protocol):
    """Shows tasks in other words than those of its option `tasks`."""

    def task_label(self, value: str) -> str:
        """Return a value of the option `tasks` as people see it, and as a part of a run's name."""


def task_label(game: Game, value: str) -> str:
    """Return a value of a game's option `tasks` as people see it."""
    return game.task_label(value) if isinstance(game, LabelsTasks) else value


@runtime_checkable
class JoinsPolicies(Protocol):
    """Has policies that were distilled from several for different tasks, with one network that fits all."""

    def learned_apart(self, value: str) -> tuple[str, ...]:
        """Return the values of the option `tasks` under which the parts of a policy were learned."""

    def spec_for_all(self, specs: Sequence[Spec]) -> Spec:
        """Return the `Spec` of a policy that plays what was learned with these."""


def learned_apart(game: Game, value: str) -> tuple[str, ...]:
    """Return the values of a game's option `tasks` under which the parts of a policy were learned."""
    return game.learned_apart(value) if isinstance(game, JoinsPolicies) else (value,)


@runtime_checkable
class HasStages(Protocol):
    """Has places at which episodes can begin, and through which `mario-tui play` steps."""

    stages: tuple[str, ...]
    """Their names, in order."""
    stages_of_world: int
    """Stages that are a world together."""


@runtime_checkable
class HasCurriculum(Protocol):
    """Changes its tasks or rewards as a run makes progress."""

    def make_curriculum(self, config: RunConfig, begin: int) -> Curriculum | None:
        """Return the curriculum of a run, which begins when the run has played `begin` environment steps; None if it
        has none."""


@runtime_checkable
class KeepsGamma(Protocol):
    """Has rewards that may contain a run's discount factor, which then never changes: a replay holds them."""

    def keeps_gamma(self, config: RunConfig) -> bool:
        """Return whether the rewards of the run contain it."""


@runtime_checkable
class NamesFiles(Protocol):
    """Has options that name files."""

    def check_files(self, config: RunConfig) -> None:
        """Raise `UserError` if a file can't be used. Called before a run starts."""

    def files(self, config: RunConfig) -> dict[str, bytes]:
        """Return the contents of the files by option: actors on other machines are sent them. Raises `UserError` if one
        can't be read."""


# ---------------------------------------------------------------------------------------------------- evaluations


@runtime_checkable
class HasEvaluationConditions(Protocol):
    """Can make the episodes of an evaluation harder in other ways than by random actions of the agent."""

    conditions: tuple[str, ...]
    """Fields of `Conditions` that evaluations, `mario-tui eval` and `play` can vary."""

    def eval_conditions(self, config: RunConfig) -> Conditions:
        """Return the conditions of a run's evaluations."""


def varied_conditions(game: Game) -> tuple[str, ...]:
    """Return the fields of `Conditions` that evaluations of a game can vary."""
    return game.conditions if isinstance(game, HasEvaluationConditions) else ("epsilon",)


NO_FRESH = "training and evaluations begin after every number of no-ops, which leaves no fresh episodes"
"""Why `fresh_episodes` finds none."""


@dataclass(frozen=True)
class Fresh:
    """Episodes that neither the training nor the evaluations of a run have had, if they are drawn with a seed of their
    own."""

    config: RunConfig
    """The run's options; its evaluations would begin with these episodes."""
    starts: str = ""
    """Where they begin, for people."""
    most: int | None = None
    """How many of them differ; None: any number."""


@runtime_checkable
class HasFreshEpisodes(Protocol):
    """Plays the same episodes under every seed, so that fresh ones need other options."""

    def fresh(self, config: RunConfig) -> Fresh | None:
        """Return episodes for the final evaluation of a run; None if its training and its evaluations leave none."""


def fresh_episodes(config: RunConfig) -> Fresh | None:
    """Return episodes for the final evaluation of a run; None if there are none."""
    game = config.game_info
    return game.fresh(config) if isinstance(game, HasFreshEpisodes) else Fresh(config)


@runtime_checkable
class HasPlainNetworks(Protocol):
    """Some of its own networks have no streams that could tell quantiles or be noisy."""

    plain_networks: tuple[str, ...]


@runtime_checkable
class VariesOutcome(Protocol):
    """Has episodes whose outcome depends on what is played."""

    def outcome_of(self, config: RunConfig) -> Outcome:
        """Return what those of a run yield."""


@runtime_checkable
class CanBeSolved(Protocol):
    """Knows the mean return at which what a run plays counts as solved."""

    def solved_at(self, config: RunConfig) -> float | None:
        """Return it; None if there is none."""


# ---------------------------------------------------------------------------------------------------- policies


@dataclass(frozen=True)
class CommandOption:
    """How a command other than training takes one of a game's own options."""

    help: str
    metavar: str | None = None
    """None: as in training."""


@runtime_checkable
class ReplaysPolicies(Protocol):
    """Plays policies in other lanes than those of a run with their options."""

    played_options: Mapping[str, CommandOption]
    """Options that `mario-tui eval` and `play` take instead of those that a policy was trained with."""

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        """Make lanes for playing a policy, from its metadata. `others`: values of `played_options`, and the conditions
        of `mario-tui eval`."""


def played_options(game: Game) -> Mapping[str, CommandOption]:
    """Return the options of a game that `mario-tui eval` and `play` take."""
    return game.played_options if isinstance(game, ReplaysPolicies) else {}


@runtime_checkable
class PlaysThrough(Protocol):
    """Has a task that leads through its other tasks, in which each of several policies can play those that it was
    trained on. `game_of_policy` takes `others`, the paths of these; its own policy plays what they don't know."""

    whole_task: str
    """The value of the option `tasks`."""


@runtime_checkable
class StartsFromPolicy(Protocol):
    """Has options that decide whether the weights of a policy fit a run."""

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that a run has if it begins with the weights of this policy, unless others are given.
        Values of a file from elsewhere may be invalid."""


# ---------------------------------------------------------------------------------------------------- people


@dataclass(frozen=True)
class PersonKeys:
    """The keys of a person's own game in `mario-tui play --human`."""

    buttons: Mapping[str, int]
    """Textual's names of keys, and their joypad bits, or the 16 bits above them."""
    help: Mapping[str, str]
    """What groups of keys do."""
    held: bool = False
    """Whether the game looks in each of its frames which buttons are held; otherwise each press counts once."""

    def line(self) -> str:
        """Return the help in one line."""
        return "   ".join(f"{keys}: {action}" for keys, action in self.help.items())


@runtime_checkable
class Playable(Protocol):
    """Can be played by a person."""

    person_options: Mapping[str, CommandOption]
    """Options that `mario-tui play` takes without a policy."""
    other_keys: str
    """The keys besides those that move, for `--help`; empty if there are none to name."""

    def keys_of_person(self, config: RunConfig) -> PersonKeys:
        """Return the keys with these options. Raises `UserError` if none can be found."""

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        """Make the game of a person, with the `person_options` that were given."""
