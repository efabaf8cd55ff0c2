"""Makes Gymnasium environments from options. This imports the code that the options name."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import gymnasium
from gymnasium import error

from engine.config.fields import ConfigError
from engine.config.user_code import described_error, import_module, import_named, in_a_line, with_extra
from engine.runtime.text import did_you_mean
from engine.runtime.users_code import place_of

_REGISTERING = {"MinAtar": "minatar.gym:register_envs", "ALE": "ale_py:"}
"""What registers the ids of known namespaces; without a function, the import does."""


def make_environment(env: str, env_args: str, env_import: str, **others: Any) -> gymnasium.Env[Any, Any]:
    """An environment as Gymnasium makes it, without its own checks, which look at two steps only. Raises `ConfigError`
    that says which option is wrong."""
    module, _, id = env.rpartition(":")
    namespace = id.rpartition("/")[0]
    if env_import != "none":
        _register(env_import, "env_import")
    elif namespace in _REGISTERING and not module:
        _register(_REGISTERING[namespace], "env")
    if module:
        import_module(module, "env")
    arguments = {**_arguments(env_args), **others}
    try:
        return gymnasium.make(id, disable_env_checker=True, **arguments)
    except error.DependencyNotInstalled as failure:
        raise ConfigError("env", f"{id}: {with_extra(str(failure))}") from None
    except (error.NameNotFound, error.VersionNotFound, error.DeprecatedEnv):
        raise ConfigError("env", f"Environment {id} doesn't exist{did_you_mean(id, gymnasium.registry)}") from None
    except error.Error as failure:  # with Gymnasium's advice
        raise ConfigError("env", in_a_line(str(failure))) from None
    except (Exception, SystemExit) as failure:
        raised = (isinstance(failure, TypeError) and failure.__cause__) or failure  # which Gymnasium raises again
        if isinstance(raised, TypeError) and not place_of(raised) and _arguments(env_args):
            raise ConfigError("env_args", f"{id} does not take them: {in_a_line(str(raised))}") from None
        raise ConfigError("env", f"{id} can't be made: {described_error(raised)}") from None


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise ConfigError("env_args", f"must be a JSON object, got {text!r} ({error})") from None
    if not isinstance(given, dict):
        raise ConfigError("env_args", f"must be a JSON object, got {text!r}")
    return given


@cache  # what is registered twice warns
def _register(named: str, field: str) -> None:
    module, _, function = named.rpartition(":")
    if not function:
        import_module(module, field)
        return
    registers = import_named(named, field)
    try:
        registers()
    except (Exception, SystemExit) as failure:
        raise ConfigError(field, f"{named} fails: {described_error(failure)}") from None
