"""`mario-tui completion`: the script with which a shell completes commands, options, their values, and runs.

Options and their values are written into the script, so they are there at once. Only for names of runs it starts
`mario-tui runs --names`.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from string import Template

from engine.config.command_line import presets
from engine.config.game import games
from engine.config.run_config import RunConfig, options_of_all
from engine.config.runners import RUNNERS
from engine.runs import policies
from mario_tui.commands import train
from mario_tui.commands.options import Parser
from mario_tui.features import Command, commands, package_commands

SHELLS = ("bash", "zsh", "fish")

_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/mario-tui",
    "zsh": "_mario-tui in a folder of $fpath",
    "fish": "~/.config/fish/completions/mario-tui.fish",
}
_CHOICES = {
    "preset": tuple(presets()),
    **{
        name: tuple(spec.metadata["choices"] or spec.metadata["usual"] or ()) for name, spec in options_of_all().items()
    },
}
"""Values of options, by the name of the option."""
_FILES = (
    *("config", "initial_policy", "into", "output", "plan", "record", "report_file", "trace"),
    *(name for name, spec in options_of_all().items() if spec.metadata["metavar"] == "FILE"),
)
_FOLDERS = ("run_dir",)

# Names are compared and never expanded: a folder may be called `$(anything)`.
_NAMES = {
    "bash": """\
_mario_tui_${what}_or_files() {
  local name found=
  while IFS= read -r name; do
    [[ $$name == "$$1"* ]] && found=1 && printf '%s\\n' "$$name"
  done < <(printf '%s\\n' ${words}; ${program} runs --names 2>/dev/null)
  [[ -n $$found ]] || compgen -f -- "$$1"
}
""",
    "zsh": """\
_mario_tui_${what}() {
  compadd -- ${words} $${(f)"$$(${program} runs --names 2>/dev/null)"} || _files
}
""",
    "fish": """\
function _mario_tui_${what}
  printf '%s\\t \\n' ${words}
  ${program} runs --names 2>/dev/null | string replace -r '$$' \\trun
  string match -q '*/*' -- (commandline -ct); and __fish_complete_path (commandline -ct)
end
""",
}
"""Functions of the shells that print names of runs, and files if there are none or a path is being typed."""


def completion_parser() -> argparse.ArgumentParser:
    places = "\n".join(f"  {shell}: {place}" for shell, place in _PLACES.items())
    parser = Parser(
        prog="mario-tui completion",
        description="Print the script for a shell's completion.",
        epilog=f'Write it to:\n{places}\nFor the running shell only: eval "$(mario-tui completion bash)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def run(arguments: list[str]) -> int:
    options = completion_parser().parse_args(arguments)
    import shtab

    print(shtab.complete(_whole_command_line(), options.shell))
    return 0


def _whole_command_line() -> argparse.ArgumentParser:
    """One parser with all commands, each action with what completes its values."""
    whole = _for_all_games(train.training_parser)
    parsers = whole.add_subparsers()
    for name, command in commands().items():
        parser = _parser_of(name, command)
        summary = (parser.description or "").split(". ")[0].rstrip(".")
        _complete(parsers.add_parser(name, parents=[parser], add_help=False, description=summary, help=summary))
    for name, plugin in package_commands().items():  # which are not imported, so their options are unknown
        summary = f"of package {plugin.package}"
        parsers.add_parser(name, add_help=False, description=summary, help=summary)
    _complete(whole)
    return whole


def _parser_of(name: str, command: Command) -> argparse.ArgumentParser:
    make = getattr(importlib.import_module(command.module), command.parser)
    if command.of_runs:
        return _for_all_games(make)
    parser: argparse.ArgumentParser = make(name) if command.is_shared else make()
    return parser


def _for_all_games(make: Callable[[str, str], argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """A parser of run options that shows those of every game and runner."""
    parser = make(RunConfig.game, RunConfig.runner)
    for game, runner in product(games(), RUNNERS):
        for action, other in zip(parser._actions, make(game, runner)._actions, strict=True):
            if action.help == argparse.SUPPRESS:
                action.help = other.help
    return parser


def _complete(parser: argparse.ArgumentParser) -> None:
    import shtab

    included = [card.name for card in policies.cards()]
    completers = (
        {"run": _names("runs", ["latest"]), "resume": _names("runs", ["latest"])}
        | {"checkpoint": _names("policies", ["latest", *included])}
        | dict.fromkeys(_FILES, shtab.FILE)
        | dict.fromkeys(_FOLDERS, shtab.DIRECTORY)
    )
    for action in parser._actions:
        if further := getattr(action, "also_completed", None):
            vars(action)["complete"] = _names("teachers", ["latest", *included, *further])
        elif action.dest in completers:
            vars(action)["complete"] = completers[action.dest]
        elif action.choices is None and action.nargs != 0:
            action.choices = _CHOICES.get(action.dest)


def _names(what: str, words: list[str]) -> dict[str, object]:
    """Return what completes with `words` and the names of runs, in the form that shtab reads."""
    program = "mario-tui" if shutil.which("mario-tui") else shlex.quote(str(Path(sys.argv[0]).resolve()))
    values = {"what": what, "words": shlex.join(words), "program": program}
    functions = {shell: Template(text).substitute(values) for shell, text in _NAMES.items()}
    return {
        "bash": f"_mario_tui_{what}_or_files",  # shtab treats it as files because of its name
        "zsh": f"_mario_tui_{what}",
        "fish": f"(_mario_tui_{what})",
        "preamble": functions,
    }
