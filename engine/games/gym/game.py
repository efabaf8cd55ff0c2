"""Gymnasium environments: what their options mean for a run. Imports neither Gymnasium nor the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from engine.config.capabilities import CommandOption, PersonKeys
from engine.config.features import feature
from engine.config.fields import ConfigError, must_be_one_of
from engine.config.game import Game, Preset, Spec
from engine.config.run_config import RunConfig
from engine.config.user_code import Question, answer
from engine.games.gym.options import FALLBACK_STEPS, MOST_WORKERS, GymOptions, View, evaluation_limit, view_of
from engine.games.gym.spaces import CARTPOLE, ask, asked_of, keys_of, label, parsed, speed_of
from engine.protocol.outcome import Conditions, Goal, Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config.reading import Following
    from engine.envs.lanes import Lanes
    from engine.envs.played_game import PersonControls, PlayedGame

_OF_IMAGES = {
    "network": "auto",
    "gamma": 0.99,
    "n_step": 1,
    "batch_size": 128,
    "replay_ratio": 8.0,
    "learning_rate": 1e-4,
    "epsilon": 0.3,
    "epsilon_steps": 100_000,
    "random_hold": 1,
    "eval_every": 50_000,
}
"""Defaults for images, whose updates cost more. In a million frames of MinAtar's Asterix and Seaquest, three-step
returns learn less than one-step returns, and a rate of 5e-4 a third or less of what 1e-4 learns
(bench/experiments/further-figures.md)."""
_ATARI = {
    **_OF_IMAGES,
    "game": "gym",
    "env": "ALE/Pong-v5",
    "runner": "single",
    "env_args": '{"frameskip": 1, "obs_type": "grayscale", "repeat_action_probability": 0.0}',
    "frame_skip": 4,
    "max_of_two": True,
    "sticky_actions": 0.25,
    "noop_max": 30,
    "max_episode_steps": 108_000,
    "reward": "sign",
}
"""From Machado et al. 2018: sticky actions, no end at the loss of a life. 30 minutes of 60 frames per second."""

_BURNIN_S = 120.0
"""Seconds that a slow environment may play, by its measured speed, before a run learns, unless that would be fewer
steps than `_LEAST_BURNIN`."""
_LEAST_BURNIN = 250


class Gym(Game):
    """See `engine.config.game` and `engine.config.capabilities`."""

    name = "gym"
    options = GymOptions
    tasks = "env"
    networks = ("mlp", "mlp-128", "grid", "minatar", "nature", "small", "impala", "impala-wide")
    played_options = {
        name: CommandOption(
            f"of a policy from elsewhere that names {what} of somebody's own: {what} that you trust",
            "MODULE:CLASS" if name == "network" else None,
        )
        for name, what in {
            "env": "an environment", "env_args": "arguments", "env_import": "a function", "network": "a network",
        }.items()
    } | {
        "step_timeout": CommandOption("seconds that one call of an environment may take (default: 60)"),
        "env_workers": CommandOption("what steps lanes: none (the process itself), threads, or so many processes"),
    }  # fmt: skip
    person_options = {name: how for name, how in played_options.items() if name != "network"}
    other_keys = ""
    lanes = "engine.games.gym.lanes:of_run"
    presets = {
        # The defaults' 8 samples per step are those of Mnih et al. 2015. docs/environments.md tells what differs.
        "atari": Preset(
            "this agent on Atari, with sticky actions",
            {
                **_ATARI,
                "steps": 10_000_000,
                "parallel_envs": 8,
                "n_step": 3,
                "buffer_size": 200_000,
                "burnin": 20_000,
                "learning_rate": 2.5e-4,
                "epsilon": 0.1,
                "eval_every": 250_000,
                "eval_episodes": 8,
            },
        ),
        # Clark et al. 2024, arXiv:2411.03820, tables D4 and D6; beta as in their code. docs/recipe.md tells what
        # differs.
        "btr": Preset(
            "Beyond the Rainbow, Clark et al. 2024, for a GPU",
            {
                **_ATARI,
                "network": "impala-wide",
                "quantiles": 32,
                "noisy": True,
                "munchausen": 0.9,
                "munchausen_temperature": 0.03,
                "munchausen_clip": 1.0,
                "double_q": False,
                "steps": 50_000_000,  # 200M frames
                "parallel_envs": 64,
                "batch_size": 256,
                "replay_ratio": 4.0,  # a batch for each step of all lanes
                "n_step": 3,
                "gamma": 0.997,
                "buffer_size": 2**20,
                "burnin": 200_000,
                "alpha": 0.2,
                "beta": 0.2,
                "beta_annealing": 0.0,
                "learning_rate": 1e-4,
                "learning_rate_schedule": "constant",
                "sync_every": 500,
                "tau": 1.0,
                "policy_tau": 0.0,
                "epsilon": 0.01,
                "epsilon_steps": 2_000_000,  # 8M frames
                "eval_every": 250_000,
                "eval_episodes": 100,
            },
        ),
        # Young and Tian 2019, arXiv:1903.03176, and examples/dqn.py in github.com/kenjyoung/MinAtar.
        "minatar-paper": Preset(
            "the DQN of Young and Tian 2019",
            {
                "game": "gym",
                "env": "MinAtar/Breakout-v0",  # all six actions; sticky by itself, with a probability of 0.1
                "network": "minatar",
                "runner": "single",
                "parallel_envs": 1,
                "steps": 5_000_000,
                "batch_size": 32,
                "replay_ratio": 32.0,
                "buffer_size": 100_000,
                "burnin": 5_000,
                "optimizer": "rmsprop",
                "learning_rate": 2.5e-4,
                "learning_rate_schedule": "constant",
                "gamma": 0.99,
                "n_step": 1,
                "double_q": False,
                "advantage_learning": 0.0,
                "sync_every": 1_000,
                "tau": 1.0,
                "policy_tau": 0.0,
                "amp": False,
                "prioritized_replay": False,
                "epsilon": 0.1,
                "random_hold": 1,
                "epsilon_steps": 105_000,  # theirs falls over 100,000 frames, after the 5,000 before learning
                "eval_every": 100_000,
            },
        ),
    }

    def defaults(self) -> Mapping[str, Any]:
        return {  # gamma, epsilon and random_hold: bench/experiments/exploration-of-vectors.md
            "network": "mlp-128",
            "gamma": 0.995,
            "n_step": 3,
            "batch_size": 64,
            "replay_ratio": 32.0,
            "learning_rate": 1e-3,
            "learning_rate_schedule": "constant",
            "tau": 0.005,
            "policy_tau": 0.005,
            "parallel_envs": 16,
            "burnin": 2_000,
            "epsilon": 0.4,
            "epsilon_steps": 20_000,
            "random_hold": 32,
            "eval_every": 10_000,
            "eval_episodes": 16,
            "steps": 1_000_000,
        }

    def follow(self, following: Following) -> None:
        """Ask the environment for its spaces, unless the run has them."""
        if following.values["max_of_two"]:
            following.at_least("frame_skip", 4, "max_of_two")  # Mnih et al. 2015
        values, asked = following.values, asked_of(following.values)
        if parsed(values["spaces"]).asked != asked and "spaces" not in following.given:  # given ones `check` refuses
            question = Question("env", asked[0], ask, (asked, values["step_timeout"]))
            told, measured = (CARTPOLE, "{}") if asked == parsed(CARTPOLE).asked else answer(question)
            following.set("spaces", told)
            following.set("env_speed", measured)
        spaces = parsed(values["spaces"])
        if not (spaces.step_limit or values["max_episode_steps"]):
            most = evaluation_limit(GymOptions(spaces=values["spaces"]))
            following.notes.append(
                f"{label(asked[0])} has no time limit: episodes end after {FALLBACK_STEPS:,} steps, in evaluations "
                f"after {most:,}; --max-episode-steps sets another limit"
            )
        if spaces.kind == "image":
            for name, value in _OF_IMAGES.items():
                following.set(name, value, "env")
        if spaces.masked:  # an action that was legal may not stay so
            following.set("random_hold", 1, "env")
        speed = speed_of(values["env_speed"])
        step_s = speed.step_s / (values["parallel_envs"] if speed.threads else 1)
        burnin = values["burnin"]
        while burnin * step_s > _BURNIN_S and burnin > _LEAST_BURNIN:
            burnin = max(burnin // 2, _LEAST_BURNIN)
        following.set("burnin", burnin, "env")

    def check(self, config: RunConfig) -> None:
        options = GymOptions.of(config)
        spaces = parsed(options.spaces)
        if spaces.asked != asked_of(config.values()):
            raise ConfigError("spaces", "must be those of its environment")
        view = view_of(options)
        speed_of(options.env_speed)
        workers = options.env_workers
        if workers not in ("auto", "none", "threads") and not (
            workers.isdecimal() and 1 <= int(workers) <= MOST_WORKERS
        ):
            raise ConfigError(
                "env_workers", f"must be auto, none, threads or a number from 1 to {MOST_WORKERS}, got {workers!r}"
            )
        if options.frame_skip > 1 and spaces.frame_skip > 1:
            raise ConfigError(
                "max_of_two" if options.max_of_two else "frame_skip",
                f"""needs --env-args '{{"frameskip": 1}}': {options.env} skips {spaces.frame_skip} frames itself""",
            )
        if options.sticky_actions and spaces.sticky_actions:
            raise ConfigError(
                "sticky_actions",
                f"must be 0, because {options.env} repeats actions itself (with a probability of "
                f"{spaces.sticky_actions:g}, which --env-args can change), got {options.sticky_actions:g}",
            )
        if spaces.masked:  # an action that is repeated, or not chosen at all, may not be legal
            if options.max_of_two:
                raise ConfigError("max_of_two", f"must be off, because {options.env} masks actions")
            for name, off in (("frame_skip", 1), ("sticky_actions", 0), ("noop_max", 0), ("random_hold", 1)):
                if (given := getattr(options, name)) != off:
                    raise ConfigError(name, f"must be {off}, because {options.env} masks actions, got {given:g}")
        if options.max_of_two and options.frame_skip == 1:
            raise ConfigError("max_of_two", "needs --frame-skip 2 or more")
        if options.normalize and spaces.kind == "image" and not spaces.numbers:
            raise ConfigError("normalize", f"must be off for {options.env}, whose observations have no vectors")
        fitting = _fitting(view)
        if options.network not in ("auto", *fitting) and ":" not in options.network:
            raise ConfigError("network", must_be_one_of(("auto", *fitting, "MODULE:CLASS"), options.network))

    def spec(self, config: RunConfig) -> Spec:
        options = GymOptions.of(config)
        spaces, view = parsed(options.spaces), view_of(options)
        return Spec(
            view.frame_shape,
            len(spaces.actions),
            view.stack,
            hold=options.random_hold,
            hold_power=2,  # Dabney et al. 2020
            masked=spaces.masked,
            frame_dtype=view.dtype,
            normalized=options.normalize and not spaces.mean,
            numbers=spaces.numbers,
        )

    def action_names(self, config: RunConfig) -> list[str]:
        return list(parsed(GymOptions.of(config).spaces).actions)

    def network(self, config: RunConfig) -> str:
        options = GymOptions.of(config)
        return _fitting(view_of(options))[0] if options.network == "auto" else options.network

    def outcome_of(self, config: RunConfig) -> Outcome:
        spaces = parsed(GymOptions.of(config).spaces)
        return Outcome(goal=Goal("success", "success")) if spaces.succeeds else self.outcome

    def solved_at(self, config: RunConfig) -> float | None:
        return parsed(GymOptions.of(config).spaces).threshold

    def task_label(self, value: str) -> str:
        return label(value)

    def starts_slowly(self, config: RunConfig) -> bool:
        return True

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        from engine.config.reading import config_of_policy
        from engine.games.gym.lanes import of_run

        known = _with_chosen_code(metadata, others)
        own = {name: known[name] for name in ("step_timeout", "env_workers") if name in known}
        return of_run(config_of_policy(known).changed(**own), lanes, threads=threads, seed=seed, evaluation=True)

    def trained_conditions(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        sticky = metadata["sticky_actions"] or parsed(metadata["spaces"]).sticky_actions
        return {"noop_min": 0, "noop_max": metadata["noop_max"], "sticky_actions": sticky}

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame:
        known = _with_chosen_code(metadata, others)
        return feature("players", "playing a game")("gym").of_policy(policy, known, conditions)

    def keys_of_person(self, config: RunConfig) -> PersonKeys:
        options = GymOptions.of(config)
        return keys_of(options.env, parsed(options.spaces)).person

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        return feature("players", "playing a game")("gym").of_person(self, controls, **others)


def _with_chosen_code(metadata: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a policy with the code that was chosen instead: the same in another place."""
    known = {**metadata, **{name: chosen[name] for name in Gym.played_options if chosen.get(name) is not None}}
    spaces = msgspec.structs.replace(parsed(metadata["spaces"]), asked=asked_of(known))
    return {**known, "spaces": spaces.text()}


def _fitting(view: View) -> tuple[str, ...]:
    """Networks that fit frames of this view, the default first."""
    if len(view.frame_shape) == 1:
        return ("mlp", "mlp-128")
    side = min(view.frame_shape[-2] - view.number_rows, view.frame_shape[-1])
    if side >= 36:
        return ("nature", "small", "impala", "impala-wide")
    of_any_size = ("impala", "impala-wide")
    return ("grid", *of_any_size) if side < 3 or view.number_rows else ("grid", "minatar", *of_any_size)
