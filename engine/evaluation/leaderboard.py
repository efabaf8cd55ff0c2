"""What is measured of a policy that comes with the package, and the tables of `docs/policies.md`."""

from __future__ import annotations

from pathlib import Path

from engine.config.conditions import Conditions
from engine.config.stages import stages_of
from engine.evaluation.statistics import wilson
from engine.runs.policies import Card, cards

EPISODES = 100
MARIO = {
    "0 to 30 no-ops": ("native", Conditions()),
    "31 to 120 no-ops": ("native", Conditions(noop_min=31, noop_max=120)),
    "epsilon 0.01": ("native", Conditions(epsilon=0.01)),
    "sticky actions 0.25": ("native", Conditions(sticky_actions=0.25)),
    "epsilon 0.05": ("native", Conditions(epsilon=0.05)),
    "on nes-py": ("nes-py", Conditions()),
}
"""Columns of Mario's table: console and conditions. The first ones are those under which training chooses its best
policy by default; each other column differs from them in one point."""
MARIO_STARTS = ("0 to 30 no-ops", "31 to 120 no-ops")
"""Columns of the table of the stages of policies for several."""
BOARDS = ("", Conditions(noop_max=0))
"""Console and conditions on cards of board games, which have neither consoles nor no-ops."""


def episodes_of(console: str, stage: str | None) -> int:
    """Episodes on a card: 100 of a board (`stage` None) or of each stage; 100 in all on nes-py, which is slow."""
    return EPISODES * (len(stages_of(stage)) if stage is not None and console == "native" else 1)


def leaderboard(where: Path | None = None) -> str:
    """Markdown tables of all policies in a folder (default: the package's): how they play, how they were trained."""
    known = cards(where)
    mario = [[card.name, *(_clears(card, *judged) for judged in MARIO.values())] for card in known if _is_mario(card)]
    boards = [[card.name, f"{card.rates[0].mean_score:.1f}", _filled(card)] for card in known if not _is_mario(card)]
    stages = [row for card in known for row in _by_stage(card)]
    training = [[card.name, f"`{card.command}`", _effort(card)] for card in known]
    tables = (
        _table(["policy", *MARIO], mario),
        _table(["policy for several stages", "stage", *MARIO_STARTS], stages),
        _table(["policy", f"mean score of {EPISODES} greedy games", "boards filled"], boards),
        _table(["policy", "trained with", "steps, minutes"], training),
    )
    return "\n\n".join(table for table in tables if table)


def _effort(card: Card) -> str:
    """`0.60M, 8`: environment steps and minutes; with another digit if there are few."""
    steps = f"{card.env_steps / 1e6:.{2 if card.env_steps >= 10_000 else 3}f}M"
    return f"{steps}, {card.minutes:.{0 if card.minutes >= 2 else 1}f}"


def _is_mario(card: Card) -> bool:
    return card.game == "mario"


def _clears(card: Card, console: str, conditions: Conditions) -> str:
    """`97 (92 to 99)`: percentage of clears and its 95 % interval."""
    rate = card.rate(console, conditions)
    if rate is None:
        return "–"
    share, low, high = (100 * each for each in (rate.clears / rate.episodes, *wilson(rate.clears, rate.episodes)))
    return f"{share:.0f} ({low:.0f} to {high:.0f})"


def _by_stage(card: Card) -> list[list[str]]:
    """Rows for the stages of a policy for several: percentages of clears."""
    rates = [card.rate(*MARIO[column]) for column in MARIO_STARTS]
    known = [rate for rate in rates if rate is not None and rate.clears_by_stage]
    return [
        [
            card.name,
            stage,
            *(f"{100 * len(r.clears_by_stage) * r.clears_by_stage[stage] / r.episodes:.0f}" for r in known),
        ]
        for stage in (known[0].clears_by_stage if known else ())
    ]


def _filled(card: Card) -> str:
    return str(card.rates[0].clears) if card.game == "snake" else "–"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, the first column of names of policies; empty without rows."""
    if not rows:
        return ""
    lines = [f"| {' | '.join(line)} |" for line in (head, *([f"`{name}`", *cells] for name, *cells in rows))]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)
