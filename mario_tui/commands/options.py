"""What several commands share: their parser, common options, and checks."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from engine.config.fields import must_be_within, read_number
from engine.errors import UserError
from engine.runs.annotation import Annotation, make_annotation, read_annotation
from engine.runs.run import Run
from engine.runtime.text import did_you_mean
from mario_tui.launch import expanded


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


def add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=_folder, metavar="DIR", help="only runs in this folder (default: all your runs)"
    )


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


def add_annotation(parser: argparse.ArgumentParser, of: str, about: str) -> None:
    """`--tag` and `--note`, which `given_annotation` reads."""
    parser.add_argument(
        "--tag", action="append", default=[], metavar="TAG", help=f"tag {of}; may be given several times"
    )
    parser.add_argument("--note", metavar="TEXT", help=f"note {about}")


def given_annotation(options: argparse.Namespace, run: Run | None = None) -> Annotation | None:
    """What `--tag` and `--note` write about a run: a resumed `run` keeps its tags, and its note if there is no other.
    None if neither was given."""
    if not options.tag and options.note is None:
        return None
    before = Annotation() if run is None else read_annotation(run)
    try:
        return make_annotation(
            " ".join((*before.tags, *options.tag)), before.note if options.note is None else options.note
        )
    except UserError as error:  # it names the field
        raise UserError(f"--{error}".replace("--tags: ", "--tag: ")) from None
