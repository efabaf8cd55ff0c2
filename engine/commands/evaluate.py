"""The process behind `mario-tui eval`: plays episodes with a policy, under the conditions that its options say.

`python -m engine.commands.evaluate ORDER` writes packed messages to its standard output: an `Episode` for each
episode that ends, then `Evaluated` or `Failed`. It exits when its standard input closes.
"""

from __future__ import annotations

import itertools
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import torch

from engine.commands.answers import answered, chosen_policy, order_of, send_warnings, take_stdout
from engine.config.capabilities import FRESH_SEED, NO_FRESH, fresh_episodes, learned_apart, varied_conditions
from engine.config.features import feature
from engine.config.game import game_of
from engine.config.reading import config_of_policy, tasks_of
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import lanes_of_policy
from engine.envs.played_game import PlayedGame
from engine.errors import UserError
from engine.evaluation.policy import greedy_act, load_policy, mean_interval, play_episodes, score_of, wilson
from engine.protocol.messages import Mean
from engine.protocol.outcome import Conditions
from engine.protocol.results import Evaluated, EvaluationOrder, EvaluationReport
from engine.runs.checkpoints import POLICY_FILE
from engine.runs.lookup import Origin, origin_of
from engine.runs.marks import run_folder
from engine.runs.run import CONFIG_FILE, read_config
from engine.runtime.processes import disregard, end_with_stdin, killed_with_parent, take_children
from engine.runtime.stored_arrays import seed_global_random
from engine.runtime.threads import CLOSE_S, call_within, thread_budget

MAX_LANES = 256


@runtime_checkable
class PlaysAsTrained(Protocol):
    """A game whose policies are always played under conditions of their training."""

    def trained_conditions(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those fields of `Conditions` for a policy with this metadata."""


def main() -> int:
    """See the module's docstring."""
    order = order_of(EvaluationOrder)
    disregard(signal.SIGINT)  # Ctrl-C is for the front end, which closes standard input
    killed_with_parent()
    end_with_stdin()
    send = take_stdout()
    send_warnings(send)
    take_children(marked=True)
    return answered(lambda: _evaluate(order, send), send)


def _evaluate(options: EvaluationOrder, send: Callable[[EvaluationReport], None]) -> None:
    started, policy, own = time.monotonic(), Path(options.policy), options.own
    metadata, game = chosen_policy(policy, own)
    outcome, origin = config_of_policy(metadata).outcome, origin_of(policy)
    if options.fresh:
        options = _afresh(options, policy, metadata)
    seed_global_random(options.seed)
    act, numbers = greedy_act(load_policy(policy, own.get("network"))), itertools.count(1)

    def report_episode(episode: EpisodeRecord, env_steps: int) -> None:
        send(episode.message(outcome, env_steps=env_steps, episode=next(numbers), epsilon=options.conditions.epsilon))

    by_task: dict[str, list[EpisodeRecord]] = {}
    if options.others:
        shown = feature("players", "more than one CHECKPOINT")("stepped_game").game_to_show(options, policy, metadata)
        by_task[""] = list(_one_after_another(shown, options.episodes, options.seed, report_episode))
        origin = Origin(options.called, "file", None, "", None, None)
    for part, episodes in () if options.others else _parts(metadata, options.episodes):
        tasks = len(tasks_of(part, own.get(game.tasks)))
        lanes = min(MAX_LANES // tasks * tasks, episodes)  # the lanes take turns at the tasks: equally many for each
        threads = thread_budget(lanes, processes=options.processes)
        torch.set_num_threads(threads.torch_threads)
        env = lanes_of_policy(
            part,
            lanes,
            threads=threads.lane_threads,
            seed=options.seed,
            conditions=options.conditions,
            restart=episodes > lanes,
            **own,
        )
        if options.fresh:
            env.spread_starts()
        for episode in play_episodes(
            env, act, episodes, epsilon=options.conditions.epsilon, seed=options.seed, on_episode=report_episode
        ):
            by_task.setdefault(env.task_of(episode.lane), []).append(episode)
        call_within(CLOSE_S, env.close)
    by_task = dict(sorted(by_task.items(), key=lambda item: (len(item[0]), item[0])))  # 5x5 before 10x10
    played = [episode for group in by_task.values() for episode in group]
    clears = sum(episode.success for episode in played)
    low, high = wilson(clears, len(played))
    mean, mean_low, mean_high = mean_interval([episode.episode_return for episode in played])
    trained = game.trained_conditions(metadata) if isinstance(game, PlaysAsTrained) else {}
    varied = varied_conditions(game)
    played_under: dict[str, Any] = {
        name: value if name in (*varied, "epsilon") else trained.get(name)
        for name, value in msgspec.structs.asdict(options.conditions).items()
    }
    send(
        Evaluated(
            policy=options.policy,
            name=origin.name,
            kind=origin.kind,
            run=origin.run,
            trained_on=origin.trained_on,
            trained_env_steps=origin.env_steps,
            trained_updates=origin.updates,
            game=metadata["game"],
            outcome=outcome,
            fresh=options.fresh,
            stage=own.get("stage") or metadata.get("stage", ""),
            emulator=own.get("emulator") or metadata.get("emulator", ""),
            episodes=len(played),
            **played_under,
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


def _one_after_another(
    game: PlayedGame, episodes: int, seed: int, on_episode: Callable[[EpisodeRecord, int], None]
) -> Iterator[EpisodeRecord]:
    """Play episodes of a game; each has another seed."""
    torch.set_num_threads(1)
    steps = 0
    for number in range(episodes):
        game.begin(number + 1, (seed + number) % 2**32, None)
        while (episode := game.tick()) is None:
            pass
        steps += episode.length
        on_episode(episode, steps)
        yield episode
    game.close()


def _afresh(order: EvaluationOrder, policy: Path, metadata: dict[str, Any]) -> EvaluationOrder:
    """The order with the conditions and the seed of a run's final evaluation, and at most as many episodes as differ.
    Raises `UserError` if there are none, or if nobody knows with which starts the policy was trained."""
    game, conditions, episodes = game_of(metadata["game"]), Conditions(noop_max=0), order.episodes
    is_checkpoint = policy.name == POLICY_FILE  # which has the options of its time
    folder = policy.parent if is_checkpoint else run_folder(policy)
    if folder is not None:
        if (fresh := fresh_episodes(read_config(folder / CONFIG_FILE))) is None:
            raise UserError(f"--fresh: {NO_FRESH}")
        conditions = fresh.config.eval_conditions
        episodes = episodes if fresh.most is None else min(episodes, fresh.most)
    elif "noop_max" in varied_conditions(game):
        raise UserError(
            "--fresh: the run of this policy is not here, which alone knows the starts that it trained with"
        )
    return msgspec.structs.replace(order, episodes=episodes, seed=FRESH_SEED, conditions=conditions)


def _parts(metadata: dict[str, Any], episodes: int) -> list[tuple[dict[str, Any], int]]:
    """The metadata and the number of episodes for each part of a policy whose parts were learned apart."""
    game = game_of(metadata["game"])
    values = learned_apart(game, metadata[game.tasks])
    each, more = divmod(episodes, len(values))
    parts = [({**metadata, game.tasks: value}, each + (number < more)) for number, value in enumerate(values)]
    return [part for part in parts if part[1]]


if __name__ == "__main__":
    sys.exit(main())
