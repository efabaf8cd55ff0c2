"""Results of episodes and evaluations in a few words, as the game declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.config.games import GAMES, game_of
from engine.protocol.messages import Evaluation
from engine.protocol.outcome import Outcome
from engine.protocol.results import TaskScore
from mario_tui.data.format import counted, number, number_or_whole


def outcome_of(game: str) -> Outcome:
    """What the episodes of a game yield; nothing besides return and length if this version doesn't know the game."""
    return game_of(game).outcome if game in GAMES else Outcome()


def is_cleared(outcome: Outcome) -> bool:
    """Whether evaluations are judged by how many episodes reach the goal."""
    return outcome.judged_by == "goal"


def judged_label(outcome: Outcome) -> str:
    """The title above `judged_value`."""
    if is_cleared(outcome):
        return "cleared"
    return next((result.label for result in outcome.results if result.name == outcome.judged_by), "return")


def judged_value(outcome: Outcome, clear_rate: float, mean_return: float, results: Mapping[str, float]) -> float:
    """What an evaluation is judged by: the share of episodes that reached the goal, or a mean."""
    return clear_rate if is_cleared(outcome) else results.get(outcome.judged_by, mean_return)


def reached(outcome: Outcome, results: Sequence[float]) -> str:
    """The first result of an episode with its label: `x 1204`; empty without any."""
    if not outcome.results or not results:
        return ""
    return f"{outcome.results[0].label} {number_or_whole(results[0])}"


def goals(outcome: Outcome, count: int) -> str:
    """How often the goal was reached: `, 3 flags`; empty if never."""
    return f", {counted(count, outcome.goal.label)}" if count and outcome.goal is not None else ""


def judged(outcome: Outcome, evaluation: Evaluation | TaskScore) -> str:
    """The result of an evaluation."""
    if is_cleared(outcome):
        return f"{evaluation.clears}/{evaluation.episodes} cleared, return {number(evaluation.mean_return)}"
    results = outcome.named(evaluation.results) if isinstance(evaluation, Evaluation) else evaluation.results
    value = judged_value(outcome, 0.0, evaluation.mean_return, results)
    mean = f"{counted(evaluation.episodes, 'game')}, mean {judged_label(outcome)} {number(value)}"
    return mean + goals(outcome, evaluation.clears)
