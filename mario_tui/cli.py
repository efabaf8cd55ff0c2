"""The command line: finds the command, and turns errors into one line on stderr and an exit status.

An error before a run starts has exit status 2. Commands are those of `mario_tui.features` and of installed packages.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from operator import attrgetter
from pathlib import Path

from engine.config.entry_points import Plugin, refusal
from engine.errors import NO_THREAD, UserError
from engine.runtime.text import LOOK_ALIKE, did_you_mean, printable, printable_stream
from mario_tui.features import COMMANDS, commands, missing_extra, package_commands
from mario_tui.terminal.output import NO_SPACE, discard_unwritable, nowhere

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
    "mv": "rename",
    "rm": "delete",
    "remove": "delete",
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
    except ModuleNotFoundError as error:
        if (missing := missing_extra(error)) is None:
            raise
        print(f"mario-tui: error: this needs {missing}, which is not installed", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # the reader closed the pipe, as in `mario-tui runs | head`
        status = 1
    except RuntimeError as error:
        if NO_THREAD not in str(error):
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
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if arguments and (command := COMMANDS.get(arguments[0])):
        module = importlib.import_module(command.module)
        status: int = module.run(arguments if command.is_shared else arguments[1:])
        return status
    if arguments and not arguments[0].startswith("-"):
        packages = package_commands()
        if arguments[0] in packages:
            return _of_package(packages[arguments[0]], arguments[1:])
        raise UserError(_unknown(arguments[0], [*commands(), *packages]))
    from mario_tui.commands import attach, train

    _, others = attach.home_parser().parse_known_args(arguments)
    return train.run(arguments) if others else attach.run_home(arguments)


def _of_package(plugin: Plugin, arguments: list[str]) -> int:
    """Run the command of a package. Raises `UserError` if it can't be imported or returns no exit status."""
    module, _, name = plugin.place.partition(":")
    try:
        function = attrgetter(name)(importlib.import_module(module))
    except Exception as error:  # whatever the package's code raises
        raise UserError(refusal(plugin, f"{type(error).__name__}: {error}", "command")) from None
    if not callable(function):
        raise UserError(refusal(plugin, f"{plugin.place} must be a function", "command"))
    status = function(arguments)
    if not isinstance(status, int):
        raise UserError(refusal(plugin, f"{plugin.place} must return an exit status, got {status!r}", "command"))
    return status


def _unknown(command: str, known: list[str]) -> str:
    meant = f"; did you mean {_OTHER_WORDS[command]}?" if command in _OTHER_WORDS else did_you_mean(command, known)
    return f"unknown command {command!r}{meant or ';'} commands: {', '.join(known)} (see: mario-tui --help)"


def _flush() -> None:
    """Flush standard output; what a terminal that hung up does not take is no error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
