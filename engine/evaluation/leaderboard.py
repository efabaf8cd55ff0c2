"""What is measured of a policy that comes with the package, and the tables of
`bench/experiments/policies.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.config.conditions import Conditions
from engine.config.game import Game
from engine.config.games import game_of, games
from engine.evaluation.statistics import wilson
from engine.runs.policies import Card, cards

EPISODES = 100
_STARTS = 2
"""Columns of the table of tasks: the first of the conditions, which differ in the starts alone."""


def episodes_on_card(game: Game, emulator: str, task: str) -> int:
    """Episodes on a card: 100 for each task under the first of the game's emulators; 100 in all on others, which are
    slow."""
    first, _ = next(iter(game.judged.values()))
    return EPISODES * (len(game.tasks_of(task)) if game.stages and emulator == first else 1)


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
    """The clear rates of a game's policies, and those of the tasks of policies for several. The first conditions are
    those under which training chooses its best policy by default; each other column differs from them in one point."""
    starts = list(game.judged)[:_STARTS]
    return (
        _table(
            ["policy", *game.judged],
            [[card.name, *(_clears(card, *judged) for judged in game.judged.values())] for card in of_game],
        ),
        _table(
            [f"policy for several {game.tasks}s", game.tasks, *starts],
            [row for card in of_game for row in _by_task(card, [game.judged[column] for column in starts])],
        ),
    )


def _effort(card: Card) -> str:
    """`0.60M, 8`: environment steps and minutes; with another digit if there are few."""
    steps = f"{card.env_steps / 1e6:.{2 if card.env_steps >= 10_000 else 3}f}M"
    return f"{steps}, {card.minutes:.{0 if card.minutes >= 2 else 1}f}"


def _clears(card: Card, console: str, conditions: Conditions) -> str:
    """`97 (92–99)`: percentage of clears and its 95 % interval."""
    rate = card.rate(console, conditions)
    if rate is None:
        return "–"
    percent, low, high = (100 * each for each in (rate.clears / rate.episodes, *wilson(rate.clears, rate.episodes)))
    return f"{percent:.0f} ({low:.0f}–{high:.0f})"


def _by_task(card: Card, judged: Sequence[tuple[str, Conditions]]) -> list[list[str]]:
    """Rows for the tasks of a policy for several: percentages of clears."""
    rates = [card.rate(*each) for each in judged]
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
