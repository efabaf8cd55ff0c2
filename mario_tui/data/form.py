"""A new run being filled in: what was typed, which options there are, what is wrong with them. Knows no widgets.

Generated from the fields of `RunConfig`, and read as the command line reads them, so that form, flags and files accept
the same values and complain in the same words.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from engine.config.command_line import add_arguments, given
from engine.config.fields import FieldSpec
from engine.config.presets import PRESETS
from engine.config.run_config import AUTO, ConfigError, RunConfig, carried_over, defaults, flag, make_config
from engine.monitoring.memory_budget import available_bytes, estimate_bytes
from mario_tui.data.format import gibibytes

SPECS: dict[str, FieldSpec] = {spec.name: spec for spec in fields(RunConfig)}
PRESET = "preset"
_NO_PRESET = "none"
_PRESET_ROW: Any = dataclasses.field(
    default=_NO_PRESET,
    metadata={
        "group": "run",
        "help": "other defaults: those of earlier programs or of a paper; what you fill in counts",
        "choices": (_NO_PRESET, *PRESETS),
        "low": None,
        "high": None,
    },
)
ROWS: dict[str, FieldSpec] = {PRESET: _PRESET_ROW, **SPECS}
"""All that a form shows: the configuration's fields, and what lies under them."""
_DECIDE = ("game", "runner")
"""Options that decide which others there are."""


class Form:
    """What a person has typed, by field; what is not there has its default. `base`: options of the run `resume`, to go
    on from."""

    def __init__(self, base: Mapping[str, Any] | None = None, resume: str = "") -> None:
        self._base, self._resume = base, resume
        self._texts: dict[str, str] = {}
        self._parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
        add_arguments(self._parser)

    def set(self, name: str, text: str) -> None:
        """Fill in a field; an empty text or the default's is as if nothing had been said."""
        if text.strip() and text.strip() != self.default(name):
            self._texts[name] = text.strip()
        else:
            self._texts.pop(name, None)

    def reset(self) -> None:
        self._texts.clear()

    def text(self, name: str) -> str:
        """What a field holds: what was typed, else its default."""
        return self._texts.get(name, self.default(name))

    def typed(self, name: str) -> str:
        """What was typed; empty if nothing was."""
        return self._texts.get(name, "")

    @property
    def preset(self) -> str | None:
        """The preset's name, if one was chosen."""
        return self._texts.get(PRESET)

    def default(self, name: str) -> str:
        """A field's default for preset, game and runner, as one would type it."""
        if name == PRESET:
            return _NO_PRESET
        below = self._complete({})
        if name in below or self._base is not None:
            value = below.get(name, SPECS[name].default)
        else:
            deciders = (below.get(decider, SPECS[decider].default) for decider in _DECIDE)
            game, runner = (self._texts.get(name, str(value)) for name, value in zip(_DECIDE, deciders, strict=True))
            value = defaults(game, runner).get(name, SPECS[name].default)
        if value is None:
            return ""
        if isinstance(value, bool):
            return "on" if value else "off"
        return "auto" if name == "batch_size" and value in (AUTO, "auto") else str(value)

    def offered(self, name: str) -> bool:
        """Whether an option belongs to the game and the runner that are chosen."""
        meta = ROWS[name].metadata
        return all(
            self.text(decider) in meta[key]
            for decider, key in (("game", "games"), ("runner", "runners"))
            if meta.get(key)
        )

    def groups(self) -> list[str]:
        """Groups that have an option to offer, in the order of the fields."""
        return list(dict.fromkeys(str(SPECS[name].metadata["group"]) for name in SPECS if self.offered(name)))

    def arguments(self) -> list[str]:
        """What was typed and is offered, as on a command line."""
        names = [name for name in SPECS if name in self._texts and self.offered(name)]
        return [*([f"--preset={self.preset}"] if self.preset else []), *(self._argument(name) for name in names)]

    def values(self) -> dict[str, Any]:
        """What was typed and is offered, by field, as the command line would read it."""
        return given(self._parser.parse_args([word for word in self.arguments() if not word.startswith("--preset=")]))

    def command(self) -> str:
        if self._resume:
            return shlex.join(["mario-tui", f"--resume={self._resume}", *self.arguments()])
        return shlex.join(["mario-tui", *(self.arguments() or [f"--game={self.text('game')}"])])

    def config(self) -> RunConfig:
        """What would be started. Raises `ConfigError`."""
        return make_config(self._complete(self.values()))

    def errors(self) -> dict[str, str]:
        """What is wrong, by field, as `engine.config` words it: with each value, then with all together."""
        values = self.values()
        wrong: dict[str, str] = {}
        deciders = {name: values[name] for name in _DECIDE if name in values}
        for name, value in values.items():
            try:
                make_config(self._complete({**deciders, name: value}))
            except ConfigError as error:
                if error.field == name:
                    wrong[name] = error.reason
        good = {name: value for name, value in values.items() if name not in wrong}
        try:
            make_config(self._complete(good))
        except ConfigError as error:
            wrong.setdefault(error.field, error.reason)
        return wrong

    def memory(self) -> str:
        """About what the run will take, in a line."""
        try:
            config = self.config()
        except ConfigError:
            return "memory: –"
        total, replay = estimate_bytes(config)
        free = available_bytes()
        parts = (
            f"memory: about {gibibytes(total)} GiB, {gibibytes(replay)} of it replay; {gibibytes(free)} GiB are free"
        )
        if config.use_mmap_buffer:
            return f"{parts}; the replay is in a file"
        return f"{parts}: TOO MUCH" if total > free else parts

    def _complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        said = {**(PRESETS[self.preset] if self.preset else {}), **values}
        if self._base is None:
            return said
        game, runner = (said.get(name, self._base[name]) for name in _DECIDE)
        return {**carried_over(self._base, game, runner), **said}

    def _argument(self, name: str) -> str:
        text = self._texts[name]
        if isinstance(SPECS[name].default, bool):
            return flag(name) if text == "on" else flag(name).replace("--", "--no-", 1)
        return f"{flag(name)}={text}"


def accepted(name: str) -> str:
    """What a field accepts, in a few words; empty where its help says it."""
    spec = ROWS[name]
    low, high = spec.metadata["low"], spec.metadata["high"]
    if isinstance(spec.default, bool) or low is None:
        return ""
    if name == "batch_size":
        return f"auto, or 1 to {high:,}"
    return f"{low:,} to {high:,}" if high is not None else f"{low:,} or more"
