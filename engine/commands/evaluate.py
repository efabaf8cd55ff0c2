"""The process behind `mario-tui eval`: plays episodes with a policy, under the conditions that its options say.

`python -m engine.commands.evaluate POLICY ...` writes packed messages to its standard output: an `Episode` for each
episode that ends, then `Evaluated` or `Failed`. It exits when its standard input closes.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine.commands.answers import answered, chosen_policy, take_stdout
from engine.config.games import game_of, import_plugins
from engine.config.tasks import tasks_of
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import lanes_of_policy
from engine.evaluation.episodes import play_episodes
from engine.evaluation.policy import greedy_act, load_policy
from engine.evaluation.statistics import mean_interval, score_of, wilson
from engine.protocol.results import Evaluated, EvaluationReport, Mean
from engine.runs.origin import origin_of
from engine.runtime.parent import end_with_stdin, killed_with_parent
from engine.runtime.threads import thread_budget

MAX_LANES = 256


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="engine.commands.evaluate")
    parser.add_argument("policy", type=Path)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--noop-min", type=int, default=0)
    parser.add_argument("--noop-max", type=int, required=True)
    parser.add_argument("--sticky-actions", type=float, default=0.0)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--processes", type=int, default=1)  # that share the cores, this one included
    options, others = parser.parse_known_args()
    killed_with_parent()
    end_with_stdin()
    send = take_stdout()
    import_plugins()
    return answered(lambda: _evaluate(options, others, send), send)


def _evaluate(options: argparse.Namespace, others: list[str], send: Callable[[EvaluationReport], None]) -> None:
    started = time.monotonic()
    metadata, game, own = chosen_policy(options.policy, others)
    outcome, origin = game.outcome, origin_of(options.policy)
    act, numbers = greedy_act(load_policy(options.policy, own.get("network"))), itertools.count(1)

    def report_episode(episode: EpisodeRecord, env_steps: int) -> None:
        send(episode.message(outcome, env_steps=env_steps, episode=next(numbers), epsilon=options.epsilon))

    by_task: dict[str, list[EpisodeRecord]] = {}
    for part, episodes in _parts(metadata, options.episodes):
        tasks = len(tasks_of(part, own.get(game.tasks)))
        lanes = min(MAX_LANES // tasks * tasks, episodes)  # the lanes take turns at the tasks: equally many for each
        threads = thread_budget(lanes, processes=options.processes)
        torch.set_num_threads(threads.torch_threads)
        env = lanes_of_policy(
            part,
            lanes,
            threads=threads.lane_threads,
            seed=options.seed,
            noop_min=options.noop_min,
            noop_max=options.noop_max,
            sticky=options.sticky_actions,
            restart=episodes > lanes,
            **own,
        )
        for episode in play_episodes(
            env, act, episodes, epsilon=options.epsilon, seed=options.seed, on_episode=report_episode
        ):
            by_task.setdefault(env.task_of(episode.lane), []).append(episode)
    by_task = dict(sorted(by_task.items(), key=lambda item: (len(item[0]), item[0])))  # 5x5 before 10x10
    played = [episode for group in by_task.values() for episode in group]
    clears = sum(episode.success for episode in played)
    low, high = wilson(clears, len(played))
    mean, mean_low, mean_high = mean_interval([episode.episode_return for episode in played])
    trained = game.trained_conditions(metadata)
    conditions = {
        name: getattr(options, name) if name in game.conditions else trained.get(name)
        for name in ("noop_min", "noop_max", "sticky_actions")
    }
    send(
        Evaluated(
            policy=str(options.policy),
            name=origin.name,
            kind=origin.kind,
            run=origin.run,
            trained_on=origin.trained_on,
            trained_env_steps=origin.env_steps,
            trained_updates=origin.updates,
            game=metadata["game"],
            outcome=outcome,
            stage=own.get("stage") or metadata.get("stage", ""),
            emulator=own.get("emulator") or metadata.get("emulator", ""),
            episodes=len(played),
            epsilon=options.epsilon,
            noop_min=conditions["noop_min"],
            noop_max=conditions["noop_max"],
            sticky_actions=conditions["sticky_actions"],
            seed=options.seed,
            clears=clears,
            clear_rate=clears / len(played),
            clear_rate_low=low,
            clear_rate_high=high,
            mean_return=mean,
            mean_return_low=mean_low,
            mean_return_high=mean_high,
            mean_length=statistics.fmean(episode.length for episode in played),
            results={
                result.name: Mean(*mean_interval([episode.results[index] for episode in played]))
                for index, result in enumerate(outcome.results)
            },
            seconds=time.monotonic() - started,
            tasks=[score_of(task, outcome, group) for task, group in by_task.items()] if len(by_task) > 1 else [],
        )
    )


def _parts(metadata: dict[str, Any], episodes: int) -> list[tuple[dict[str, Any], int]]:
    """The metadata and the number of episodes for each part of a policy whose parts were learned apart."""
    game = game_of(metadata["game"])
    values = game.learned_apart(metadata[game.tasks])
    each, more = divmod(episodes, len(values))
    parts = [({**metadata, game.tasks: value}, each + (number < more)) for number, value in enumerate(values)]
    return [part for part in parts if part[1]]


if __name__ == "__main__":
    sys.exit(main())
