"""What several commands share: their parser, common options and checks, and the options of games and policies."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from engine.config import capabilities
from engine.config.capabilities import CommandOption, PlaysThrough
from engine.config.command_line import add_option
from engine.config.fields import ConfigError, coerce, flag, must_be_within, read_number
from engine.config.game import Game, game_of, games, own_options
from engine.config.reading import make_config
from engine.config.run_config import options_of_all
from engine.config.user_code import located
from engine.errors import UserError
from engine.protocol.json_lines import ALWAYS, EVENT_NAMES
from engine.protocol.outcome import Conditions
from engine.runs.run import Annotation, Run, make_annotation, read_annotation
from engine.runtime.files import expanded
from engine.runtime.text import did_you_mean

LONGEST_S = 1e9
"""Of `--timeout`."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError` instead of printing its usage. What it doesn't know, it compares with what it
    does."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, others = self.parse_known_args(args, namespace)
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}{self.meant(others[0].partition('=')[0])}")
        return options

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")

    def meant(self, unknown: str) -> str:
        """`; did you mean --X?` for an unknown argument; empty if it is like none."""
        return did_you_mean(unknown, self._option_string_actions) if unknown.startswith("-") else ""


def add_run_dir(parser: argparse.ArgumentParser, what: str = "runs") -> None:
    parser.add_argument(
        "--run-dir", type=_folder, metavar="DIR", help=f"only {what} in this folder (default: all your {what})"
    )


def add_trust(parser: argparse._ActionsContainer, files: str) -> None:
    parser.add_argument(
        "--trust", action="store_true",
        help=f"import code that only the file of {files} names, for this start; without it, a terminal asks once for "
        "the file's folder",
    )  # fmt: skip


def add_read_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--read-only", action="store_true", help="start, change and delete nothing")


def _folder(text: str) -> str:
    """Path of a folder that exists or can be created. Raises `UserError` if it is a file."""
    folder = expanded(text)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--run-dir must be a folder, got the file {text!r}")
    return str(folder)


def existing(run_dir: str | None) -> str | None:
    """The folder, if it exists. Raises `UserError` if not: a command that starts nothing does not create it."""
    if run_dir is not None and not Path(run_dir).is_dir():
        raise UserError(f"--run-dir must be an existing folder, got {run_dir!r}")
    return run_dir


def whole(flag: str, low: int, high: int | None = None) -> Callable[[str], int]:
    """A function that reads whole numbers from `low` to `high`, and raises `UserError` for anything else."""

    def parse(text: str) -> int:
        value = read_number(text)
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if is_whole and low <= int(value) and (high is None or int(value) <= high):
            return int(value)
        raise UserError(f"{flag} {must_be_within(low, high, text, whole=True)}")

    return parse


def within(flag: str, low: float, high: float) -> Callable[[str], float]:
    """A function that reads numbers from `low` to `high`, and raises `UserError` for anything else."""

    def parse(text: str) -> float:
        value = read_number(text)
        if isinstance(value, str) or not low <= value <= high:
            raise UserError(f"{flag} {must_be_within(low, high, text, whole=False)}")
        return float(value)

    return parse


def chosen(arguments: list[str], option: str, accepted: Collection[str]) -> str:
    """The valid value that the arguments give an option, else its default; found before parsing, for the help. A game
    may have its task behind it (`engine.config.reading.with_task`)."""
    for before, argument in pairwise(["", *arguments]):
        value = argument if before == option else argument.removeprefix(f"{option}=")
        name = value.partition(":")[0]
        if name in accepted:
            return name
    return next(iter(accepted))


def need_terminal(instead: str, what: str = "the dashboard") -> None:
    """Raise `UserError` with the command to use instead, unless there is a terminal or a browser to draw `what` on."""
    if os.environ.get("TEXTUAL_DRIVER", "").startswith("textual.drivers.web_driver"):
        return  # in a browser
    # Textual draws on stderr; a redirected stdout means that nobody is watching.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) or os.environ.get("TERM") == "dumb":
        raise UserError(f"{what} needs a terminal{'; use: ' * bool(instead)}{instead}")
    if not codecs.lookup(sys.stderr.encoding).name.startswith("utf-8"):
        encoding = sys.stderr.encoding
        raise UserError(f"{what} needs UTF-8, the locale has {encoding}; try: LC_ALL=C.UTF-8 mario-tui ...")


def add_log_format(parser: argparse.ArgumentParser, when: str = "") -> None:
    """`--log-format` and `--log-events`; `when`: with which option they are taken."""
    parser.add_argument(
        "--log-format", choices=("rich", "plain", "json"), help=f"{when}(default: rich on a terminal, else plain)"
    )
    parser.add_argument(
        "--log-events", type=_event_names, metavar="NAME,...",
        help=f"with --log-format json: print only these events (default: all): {', '.join(EVENT_NAMES)}; "
        f"{', '.join(ALWAYS)} are always printed",
    )  # fmt: skip


def _event_names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in EVENT_NAMES]:
        raise UserError(f"--log-events must be names among {', '.join(EVENT_NAMES)}, got {unknown[0]!r}")
    return names


def add_annotation(parser: argparse.ArgumentParser, of: str, about: str) -> None:
    """`--tag` and `--note`, which `given_annotation` reads."""
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help=f"tag {of}; may be given several times"
    )
    parser.add_argument("--note", metavar="TEXT", help=f"note {about}")


def given_annotation(options: argparse.Namespace, run: Run | None = None) -> Annotation | None:
    """Return what `--tag` and `--note` write about a run: a resumed `run` keeps its tags, and its note if there is no
    other. None if neither was given."""
    if not options.tag and options.note is None:
        return None
    before = Annotation() if run is None else read_annotation(run)
    try:
        return make_annotation(
            " ".join((*before.tags, *options.tag)), before.note if options.note is None else options.note
        )
    except UserError as error:  # it names the field
        raise UserError(f"--{error}".replace("--tags: ", "--tag: ")) from None


def of_all(declared: Callable[[Game], Mapping[str, CommandOption]]) -> dict[str, CommandOption]:
    """Return what all games have declared, by option. One that several games have is described as in the first of
    them."""
    every: dict[str, CommandOption] = {}
    for name in games():
        every |= {option: how for option, how in declared(game_of(name)).items() if option not in every}
    return every


def played_options() -> dict[str, CommandOption]:
    """Options that `eval` and `play` take besides a policy."""
    return of_all(capabilities.played_options)


def add_game_options(parser: argparse.ArgumentParser, options: Mapping[str, CommandOption]) -> None:
    """Add a flag for each of them. Only those that were given appear in the parsed namespace."""
    for name, how in options.items():
        add_option(parser, options_of_all()[name], how.help, metavar=how.metavar)


def given_options(options: Mapping[str, Any], names: Iterable[str], game: str) -> dict[str, Any]:
    """Return those of the options that have one of these names, which are a game's own; paths of files are absolute.
    Raises `ConfigError`."""
    values = {name: options[name] for name in names if options.get(name) is not None}
    values = located(values, Path())
    make_config({"game": game, **values})  # validates
    return {
        name: str(expanded(value).resolve()) if _is_file(name) else coerce(own_options(game)[name], value)
        for name, value in values.items()
    }


def _is_file(name: str) -> bool:
    return bool(options_of_all()[name].metadata["metavar"] == "FILE")


_CONDITIONS: dict[str, float] = msgspec.structs.asdict(Conditions())
"""The options that make a game harder for its policy, with their defaults."""


def add_policy(parser: argparse.ArgumentParser, nargs: Literal["?", "+"]) -> None:
    parser.add_argument(
        "checkpoint",
        nargs=nargs,
        help="a policy file, a checkpoint folder, a run's name or path, latest, or an included policy (mario-1-1); "
        "of Mario also several, such as mario-1-1,mario-1-2: in the whole game each plays the stages that it was "
        "trained on, the last one all others; stages: those of the package"
        + ("; if omitted, the included policy for --game and --stage" if nargs == "?" else "; several in one table"),
    )
    parser.add_argument(
        "--epsilon", type=within("--epsilon", 0, 1), metavar="E", help="fraction of random actions (default: 0)"
    )
    parser.add_argument(
        "--sticky-actions", type=within("--sticky-actions", 0, 0.99), metavar="X",
        help="probability of repeating the previous action in each frame (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--noop-min", type=whole("--noop-min", 0, 255), metavar="N",
        help="minimum number of random no-op frames at the start (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--noop-max", type=whole("--noop-max", 0, 255), metavar="N",
        help="maximum number of random no-op frames at the start (default: 30, or --noop-min if that is more)",
    )  # fmt: skip
    parser.add_argument(
        "--random-phase", action="store_true", default=None,
        help="begin in a random phase of the game, as in the whole game: counters, random numbers, and where in the "
        "picture a frame ends; not with --emulator nes-py",
    )  # fmt: skip
    parser.add_argument(
        "--halfway-starts", type=within("--halfway-starts", 0, 1), metavar="X",
        help="share of episodes that begin in the middle of the stage; castles and world 8 have none (default: 0)",
    )  # fmt: skip
    parser.add_argument("--seed", type=whole("--seed", 0, 2**32 - 1), metavar="N", help="random seed (default: 0)")
    add_game_options(parser, played_options())
    add_run_dir(parser)


def chosen_policies(spec: str, options: argparse.Namespace) -> tuple[Path, list[str]]:
    """The policy of CHECKPOINT, and others if it is several that take turns: then the last one plays what the others
    don't know, by default in the game's task that leads through all tasks."""
    from engine.runs.lookup import find_policy
    from engine.runs.policies import by_task

    joined = {f"{game.tasks}s": game for game in map(game_of, games()) if isinstance(game, PlaysThrough)}
    names = [spec] if Path(spec).exists() else spec.split(",")
    names = [name for each in names for name in (by_task(joined[each].name) if each in joined else [each])]
    *others, policy = (find_policy(name, existing(options.run_dir)) for name in names)
    if not others:
        return policy, []
    game, of_others = game_of(check_policy(policy, options)), {check_policy(path, options) for path in others}
    if not isinstance(game, PlaysThrough) or of_others != {game.name}:
        accepted = " or ".join(each.name for each in joined.values())
        raise UserError(f"CHECKPOINT: policies that take turns must all be for {accepted}, got {spec!r}")
    if getattr(options, game.tasks, None) is None:
        setattr(options, game.tasks, game.whole_task)
    return policy, [str(path) for path in others]


def for_engine(options: argparse.Namespace, game: str, names: Iterable[str]) -> dict[str, Any]:
    """The conditions, the seed, and those `names` of the game's options that were given, as an order of the engine has
    them. Raises `ConfigError`."""
    given = {name: getattr(options, name) for name in conditions_given(options)}
    usual = _CONDITIONS | {"noop_max": max(_CONDITIONS["noop_max"], given.get("noop_min", 0))}
    conditions = usual | given
    if conditions["noop_min"] > conditions["noop_max"]:
        raise ConfigError(
            "noop_min", f"must be at most --noop-max ({conditions['noop_max']}), got {conditions['noop_min']}"
        )
    own = given_options(vars(options), names, game)
    return {"conditions": Conditions(**conditions), "seed": options.seed or 0, "own": own}


def conditions_given(options: argparse.Namespace) -> list[str]:
    """Names of the conditions (no-ops, phase, halfway starts, epsilon, sticky actions) that are on the command line."""
    return [name for name in _CONDITIONS if getattr(options, name) is not None]


def check_policy(policy: Path, options: argparse.Namespace) -> str:
    """The game of a policy. Raises `UserError` for options and conditions that it does not have."""
    from engine.runs.checkpoints import policy_metadata

    game = game_of(policy_metadata(policy)["game"])
    known = (*capabilities.played_options(game), *capabilities.varied_conditions(game))
    for name in (*played_options(), *_CONDITIONS):
        if name not in known and getattr(options, name, None) is not None:
            raise UserError(f"{flag(name)} can't be combined with a policy for {game.name}")
    return game.name
