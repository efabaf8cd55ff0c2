"""Code that options name as `MODULE:NAME`, such as an environment or a network of one's own, and questions about it.

To import it is to run it. Only processes that play or learn do so, and only what the user has typed, or what a run of
the user's own or a file in a folder that the user trusts names; see `engine.runs.marks`. To ask another process takes
seconds: who must not wait that long, such as a form, gets `Unanswered`, and has the question asked in a thread.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from engine.config.fields import ConfigError
from engine.config.game import games, options_with, own_options
from engine.errors import UserError
from engine.runtime.processes import start_keeper
from engine.runtime.text import install_command, parsing_module, place_of, printable, shortened

_EXTRAS = {"minatar": "minatar", "ale_py": "atari", "box2d": "box2d", "pygame": "pygame"}
"""The extras of mario-tui that bring known packages."""
_MOST = 300
"""Most characters of an error of the user's code."""


def named_code(values: Mapping[str, Any]) -> dict[str, str]:
    """Return those of a run's options, or of a policy's metadata, that name code, or are arguments of an environment,
    which may name code in turn."""
    names = options_with("import", values["game"])
    return {name: str(values[name]) for name in names if ":" in str(values.get(name, ""))}


def code_of_file(values: Mapping[str, Any]) -> dict[str, str]:
    """Return those of the options in a file that name code, whichever game they are for. Arguments of an environment do
    so only if there is text among them: mostly there is none, and the user would be asked for nothing."""
    found = {name: str(values[name]) for name in _importing() if ":" in str(values.get(name, ""))}
    arguments = {name for name, default in _importing().items() if _is_of_numbers(default)}
    return {name: value for name, value in found.items() if not (name in arguments and _is_of_numbers(value))}


def _is_of_numbers(text: str) -> bool:
    """Return whether this is a JSON object without text."""
    try:
        msgspec.json.decode(text, type=dict[str, bool | int | float | None])
    except (ValueError, RecursionError):
        return False
    return True


def _importing() -> dict[str, str]:
    """The options of all games that name code, or are arguments of an environment, and their defaults."""
    return {name: str(own_options(game)[name].default) for game in games() for name in options_with("import", game)}


def located(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The values, with modules that are files in `folder` as absolute paths: so they are found from anywhere."""
    found = dict(values)
    for name in _importing():
        module, colon, rest = str(values.get(name, "")).rpartition(":")
        path = folder / (module if module.endswith(".py") else f"{module}.py")
        if colon and module and os.path.isfile(path):  # noqa: PTH113  # False for names that are too long, too
            found[name] = f"{path.resolve()}:{rest}"
    return found


def check_code_files(values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for the first option of a run that names a file of code which is not on this machine."""
    for name, named in named_code(values).items():
        _check_file(named.rpartition(":")[0], name)


def _check_file(module: str, field: str) -> None:
    if module.startswith("/") and module.endswith(".py") and not os.path.isfile(module):  # noqa: PTH113  # as above
        raise ConfigError(field, f"there is no file {module} on {socket.gethostname()}")


def import_named(named: str, field: str) -> Any:
    """Return what `MODULE:NAME` names; the module may be the path of a file. Raises `ConfigError` about the option
    `field`."""
    module, _, name = named.rpartition(":")
    if not module:
        raise ConfigError(field, f"must be MODULE:NAME, got {named!r}")
    try:
        return getattr(import_module(module, field), name)
    except AttributeError:
        raise ConfigError(field, f"{module} has no {name}") from None


def import_module(module: str, field: str) -> ModuleType:
    """Import a module by its name, or a file by its path. The file's folder comes last among those of modules: what is
    beside it can be imported, but hides nothing. Raises `ConfigError` about the option `field`."""
    _check_file(module, field)
    start_keeper()
    try:
        return _of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise ConfigError(
            field, with_extra(f"needs the module {missing}, which is not installed{place_of(error)}", missing)
        ) from None
    except (Exception, SystemExit) as error:
        raise ConfigError(field, f"{module} can't be imported: {described_error(error)}") from None


def _of_file(path: Path) -> ModuleType:
    if (known := sys.modules.get(path.stem)) is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise ImportError(f"there is another module {path.stem}; rename the file")
    if _place_of_module(path.stem) not in (None, os.path.realpath(path)):
        raise ImportError(f"there is another module {path.stem}; rename the file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def _place_of_module(name: str) -> str | None:
    """The file of a module, or what Python says of one without a file; None if there is none of that name, or only a
    folder, which hides nothing."""
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        return None if spec is None or spec.origin is None else os.path.realpath(spec.origin)
    return None


def described_error(error: BaseException) -> str:
    """An error in a line: what it says and, unless that is written for the user, its type and the last line of the
    user's own code in its traceback: `ValueError: no such level (my_env.py:12)`."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, SystemExit) and (module := parsing_module(error)):
        return f"the module {module} reads the command line (argparse), which is this program's{place_of(error)}"
    return f"{type(error).__name__}: {shortened(in_a_line(str(error)), _MOST)}{place_of(error)}"


def with_extra(text: str, package: str = "") -> str:
    """A line about a package that is missing, with the extra that brings it."""
    extra = next((extra for name, extra in _EXTRAS.items() if name in (package or text).lower()), None)
    return f"{in_a_line(text)}; install it with: {install_command(extra)}" if extra else in_a_line(text)


def in_a_line(text: str) -> str:
    return printable(" ".join(text.split()))


@dataclass(frozen=True)
class Question:
    """`ask(asked)` waits for the answer. Raises `ConfigError` if there is none."""

    field: str
    """The option that it is about."""
    about: str
    """The option's value, or what else there is to name."""
    ask: Callable[[Any], Any]
    asked: Hashable


class Unanswered(ConfigError):
    """An option can't be judged yet."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.field, "is not known yet")
        self.question = question


Answers = Mapping[Question, Any]
"""Answers, or the `ConfigError` of those that have none."""
_answers: ContextVar[Answers | None] = ContextVar("answers", default=None)
_asking: ContextVar[Asking | None] = ContextVar("asking", default=None)


@contextlib.contextmanager
def only_known(answers: Answers) -> Iterator[None]:
    """In the block nobody waits: questions that are not among these raise `Unanswered`."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


def answer(question: Question) -> Any:
    """The answer to a question. Raises `ConfigError`."""
    answers = _answers.get()
    if answers is None:
        return question.ask(question.asked)
    if question not in answers:
        raise Unanswered(question)
    if isinstance(found := answers[question], ConfigError):
        raise ConfigError(found.field, found.reason)
    return found


class Asking:
    """A question that is asked in a thread."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.is_abandoned = False
        self._stop: Callable[[], object] | None = None

    def run(self) -> Any:
        """Wait for the answer, or the `ConfigError` in its place."""
        token = _asking.set(self)
        try:
            return self.question.ask(self.question.asked)
        except ConfigError as error:
            return error
        finally:
            _asking.reset(token)

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
        self.is_abandoned = True
        if self._stop is not None:
            self._stop()

    def stops_by(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        if self.is_abandoned:  # in the meantime
            stop()


def stops_by(stop: Callable[[], object]) -> None:
    """Name what ends the process that is being asked, once its answer is not wanted any more."""
    if (asking := _asking.get()) is not None:
        asking.stops_by(stop)
