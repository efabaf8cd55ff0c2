"""A run's options: those that all games have, with those of its game in `game_options`.

Together they define the command line (`engine.config.command_line`) and the file, where all options are on one level.
Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Self

import tomli_w

from engine.config.common_options import COMMON, CommonOptions
from engine.config.conditions import Conditions
from engine.config.constraints import check_together
from engine.config.fields import AUTO, GROUPS, NONE, FieldSpec, check
from engine.config.game import Game, GameOptions, Spec
from engine.config.games import described, game_of, games, import_plugins, own_options
from engine.config.runners import RUNNERS, RunnerInfo, runners_with
from engine.protocol.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class RunConfig(CommonOptions):
    """Options of a training run. Raises `ConfigError` on construction if a value is invalid."""

    game_options: GameOptions = field(default_factory=GameOptions)
    """Of the class that the game's descriptor names. Without them, the game's defaults."""

    def __post_init__(self) -> None:
        check(COMMON["game"], self.game)
        kind = self.game_info.options
        if not isinstance(self.game_options, kind):
            object.__setattr__(self, "game_options", kind())
        for name, spec in specs_of(self.game).items():
            check(spec, self.value(name))
        check_together(self)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options by name, those of the game among them. Raises `ConfigError`, and `TypeError` for an unknown name."""
        game = values.get("game", cls.game)
        check(COMMON["game"], game)
        common, own = _divided(values)
        return cls(**common, game_options=game_of(game).options(**own))

    def value(self, name: str) -> Any:
        """An option of all games or of the run's own, by its name."""
        return getattr(self if name in COMMON else self.game_options, name)

    def changed(self, **values: Any) -> Self:
        """These options with some of them replaced, by name. Raises `ConfigError`."""
        common, own = _divided(values)
        return replace(self, **common, game_options=replace(self.game_options, **own))

    def __reduce__(self) -> Any:
        """Options travel by name, and only to processes that play or learn, which import the game."""
        return _received, (self.values(),)

    def values(self) -> dict[str, Any]:
        """All options by name, whether they are set and apply or not."""
        return {name: self.value(name) for name in specs_of(self.game)}

    @property
    def game_info(self) -> Game:
        return game_of(self.game)

    @property
    def outcome(self) -> Outcome:
        """What the episodes of its game yield."""
        return self.game_info.outcome

    @property
    def action_names(self) -> list[str]:
        """In the order of the Q-values."""
        return self.game_info.action_names(self)

    @property
    def task_options(self) -> tuple[str, ...]:
        """Options that decide what is learned. Transitions, scores and a learning rate that was cut belong to one
        task."""
        return ("game", *self.game_info.task_options)

    @property
    def replay_options(self) -> tuple[str, ...]:
        """Options that decide what a replay holds: those of the task, and gamma if rewards contain it."""
        return (*self.task_options, "gamma") if self.game_info.keeps_gamma(self) else self.task_options

    @property
    def task(self) -> str:
        """What is played: the stages, or the size of the board."""
        return str(self.value(self.game_info.tasks))

    @property
    def task_label(self) -> str:
        """The task in short, for people and for names of runs."""
        return self.game_info.task_label(self.task)

    @property
    def has_curriculum(self) -> bool:
        return self.game_info.make_curriculum(self, 0) is not None

    @property
    def spec(self) -> Spec:
        """What the game's lanes have for a `Spec`, found without making them."""
        return self.game_info.spec(self)

    @property
    def runner_info(self) -> RunnerInfo:
        return RUNNERS[self.runner]

    @property
    def processes(self) -> int:
        """Processes that play."""
        count = self.runner_info.count
        return 1 if count is None else int(getattr(self, count))

    @property
    def learners(self) -> int:
        """Processes that learn."""
        return 1 if self.runner_info.learner else self.processes

    @property
    def largest_batch(self) -> int:
        """Largest batch in transitions, which is one replay: members that learn have one each, actors share one."""
        return self.buffer_size // self.learners

    @property
    def network_name(self) -> str:
        """The network, one of those that fit the game."""
        return self.game_info.network(self)

    @property
    def replay_in_files(self) -> bool:
        return self.replay_device == "files"

    @property
    def on_ray(self) -> bool:
        """Whether actors run on a Ray cluster."""
        return self.ray != "none"

    @property
    def weight_pull_steps(self) -> int:
        """Environment steps between a member's checks for newer weights."""
        return self.sync_every if self.pull_every is None else self.pull_every

    @property
    def eval_conditions(self) -> Conditions:
        """The conditions of the run's evaluations."""
        return self.game_info.eval_conditions(self)

    def to_toml(self) -> str:
        """`options` as TOML, one key per field."""
        return tomli_w.dumps(self.options())

    def options(self) -> dict[str, Any]:
        """The options that are set and apply to the game and runner, by field name. The unset final values are among
        them, because a game may set them by default."""
        values = {name: self.value(name) for name in specs_of(self.game) if belongs(name, self.game, self.runner)}
        if self.batch_size == AUTO:
            values["batch_size"] = "auto"
        for name in ("final_gamma", "final_advantage_learning"):
            if values[name] is None:
                values[name] = NONE
        return {name: value for name, value in values.items() if value is not None}


def _received(values: Mapping[str, Any]) -> RunConfig:
    import_plugins()
    return RunConfig.of(**values)


def _divided(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of options that all games have, and those of the game's own."""
    common = {name: value for name, value in values.items() if name in COMMON}
    return common, {name: value for name, value in values.items() if name not in COMMON}


@cache
def specs_of(game: str) -> Mapping[str, FieldSpec]:
    """The options of a game by name, in the order in which people see them: in each group the game's own follow the
    first of those that all games have, such as `game`."""
    return dict(_ordered(own_options(game)))


@cache
def options_of_all() -> Mapping[str, FieldSpec]:
    """The options of all games by name, without those that games find out. One that several games have is described as
    in the first of them."""
    return {name: spec for name, spec in stored_options().items() if not spec.metadata["hidden"]}


@cache
def stored_options() -> Mapping[str, FieldSpec]:
    """As `options_of_all`, with those that games find out."""
    in_order: dict[str, FieldSpec] = {}
    for game in sorted(games(), key=lambda name: described(name).chosen_by_options):
        in_order = {**own_options(game), **in_order}
    first = {name: spec for game in reversed(games()) for name, spec in own_options(game).items()}
    return dict(_ordered({name: first[name] for name in in_order}))


def _ordered(own: Mapping[str, FieldSpec]) -> Iterator[tuple[str, FieldSpec]]:
    for group in dict.fromkeys((*GROUPS, *(str(spec.metadata["group"]) for spec in own.values()))):
        common = [(name, spec) for name, spec in COMMON.items() if spec.metadata["group"] == group]
        yield from common[:1]
        yield from ((name, spec) for name, spec in own.items() if spec.metadata["group"] == group)
        yield from common[1:]


def belongs(name: str, game: str, runner: str) -> bool:
    """Whether an option applies to a game and runner."""
    return (name in COMMON or name in own_options(game)) and runner in runners_with(name)
