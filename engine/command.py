"""A configuration as the command line that gives it."""

from __future__ import annotations

import shlex

from engine.config import RunConfig, flag, make_config


def command_line(config: RunConfig) -> str:
    """The command that starts a run like this one: what differs from the defaults of its game and runner."""
    words = ["mario-tui", "--game", config.game]
    if config.runner != RunConfig.runner:
        words += ["--runner", config.runner]
    defaults = make_config({"game": config.game, "runner": config.runner}).options()
    for name, value in config.options().items():
        if value == defaults.get(name):
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else flag(name).replace("--", "--no-", 1))
        else:
            words += [flag(name), str(value)]
    return shlex.join(words)
