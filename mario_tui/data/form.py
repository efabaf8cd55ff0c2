"""The state of the new-run form: typed values, available options and errors. Contains no widgets.

It is generated from the fields of `RunConfig` and parsed like the command line, so that form, flags and files accept
the same values and report the same errors.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from engine.config.command_line import add_arguments, as_arguments, given, presets
from engine.config.fields import AUTO, ConfigError, FieldSpec, flag, option, read_number, shown
from engine.config.game import game_of, own_options
from engine.config.reading import as_given, carried_over, make_config
from engine.config.run_config import RunConfig, belongs, options_of_all, specs_of
from engine.config.user_code import Question, Unanswered, only_known
from engine.monitoring.memory_budget import available_bytes, estimate_bytes
from engine.runs.lookup import options_of_policy
from engine.runs.registry import name_error
from engine.runtime.files import expanded
from engine.runtime.text import printable
from mario_tui.data.format import gibibytes

PRESET = "preset"
NAME = "name"
NO_PRESET = "none"
_OWN_NAME = "its game and the time"
"""Stands for the name of a run that was given none."""
_SELECTORS = ("game", "runner")
"""Options that determine which other options are available."""


@cache
def rows() -> Mapping[str, FieldSpec]:
    """All rows of a form: the preset, the run's name and the configuration's fields. Packages with games are looked for
    now, not when the program starts."""
    return {
        PRESET: option(NO_PRESET, "preset", "start from a known setup", choices=(NO_PRESET, *presets())),
        NAME: option(None, "run", "name of the new run"),
        **options_of_all(),
    }


class Form:
    """Typed values by field; other fields have their defaults. To resume the run `resume`, `base` has its options."""

    def __init__(self, base: Mapping[str, Any] | None = None, resume: str = "") -> None:
        self._base, self._resume = base, resume
        self._given_before = {} if base is None else as_given(base)
        self._texts: dict[str, str] = {}
        self._known: dict[tuple[str | None, str], RunConfig] = {}
        """Configurations without a typed option, for its default; until another one is typed."""
        self._is_guessed = False
        """Whether one of them is that of game and runner alone because a question is open."""
        self._answers: dict[Question, Any] = {}
        self.question: Question | None = None
        """What has to be asked before `errors`, which sets it, can tell all; see `answered`."""

    def set(self, name: str, text: str) -> None:
        """Set a field; empty text or the default clears it, once that is known."""
        follows = name in options_of_all() and name not in _SELECTORS
        is_default = text.strip() == self.default(name) and not (self._is_guessed and follows)
        if text.strip() and not is_default:
            self._texts[name] = text.strip()
        else:
            self._texts.pop(name, None)
        self._forget()

    def reset(self) -> None:
        self._texts.clear()
        self._forget()

    def answered(self, question: Question, answer: Any) -> None:
        """Take the answer to a question, or its `ConfigError`."""
        self._answers[question] = answer
        self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._is_guessed = False

    def text(self, name: str) -> str:
        """The value of a field: the typed text, else its default."""
        return self._texts.get(name, self.default(name))

    def typed(self, name: str) -> str:
        """The typed text; empty if there is none."""
        return self._texts.get(name, "")

    @property
    def preset(self) -> str | None:
        """The preset's name, if one was chosen."""
        return self._texts.get(PRESET)

    @property
    def name(self) -> str | None:
        """The run's name, if one was typed."""
        return self._texts.get(NAME)

    def default(self, name: str) -> str:
        """A field's default for the preset, game and runner, as it would be typed."""
        if name == PRESET:
            return NO_PRESET
        return "" if name == NAME else self._default(name, self.preset)

    def _default(self, name: str, preset: str | None) -> str:
        if name in _SELECTORS:  # which decide what is parsed
            below: dict[str, Any] = {**(self._base or {}), **(presets()[preset].options if preset else {})}
            return str(below.get(name, options_of_all()[name].default))
        if preset and name in presets()[preset].options:
            return text_of_value(presets()[preset].options[name])
        config = self._without(name, preset)
        value = config.value(name) if name in specs_of(config.game) else self.spec(name).default
        return "auto" if name == "batch_size" and value == AUTO else text_of_value(value)

    def _without(self, name: str, preset: str | None) -> RunConfig:
        """The configuration if an option were not typed: defaults follow the other options. As long as those are wrong
        or not known, it is that of the game and runner alone."""
        selected = {each: self.text(each) for each in _SELECTORS}
        key = (preset, name if name in self._texts else "")
        if key not in self._known:
            values = {each: value for each, value in self.values().items() if each != name}
            for each, of in ((values, preset), (selected, preset), (selected, None), ({}, None)):
                try:
                    self._known[key] = self._config(each, of)
                    break
                except ConfigError as error:
                    self._is_guessed = self._is_guessed or isinstance(error, Unanswered)
        return self._known[key]

    def default_shown(self, name: str) -> str:
        """The default as the help tells it."""
        return self.default(name) or (_OWN_NAME if name == NAME else "none")

    def help(self, name: str) -> str:
        """A field's help for the game, as in `--help`."""
        return str(self.spec(name).metadata["help"]).replace("%%", "%")

    def spec(self, name: str) -> FieldSpec:
        """Return what describes a field: the selected game's own option, if it has one of that name."""
        return own_options(self.text("game")).get(name, rows()[name])

    def choices(self, name: str) -> tuple[str, ...]:
        """The values of a field that has only some; empty for others."""
        spec = self.spec(name)
        return ("on", "off") if isinstance(spec.default, bool) else tuple(spec.metadata["choices"] or ())

    def accepted(self, name: str) -> str:
        """The accepted range of a field; empty if it has none."""
        spec = self.spec(name)
        low, high = spec.metadata["low"], spec.metadata["high"]
        if isinstance(spec.default, bool) or low is None:
            return ""
        if name == "batch_size":
            return f"auto, or 1 to {high:,}"
        return f"{shown(low)} to {shown(high)}" if high is not None else f"at least {shown(low)}"

    def presets(self) -> dict[str, str]:
        """Return what each preset is, and what it trains for how long, in a line."""
        helps = {name: preset.help for name, preset in presets().items()}
        none = "the defaults" if self._base is None else "the run's own options"
        return {name: f"{help} · {self._trains(name)}" for name, help in {NO_PRESET: none, **helps}.items()}

    def _trains(self, preset: str) -> str:
        """`mario 1-1, 2,000 episodes` with the preset. Defaults are those of the game alone: those that follow an
        environment would take a process, which makes it."""
        below = {**(self._base or {}), **({} if preset == NO_PRESET else presets()[preset].options)}
        game = self._texts.get("game") or self._default("game", None if preset == NO_PRESET else preset)
        alone = make_config({"game": game})

        def value(name: str) -> str:
            return self._texts.get(name) or text_of_value(below[name] if name in below else alone.value(name))

        what = f"{game} {value(game_of(game).tasks)}"
        unit = "episodes" if value("episodes") else "steps"
        return f"{what}, {_grouped(value(unit))} {unit}"

    def preset_sets(self) -> str:
        """The options that the chosen preset sets."""
        options = {} if self.preset is None else presets()[self.preset].options
        words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        return ", ".join(f"{flag(name)} {word}" for name, word in words.items())

    def offered(self, name: str) -> bool:
        """Return whether a field applies to the selected game and runner."""
        if name == NAME:
            return self._base is None
        return name not in options_of_all() or belongs(name, self.text("game"), self.text("runner"))

    def groups(self) -> list[str]:
        """Groups with at least one available field, in the order of the fields."""
        return list(dict.fromkeys(str(spec.metadata["group"]) for name, spec in rows().items() if self.offered(name)))

    def arguments(self) -> list[str]:
        """Typed values of available fields, as command-line arguments."""
        return [f"--{name}={self._texts[name]}" for name in (PRESET, NAME) if name in self._texts] + self._options()

    def values(self) -> dict[str, Any]:
        """Typed values of available options, by field, parsed as on the command line."""
        return given(_parser(self.text("game")).parse_args(self._options()))

    def command(self) -> str:
        """The command that starts the same run."""
        if self._resume:
            return shlex.join(["mario-tui", f"--resume={self._resume}", *self.arguments()])
        return shlex.join(["mario-tui", *(self.arguments() or [f"--game={self.text('game')}"])])

    def config(self) -> RunConfig:
        """The configuration of the run. Raises `ConfigError`."""
        return self._config(self.values(), self.preset)

    def errors(self) -> dict[str, str]:
        """Reasons of `ConfigError` by field: of each value alone, then of the valid ones together; and of the name."""
        values = self.values()
        errors: dict[str, str] = {}
        if self.name is not None and (reason := name_error(self.name, expanded(self.text("run_dir")))):
            errors[NAME] = reason
        selected = {name: values[name] for name in _SELECTORS if name in values}
        for name, value in values.items():
            try:
                self._config({**selected, name: value}, self.preset)
            except Unanswered:  # it is asked with the others
                pass
            except ConfigError as error:
                if error.field == name:
                    errors[name] = error.reason
        valid = {name: value for name, value in values.items() if name not in errors}
        self.question = None
        try:
            self._config(valid, self.preset)
        except Unanswered as error:
            self.question = error.question
        except ConfigError as error:
            errors.setdefault(error.field, error.reason)
        return errors

    def memory(self) -> str:
        """Estimated memory of the run and free memory, in one line; or what that waits for."""
        if self.question is not None:
            return f"loading {printable(self.question.about)} …"
        try:
            config = self.config()
        except ConfigError:
            return "memory: –"
        total, replay = estimate_bytes(config)
        free = available_bytes()
        parts = f"memory: about {gibibytes(total)} GiB ({gibibytes(replay)} GiB replay); {gibibytes(free)} GiB free"
        if config.replay_in_files:
            return f"{parts}; replay in a file"
        return f"{parts}: TOO MUCH" if total > free else parts

    def _config(self, values: Mapping[str, Any], preset: str | None) -> RunConfig:
        chosen = {**(presets()[preset].options if preset else {}), **values}
        with only_known(self._answers):
            if self._base is None:
                return make_config(chosen, defaults=options_of_policy(chosen))
            game, runner = (chosen.get(name, self._base[name]) for name in _SELECTORS)
            given = carried_over(self._given_before, game, runner)
            return make_config({**given, **chosen}, defaults=carried_over(self._base, game, runner))

    def _options(self) -> list[str]:
        """Typed values of available options, as command-line arguments."""
        typed = {name: self._texts[name] for name in options_of_all() if name in self._texts and self.offered(name)}
        flags = {name: text == "on" for name, text in typed.items() if isinstance(self.spec(name).default, bool)}
        return as_arguments({**typed, **flags})


def text_of_value(value: Any) -> str:
    """The value of an option as it is typed into a field."""
    if value is None:
        return ""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


@cache
def _parser(game: str) -> argparse.ArgumentParser:
    """Parses typed values as the command line does for a game."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    add_arguments(parser, game)
    return parser


def _grouped(text: str) -> str:
    """A whole number with separators of thousands; other text as it is."""
    number = read_number(text)
    return text if isinstance(number, str) else f"{number:,.0f}"
