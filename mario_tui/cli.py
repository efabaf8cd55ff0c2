"""The command line: finds the command, and turns errors into one line on stderr and an exit status.

An error before a run starts has exit status 2. The commands are the modules of `mario_tui.commands`.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from pathlib import Path

from engine.errors import UserError
from engine.runtime.text import LOOK_ALIKE, did_you_mean, printable, printable_stream
from mario_tui.terminal.output import NO_SPACE, discard_unwritable, nowhere

COMMANDS = {
    "attach": "attach",
    "runs": "runs",
    "stop": "control stop",
    "pause": "control pause",
    "resume-training": "control resume-training",
    "checkpoint": "control checkpoint",
    "wait": "control wait",
    "sweep": "sweep",
    "eval": "evaluate",
    "distill": "distill",
    "play": "play",
    "profile": "profile",
    "export": "export",
    "serve": "serve",
    "completion": "completion",
}
"""The module of each command in `mario_tui.commands`, imported only if it is run, and its first argument if there is
one."""

_OTHER_WORDS = {
    "train": "mario-tui --game mario",
    "start": "mario-tui --game mario",
    "resume": "mario-tui --resume RUN",
    "list": "runs",
    "ls": "runs",
    "evaluate": "eval",
    "test": "eval",
    "watch": "attach",
    "monitor": "attach",
    "kill": "stop",
    "end": "stop",
    "continue": "resume-training",
    "unpause": "resume-training",
    "save": "checkpoint",
}
"""What the words of other programs are called here."""


def main() -> None:
    """Run what the command line says, and exit with its status."""
    sys.stdout, sys.stderr = sys.stdout or nowhere(), sys.stderr or nowhere()  # they are None if they were closed
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # it flushes, and the terminal may be gone
                stream.reconfigure(errors=LOOK_ALIKE)  # not every terminal's encoding has every character
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    # Newer Pythons colour help and tracebacks; `printable_stream` would show those codes as text.
    os.environ["PYTHON_COLORS"] = "0"
    try:
        status = run(sys.argv[1:])
        _flush()
    except UserError as error:
        print(f"mario-tui: error: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # the reader closed the pipe, as in `mario-tui runs | head`
        status = 1
    except RuntimeError as error:
        if "can't start new thread" not in str(error):  # Python has no class for it
            raise
        print(f"mario-tui: error: {error}; `ulimit -u` limits processes and threads", file=sys.stderr)
        status = 1
    except OSError as error:
        if error.filename is None and error.errno not in NO_SPACE:
            raise
        where = error.filename or "can't write the output"  # an error on stdout has no file name
        with contextlib.suppress(OSError):  # stderr may be on the same disk
            print(printable(f"mario-tui: error: {where}: {error.strerror}"), file=sys.stderr)
        status = 2 if error.filename else 1
    discard_unwritable(sys.stdout, sys.stderr)
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status. Without a command, any option but those of home starts a run."""
    folder = ""
    with contextlib.suppress(FileNotFoundError):  # it has been deleted
        folder = str(Path.cwd())
    for text in (*arguments, folder):
        if any("\ud800" <= character <= "\udfff" for character in text):  # bytes that are not UTF-8
            raise UserError(f"arguments and the current folder must be valid UTF-8, got {text!r}")
    if arguments and arguments[0] in COMMANDS:
        module, *first = COMMANDS[arguments[0]].split()
        status: int = importlib.import_module(f"mario_tui.commands.{module}").run([*first, *arguments[1:]])
        return status
    if arguments and not arguments[0].startswith("-"):
        raise UserError(_unknown(arguments[0]))
    from mario_tui.commands import home, train

    _, others = home.home_parser().parse_known_args(arguments)
    return train.run(arguments) if others else home.run(arguments)


def _unknown(command: str) -> str:
    meant = f"; did you mean {_OTHER_WORDS[command]}?" if command in _OTHER_WORDS else did_you_mean(command, COMMANDS)
    return f"unknown command {command!r}{meant or ';'} commands: {', '.join(COMMANDS)} (see: mario-tui --help)"


def _flush() -> None:
    """Flush standard output; what a terminal that hung up does not take is no error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
