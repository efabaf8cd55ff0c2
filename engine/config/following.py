"""Defaults that make room for the options that were given.

An option that was given never fails because of another one's default: each rule below moves a default, and by no more
than it must. What given options contradict among themselves stays as it is, and `engine.config.constraints` refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from engine.config.constraints import SLOWEST_TARGET, SPARE_STEPS
from engine.config.fields import AUTO, NONE, flag
from engine.config.games import game_of
from engine.config.run_config import specs_of
from engine.config.runners import RUNNERS

_HARD_COPY_EVERY = 1_000
"""Updates between copies with a given `--tau 1`: DQN trainers of one machine use 500 to 2,500."""


class Following:
    """The `values` of all options, of which those that were not `given` follow the others.

    `usual`: the defaults of the game and runner. `because_of`: the given options that game and runner have followed.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        given: Collection[str],
        usual: Mapping[str, Any],
        because_of: Mapping[str, list[str]],
    ) -> None:
        self._before, self.values = {**values, **{kind: usual[kind] for kind in because_of}}, dict(values)
        self.given, self._usual = given, usual
        self._causes = dict(because_of)
        self._make_room()
        self._follow_target()
        game_of(self.values["game"]).follow(self)

    def lines(self) -> list[str]:
        """What has followed, a line for each option: `--tau follows --sync-every 1,000: 1 instead of 0.004`."""
        specs = specs_of(self.values["game"])
        return [
            f"{flag(name)} follows {' and '.join(map(self._as_given, causes))}: {shown(self.values[name])} instead of "
            f"{shown(self._before[name])}"
            for name, causes in self._causes.items()
            if self.values[name] != self._before[name] and not specs[name].metadata["hidden"]
        ]

    # ------------------------------------------------------------------------------------------ the rules

    def _make_room(self) -> None:
        """The replay holds the windows of all lanes, the burn-in and a batch; a batch is split into parts."""
        of = self.values
        runner = RUNNERS[of["runner"]]
        members = runner.count or ""
        per_lane = of["n_step"] + SPARE_STEPS
        sharing = ("parallel_envs", members, "n_step", "buffer_size")
        self.at_least("buffer_size", self._members(members) * of["parallel_envs"] * per_lane, *sharing)
        self.at_most("parallel_envs", of["buffer_size"] // per_lane // self._members(members), *sharing)
        if members:
            self.at_most(members, of["buffer_size"] // per_lane // of["parallel_envs"], *sharing)
        lanes = self._members(members) * of["parallel_envs"]
        self.at_most("n_step", of["buffer_size"] // lanes - SPARE_STEPS, *sharing)

        self.at_least("buffer_size", of["burnin"], "burnin")
        self.at_most("burnin", of["buffer_size"], "buffer_size")

        if of["batch_size"] == AUTO:
            return
        self.at_least("batch_size", of["accumulate"], "accumulate")
        replays = "" if runner.learner else members  # actors share one
        self.at_least("buffer_size", of["batch_size"] * self._members(replays), "batch_size", replays)
        self.at_most("batch_size", max(1, of["buffer_size"] // self._members(replays)), "buffer_size", replays)
        if replays:
            self.at_most(replays, of["buffer_size"] // of["batch_size"], "buffer_size", "batch_size")
        self.at_most("accumulate", of["batch_size"], "batch_size")

    def _follow_target(self) -> None:
        """An interval between updates of the target network means hard copies, and hard copies need one. The discount
        factor of the targets is not lowered later."""
        tau, sync_every = self.values["tau"], self.values["sync_every"]
        if "sync_every" in self.given and sync_every > 1:
            self.set("tau", 1.0, "sync_every")
        elif tau == 1 and sync_every == 1:
            if "tau" in self.given:
                self.set("sync_every", _HARD_COPY_EVERY, "tau")
            else:  # of a run that is resumed
                self.set("tau", self._usual["tau"], "sync_every")
        elif tau < 1 and sync_every > SLOWEST_TARGET * tau:
            self.set("sync_every", self._usual["sync_every"], "tau")
        final_gamma = self.values["final_gamma"]
        if final_gamma is not None and self.values["gamma"] > final_gamma:  # a game's own raises it
            self.set("final_gamma", None, "gamma")

    # ------------------------------------------------------------------------------------------ how an option moves

    def _members(self, name: str) -> int:
        """The value of `num_actors` or `num_processes`; 1 without a name."""
        return int(self.values[name]) if name else 1

    def at_least(self, name: str, least: int, *because_of: str) -> None:
        if self.values[name] < least:
            high = specs_of(self.values["game"])[name].metadata["high"]
            self.set(name, least if high is None else min(least, high), *because_of)

    def at_most(self, name: str, most: int, *because_of: str) -> None:
        if self.values[name] > most:
            self.set(name, max(most, specs_of(self.values["game"])[name].metadata["low"]), *because_of)

    def set(self, name: str, value: Any, *because_of: str) -> None:
        if name in self.given or self.values[name] == value:
            return
        self.values[name] = value
        causes = self._causes.setdefault(name, [])
        causes += [
            each
            for each in because_of
            if each != name and each not in causes and (each in self.given or each in self._causes)
        ]

    def _as_given(self, name: str) -> str:
        value = self.values[name]
        return flag(name) if value is True else f"{flag(name)} {shown(value)}"


def shown(value: Any) -> str:
    """A value as a line of the log shows it."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
