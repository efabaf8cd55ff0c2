"""Run options on the command line: flags and presets, what has no effect, and a run written back as a command.

Presets are earlier programs and a paper, to compare with the defaults, and trained policies. The configuration file and
the command line override them.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Collection, Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from engine.config.fields import FieldSpec, flag, is_int, is_text, must_be_one_of, read_number
from engine.config.game import Preset, game_of, games, options_with, own_options
from engine.config.reading import ALIASES, completed, defaults, with_task
from engine.config.run_config import COMMON, RunConfig, belongs, options_of_all
from engine.config.user_code import located
from engine.errors import UserError

_PLAIN = {
    "tau": 1.0, "policy_tau": 0.0, "learning_rate_schedule": "constant", "double_q": True, "advantage_learning": 0.0,
}  # fmt: skip
_OF_ALL: dict[str, Preset] = {
    "parallel-classic": Preset(
        "an earlier trainer, 4 workers",
        {
            "runner": "parallel",
            "num_processes": 4,
            "parallel_envs": 1,
            "batch_size": 64,
            "learning_rate": 5e-4,
            "buffer_size": 400_000,
            "burnin": 100_000,
            "episodes": 2_000,
            "sync_every": 1_000,
            **_PLAIN,
            "save_every": 5_000,
            "prioritized_replay": False,
        },
    ),
    "apex-classic": Preset(
        "an earlier trainer, 4 actors",
        {
            "runner": "apex",
            "num_actors": 4,
            "parallel_envs": 1,
            "batch_size": 512,
            "buffer_size": 1_000_000,
            "learning_rate": 0.00025,
            "alpha": 0.6,
            "beta": 0.4,
            "beta_annealing": 0.001,
            "sync_every": 1_000,
            **_PLAIN,
            "save_every": 5_000,
        },
    ),
    # Horgan et al. 2018, section 4.1 and appendix C. 9.7k samples and 12.5k inserts per second. An actor of theirs has
    # one game and pulls weights every 400 frames, which are 100 steps; docs/runners.md tells what differs.
    "apex-paper": Preset(
        "Horgan et al. 2018, 14 actors",
        {
            "runner": "apex",
            "num_actors": 14,
            "parallel_envs": 16,
            "batch_size": 512,
            "buffer_size": 2_000_000,
            "burnin": 50_000,
            "n_step": 3,
            "gamma": 0.99,
            "learning_rate": 5e-4,
            "alpha": 0.6,
            "beta": 0.4,
            "beta_annealing": 0.0,
            "replay_ratio": 0.776,
            "epsilon": 0.4,
            "sync_every": 2_500,
            "pull_every": 1_600,  # 100 steps of each lane
            **_PLAIN,
        },
    ),
}
"""`parallel-classic` and `apex-classic` are the defaults of earlier Mario trainers with those architectures."""


@cache
def presets() -> dict[str, Preset]:
    """All presets by name. Those of a game are how its policies of these names were trained
    (bench/experiments/policies.md)."""
    known = dict(_OF_ALL)
    for game in games():
        known |= {name: preset for name, preset in game_of(game).presets.items() if name not in known}
    return known


def preset(name: str) -> dict[str, Any]:
    """The options of a preset. Raises `UserError` if the name is unknown."""
    if name not in presets():
        raise UserError(f"--preset {must_be_one_of(presets(), name)}")
    return dict(presets()[name].options)


_Condition = tuple[Callable[[RunConfig], bool], str]
"""Whether an option has an effect, and what it needs for one."""
_PRIORITIES: _Condition = (lambda config: config.prioritized_replay, "--prioritized-replay")
_CURRICULUM: _Condition = (lambda config: bool(config.value("curriculum")), "--curriculum")
_EVALUATIONS: _Condition = (lambda config: config.eval_every > 0, "--eval-every above 0")
_LOWER_RATE: _Condition = (
    lambda config: config.learning_rate_schedule != "constant",
    "--learning-rate-schedule plateau or decay",
)
_ADVANTAGE: _Condition = (lambda config: config.advantage_learning > 0, "--advantage-learning above 0")
_MUNCHAUSEN: _Condition = (lambda config: config.munchausen > 0, "--munchausen above 0")
_NEEDS: dict[str, tuple[_Condition, ...]] = {
    "alpha": (_PRIORITIES,),
    "beta": (_PRIORITIES,),
    "beta_annealing": (_PRIORITIES,),
    "curriculum_rate": (_CURRICULUM,),
    "curriculum_episodes": (_CURRICULUM,),
    "curriculum_steps": (_CURRICULUM,),
    "final_gamma": (_LOWER_RATE, _EVALUATIONS),
    "final_advantage_learning": (_LOWER_RATE, _EVALUATIONS, _ADVANTAGE),
    "learning_rate_schedule": (_EVALUATIONS,),
    "munchausen_temperature": (_MUNCHAUSEN,),
    "munchausen_clip": (_MUNCHAUSEN,),
}
_OFF = {"final_gamma": None, "final_advantage_learning": None, "learning_rate_schedule": "constant"}
"""Values with which an option asks for nothing."""


def without_effect(given: Collection[str], config: RunConfig) -> list[str]:
    """A line for each of the given options that has no effect: `--alpha has no effect without --prioritized-replay`."""
    return [
        f"{flag(name)} has no effect without {' and '.join(missing)}"
        for name in given
        if not (name in _OFF and config.value(name) == _OFF[name])
        and (missing := [need for holds, need in _NEEDS.get(name, ()) if not holds(config)])
    ]


def add_arguments(parser: argparse.ArgumentParser, game: str = RunConfig.game, runner: str = RunConfig.runner) -> None:
    """Add a flag for every field. Only flags that were given appear in the parsed namespace.

    The help shows the options and defaults of `game` and `runner`.
    """
    groups: dict[str, Any] = {}
    for spec in {**options_of_all(), **own_options(game)}.values():
        meta = spec.metadata
        if meta["hidden"]:
            continue
        if meta["group"] not in groups:
            groups[meta["group"]] = parser.add_argument_group(meta["group"])
        default = defaults(game, runner).get(spec.name, spec.default)
        default = "none" if default is None else default
        help = meta["help"]
        if isinstance(spec.default, bool):
            default = "on" if default else "off"
        add_option(
            groups[meta["group"]],
            spec,
            f"{help} (default: {default})" if belongs(spec.name, game, runner) else argparse.SUPPRESS,
        )
    for name, (option_name, value) in ALIASES.items():
        groups[COMMON[option_name].metadata["group"]].add_argument(
            flag(name), dest=option_name, action="store_const", const=value, default=argparse.SUPPRESS,
            help=f"earlier name of {flag(option_name)} {value}" if belongs(option_name, game, runner)
            else argparse.SUPPRESS,
        )  # fmt: skip


def add_option(parser: argparse._ActionsContainer, spec: FieldSpec, help: str, *, metavar: str | None = None) -> None:
    """Add the flag of an option, whose value is checked later. It appears in the parsed namespace if it was given."""
    kwargs: dict[str, Any] = {"dest": spec.name, "default": argparse.SUPPRESS, "help": help}
    if isinstance(spec.default, bool):
        kwargs["action"] = argparse.BooleanOptionalAction
    else:
        kwargs["type"] = str if is_text(spec) else read_number
        kwargs["metavar"] = (
            metavar or spec.metadata["metavar"] or "|".join(spec.metadata["choices"] or ()) or _unit(spec)
        )
    parser.add_argument(flag(spec.name), **kwargs)


def as_arguments(options: Mapping[str, Any]) -> list[str]:
    """Values of options as command-line arguments."""
    arguments = []
    for name, value in options.items():
        if isinstance(value, bool):
            arguments.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
        else:
            arguments.append(f"{flag(name)}={value}")
    return arguments


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    """The run options that were given on the command line, by field name."""
    values = {name: value for name, value in vars(namespace).items() if name in options_of_all()}
    return located(with_task(values), Path())


def _unit(spec: FieldSpec) -> str:
    return "N" if is_int(spec) else "X" if "float" in str(spec.type) else "NAME"


def command_line(config: RunConfig, without: Container[str] = ()) -> str:
    """The command that starts a run with these options; `without` some, and without the module of what is played."""
    options, game = options_apart(config), config.game_info
    name = options.pop("game")
    if not game.options.choose_game:
        played = str(options.pop(game.tasks))
        name += f":{played.rpartition(':')[2] if game.tasks in without else played}"
    options = {name: value for name, value in options.items() if name not in without}
    words = ["mario-tui", "--game", name]
    words += [word for argument in as_arguments(options) for word in argument.split("=", 1)]
    return shlex.join(words)


def options_apart(config: RunConfig) -> dict[str, Any]:
    """The options that start a run like this one, by field name, beginning with the game: what differs from the
    defaults, and what an initial policy or other options would decide otherwise."""
    game, options, values = config.game_info, config.options(), config.values()
    hidden = {name for name, spec in own_options(config.game).items() if spec.metadata["hidden"]}
    kinds = {"game": config.game, "runner": config.runner, **{name: values[name] for name in hidden}}
    found = {"game": config.game}
    if not game.options.choose_game:
        found[game.tasks] = kinds[game.tasks] = values[game.tasks]
    defaults = completed(kinds).values
    always = options_with("initial", game.name) if config.initial_policy is not None else ()
    written = {name for name in options if values[name] != defaults[name] or name in always} - kinds.keys()
    followed = completed({**kinds, **{name: options[name] for name in written}}).values
    if config.runner != RunConfig.runner:
        found["runner"] = config.runner
    for name, value in options.items():
        if name not in kinds and (name in written or values[name] != followed[name]):
            found[name] = value
    return found
