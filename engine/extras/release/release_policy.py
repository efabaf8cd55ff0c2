"""Adds a policy and its card to those that come with the package: the best one of a run, or a distilled one.

    python -m engine.commands.release_policy RUN
    python -m engine.commands.release_policy DISTILLED.safetensors --name NAME

The weights are stored as float16 unless the policy plays worse with them. `--judge` plays policies again whose games
have several conditions, and rewrites their cards; `--judge-new` only under conditions that a card does not have yet.
`--table` only prints the tables of `bench/experiments/policies.md`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import psutil
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from engine import __version__
from engine.config.capabilities import HasStages
from engine.config.command_line import command_line
from engine.config.features import feature
from engine.config.game import Game, game_of, games
from engine.config.run_config import RunConfig
from engine.envs.episode import mean_results
from engine.envs.factory import lanes_of_policy
from engine.errors import UserError
from engine.evaluation.policy import greedy_act, load_policy, play_episodes, wilson
from engine.protocol.messages import Hello
from engine.protocol.outcome import Conditions
from engine.protocol.results import FinalResult
from engine.runs import policies
from engine.runs.checkpoints import policy_metadata
from engine.runs.lookup import find_policy
from engine.runs.policies import Card, Rate, cards
from engine.runs.recording import read_recording
from engine.runs.run import Run
from engine.runtime.threads import available_cores, thread_budget

EPISODES = 100
_STARTS = 2
"""Columns of the table of tasks: the first of the conditions, which differ in the starts alone."""


@runtime_checkable
class Judged(Protocol):
    """A game whose policies that come with the package are judged under several conditions."""

    judged: Mapping[str, tuple[str, Conditions]]
    """Emulator (empty: none) and conditions, by the column of their table."""
    held_out: str
    """The column of starts that no run trains on or is chosen by: it leads the table."""

    def judged_for(self, task: str) -> Mapping[str, tuple[str, Conditions]]:
        """Return the columns for a policy of a task, which may lack some and have other conditions."""


def judged(game: Game, task: str = "") -> Mapping[str, tuple[str, Conditions]]:
    """Return the emulators and conditions under which a game's policies for a task are judged, by column."""
    if not isinstance(game, Judged):
        return {"": ("", Conditions(noop_max=0))}
    return game.judged_for(task) if task else game.judged


def episodes_on_card(game: Game, emulator: str, task: str) -> int:
    """Episodes on a card: 100 for each task under the first of the game's emulators; 100 in all on others, which are
    slow."""
    first, _ = next(iter(judged(game).values()))
    return EPISODES * (len(game.tasks_of(task)) if isinstance(game, HasStages) and emulator == first else 1)


def leaderboard(where: Path | None = None) -> str:
    """Markdown tables of all policies in a folder (default: the package's): how they play and, in the last
    one, how they were trained."""
    known = cards(where)
    tables = [
        table
        for name in games()
        if (own := [card for card in known if card.game == name])
        for table in (_clear_tables(game_of(name), own) if game_of(name).outcome.judged_by == "goal" else ())
    ]
    scored = [card for card in known if game_of(card.game).outcome.judged_by != "goal"]
    tables += [
        _table(
            ["policy", f"mean score of {EPISODES} greedy games", "goals reached"],
            [[card.name, f"{card.rates[0].mean_score:.1f}", _goals(card)] for card in scored],
        ),
        _table(["policy", "trained with", "steps, minutes"], [[c.name, f"`{c.command}`", _effort(c)] for c in known]),
    ]
    return "\n\n".join(table for table in tables if table)


def _clear_tables(game: Game, of_game: Sequence[Card]) -> tuple[str, str]:
    """The clear rates of a game's policies, and those of the tasks of policies for several. The first conditions on a
    card are those under which training chooses its best policy by default; each other column differs from them in one
    or two, and the one that is held out leads."""
    columns = judged(game)
    starts = list(columns)[:_STARTS]
    if isinstance(game, Judged):
        columns = {game.held_out: columns[game.held_out], **columns}
    return (
        _table(
            ["policy", *columns],
            [
                [card.name, *(_clears(card, judged(game, card.stage).get(column)) for column in columns)]
                for card in of_game
            ],
        ),
        _table(
            [f"policy for several {game.tasks}s", game.tasks, *starts],
            [row for card in of_game for row in _by_task(card, [columns[column] for column in starts])],
        ),
    )


def _effort(card: Card) -> str:
    """`0.60M, 8`: environment steps and minutes; with another digit if there are few."""
    steps = f"{card.env_steps / 1e6:.{2 if card.env_steps >= 10_000 else 3}f}M"
    return f"{steps}, {card.minutes:.{0 if card.minutes >= 2 else 1}f}"


def _clears(card: Card, under: tuple[str, Conditions] | None) -> str:
    """`97 (92–99)`: percentage of clears and its 95 % interval."""
    rate = None if under is None else rate_of(card, *under)
    if rate is None:
        return "–"
    percent, low, high = (100 * each for each in (rate.clears / rate.episodes, *wilson(rate.clears, rate.episodes)))
    return f"{percent:.0f} ({low:.0f}–{high:.0f})"


def _by_task(card: Card, columns: Sequence[tuple[str, Conditions]]) -> list[list[str]]:
    """Rows for the tasks of a policy for several: percentages of clears."""
    rates = [rate_of(card, *each) for each in columns]
    known = [rate for rate in rates if rate is not None and rate.clears_by_stage]
    return [
        [
            card.name,
            stage,
            *(f"{100 * len(r.clears_by_stage) * r.clears_by_stage[stage] / r.episodes:.0f}" for r in known),
        ]
        for stage in (known[0].clears_by_stage if known else ())
    ]


def _goals(card: Card) -> str:
    return "–" if game_of(card.game).outcome.goal is None else str(card.rates[0].clears)


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, the first column of names of policies; empty without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(line)} |" for line in (head, *([f"`{name}`", *cells] for name, *cells in rows))]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


_SEED = 1
"""Of starts and of random decisions: `mario-tui eval --seed 1` plays the same episodes."""
_LEAST_SHARE = 0.8
"""Of the mean score, with weights in float16. In Tetris the ratio of two such means has a standard error of 11 %."""


def ship(
    policy: Path, into: Path, name: str, command: str, minutes: float, result: FinalResult | None, *, native: bool
) -> policies.Card:
    """Store a policy as `name` and write its card, with `native` only of the game's first emulator. Raises `UserError`
    if the file is not a policy."""
    metadata = policy_metadata(policy)
    target = _weights(name, into)
    into.mkdir(parents=True, exist_ok=True)
    game = game_of(metadata["game"])
    first, *others = judged(game, metadata[game.tasks]).values()
    whole = _rate(policy, *first)
    header = _header(policy)
    save_file({key: tensor.half() for key, tensor in load_file(policy).items()}, target, header)
    half = _rate(target, *first)
    dtype = "float16"
    worse = (
        half.clears < whole.clears if isinstance(game, HasStages) else half.mean_score < _LEAST_SHARE * whole.mean_score
    )
    if worse:
        save_file(load_file(policy), target, header)
        half, dtype = whole, "float32"
    cores = available_cores()
    card = policies.Card(
        name=name,
        game=metadata["game"],
        stage=metadata[game.tasks],
        command=command,
        seed=metadata["seed"],
        env_steps=metadata["env_steps"],
        minutes=minutes,
        machine=f"{cores} core{'s' * (cores > 1)}, {platform.machine()}, {psutil.virtual_memory().total >> 30} GiB",
        version=__version__,
        torch=str(torch.__version__),
        dtype=dtype,
        rates=[half, *(_rate(target, *each) for each in others if each[0] == first[0] or not native)],
        result=result,
    )
    write_card(card, into)
    return card


def rate_of(card: Card, console: str, conditions: Conditions) -> Rate | None:
    """The rate of a policy on a console under these conditions; None if the card has none."""
    return next((rate for rate in card.rates if rate.console == console and rate.is_under(conditions)), None)


def write_card(card: Card, where: Path) -> None:
    text = json.dumps(msgspec.to_builtins(card), indent=1) + "\n"
    (where / f"{card.name}.json").write_text(text, encoding="utf-8")


def _weights(name: str, folder: Path) -> Path:
    """The file of a policy whose card is in the folder. Most of the package's are in `checkpoints/more-policies`."""
    known = policies.path_of(name) if folder == policies.folder() else None
    return known or folder / f"{name}.safetensors"


def judge(folder: Path, *, only_new: bool) -> None:
    """Play the policies in a folder again whose games have several conditions, and rewrite their cards; with `only_new`
    only under those that a card does not have."""
    for card in policies.cards(folder):
        columns = judged(game_of(card.game), card.stage)
        if len(columns) == 1:
            continue
        rates = []
        for name, conditions in columns.items():
            if only_new and (known := rate_of(card, *conditions)) is not None:
                rates.append(known)
                continue
            rates.append(_rate(_weights(card.name, folder), *conditions))
            print(f"{card.name}: {name}: {rates[-1].clears} of {rates[-1].episodes}", file=sys.stderr, flush=True)
        write_card(msgspec.structs.replace(card, rates=rates), folder)


def _rate(policy: Path, console: str, conditions: Conditions) -> policies.Rate:
    metadata = policy_metadata(policy)
    game = game_of(metadata["game"])
    tasks = game.tasks_of(metadata[game.tasks])
    episodes = episodes_on_card(game, console, metadata[game.tasks])
    threads = thread_budget(episodes)
    torch.set_num_threads(threads.torch_threads)
    env = lanes_of_policy(
        metadata,
        episodes,
        threads=threads.lane_threads,
        seed=_SEED,
        emulator=console or None,
        conditions=conditions,
        restart=False,
    )
    try:
        act = greedy_act(load_policy(policy))
        played = play_episodes(env, act, episodes, epsilon=conditions.epsilon, seed=_SEED)
    finally:
        env.close()
    outcome = game.outcome
    return policies.Rate(
        **msgspec.structs.asdict(conditions),
        console=console,
        episodes=episodes,
        clears=sum(episode.success for episode in played),
        mean_score=outcome.named(mean_results(played))["score"],
        clears_by_stage={
            task: sum(episode.success and episode.task_name(outcome) == task for episode in played) for task in tasks
        }
        if episodes == len(tasks) * EPISODES > EPISODES
        else {},
    )


def source_of(given: Path, name: str | None) -> tuple[Path, str, str, float, FinalResult | None]:
    """The policy file of a run's folder or a distilled policy; its name, command, minutes of training and result."""
    if given.is_file():
        said = policy_metadata(given)
        if "teachers" not in said or "minutes" not in said or name is None:
            raise UserError("RUN: must be a run's folder, or a policy of `mario-tui distill` and --name")
        return given, name, _distill_command(said), said["minutes"], None
    run = Run(given.resolve())
    config, policy = run.config(), find_policy(str(run.path), str(run.path.parent))
    begun_with = config.initial_policy
    if begun_with is not None and policies.has_card(Path(begun_with).stem):
        begun_with = Path(begun_with).stem  # a card names no folder of a machine
    command = command_line(dataclasses.replace(config, run_dir=RunConfig.run_dir, initial_policy=begun_with))
    minutes = _minutes(run, policy_metadata(policy)["env_steps"])
    return policy, name or f"{config.game}-{config.task_label}", command, minutes, run.record().result


def _distill_command(said: dict[str, Any]) -> str:
    """The command of a distilled policy with this metadata; what a search was told is named if one was a teacher."""
    options = {"network": said["network"], "seed": said["seed"], **said.get("options", {})}
    options |= feature("distillation", "a distilled policy").options_of_searches(said)
    named = (f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    return " ".join(("mario-tui distill", *said["teachers"], *named))


def _minutes(run: Run, env_steps: int) -> float:
    """Minutes of training that a run took for `env_steps` environment steps."""
    points = [point for event in read_recording(run.history_path) if isinstance(event, Hello) for point in event.points]
    return next((point.wall_s for point in points if point.env_steps >= env_steps), run.record().wall_s) / 60


def _header(policy: Path) -> dict[str, str]:
    with safe_open(policy, "pt") as file:
        return dict(file.metadata())


def main() -> int:
    parser = argparse.ArgumentParser(prog="engine.commands.release_policy", description=__doc__, allow_abbrev=False)
    parser.add_argument("run", nargs="?", type=Path, help="a run's folder, or a distilled policy")
    parser.add_argument("--name", help="default: the game and its stage or board")
    parser.add_argument("--into", type=Path, default=policies.folder(), help="default: the package's folder")
    parser.add_argument(
        "--judge", action="store_true", help="play policies again under all conditions, and rewrite their cards"
    )
    parser.add_argument("--judge-new", action="store_true", help="only under conditions that a card does not have yet")
    parser.add_argument("--native", action="store_true", help="judge a new policy only on the game's own emulator")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    options = parser.parse_args()
    try:
        if options.judge or options.judge_new:
            judge(options.into, only_new=options.judge_new)
        elif not options.table:
            if options.run is None:
                raise UserError("RUN: specify the folder of a run, a distilled policy, --judge or --table")
            policy, name, command, minutes, result = source_of(options.run, options.name)
            ship(policy, options.into, name, command, minutes, result, native=options.native)
        print(leaderboard(options.into))
    except UserError as error:
        print(f"engine.commands.release_policy: error: {error}", file=sys.stderr)
        return 2
    return 0
