"""Numbers, durations, dates and results as short text; every value that a file may contain is handled.

Results of episodes and evaluations are told as the game declares them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from engine.config.game import GAMES, game_of
from engine.config.reading import ReportedLoop
from engine.protocol.messages import Evaluation, Hello, Progress
from engine.protocol.outcome import Outcome
from engine.protocol.results import BestEvaluation, FinalResult, Interval, TaskScore
from engine.runs.run import RunRecord


def number(value: float | None) -> str:
    """About three significant digits, in scientific notation far from 1; a dash for None, NaN and infinity."""
    if value is None or not _is_finite(value):
        return "–"
    if 0 < abs(value) < 0.001:
        return _power(value, 1)
    if abs(value) >= 1e9:
        return _power(value, 2)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def measured(progress: Progress, name: str, form: Callable[[float], str] = number) -> str:
    """The progress's number of that name, or since when it is not finite."""
    since = progress.not_finite.get(name)
    return form(getattr(progress, name)) if since is None else since_text(since)


def since_text(env_steps: float) -> str:
    """Return what stands in the place of a number that is not finite since that step."""
    return f"not finite since step {env_steps:,.0f}"


def short(value: float, decimals: int = 1) -> str:
    """A count in about four characters: 950, 12.3k, 1.2M, 3e15; a dash for NaN and infinity."""
    if not _is_finite(value):
        return "–"
    if value < 0:
        return f"-{short(-value, decimals)}"
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (1e12, 1e9, "G")):
        if value < limit:
            scaled = value / divisor
            whole = unit == "" or (scaled >= 100 and decimals == 1)
            return f"{scaled:.0f}{unit}" if whole else f"{scaled:.{decimals}f}{unit}"
    return _power(value, 0)


def distinct(values: Sequence[float]) -> list[str]:
    """`short` texts of a list, with up to three decimals where different values would look the same."""
    texts: list[str] = []
    for decimals in (1, 2, 3):
        texts = [short(value, decimals) for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def fitting(value: float, cells: int, form: Callable[[float], str] = number) -> str:
    """The number in that form, or in a coarser one that fits in `cells` cells; seven are enough for every number."""
    text = form(value)
    if len(text) <= cells:
        return text
    coarser = [short(value), short(value, 0)] if abs(value) >= 1 else [f"{value:.2f}"] if abs(value) >= 0.01 else []
    return next((text for text in coarser if len(text) <= cells), _power(value, 0)[:cells])


def _power(value: float, decimals: int) -> str:
    """1.2e-5, 1.2e40: without Python's plus sign and leading zero."""
    digits, _, exponent = f"{value:.{decimals}e}".partition("e")
    return f"{digits}e{int(exponent)}"


def shortened(text: str, cells: int) -> str:
    """The text, cut at its start if it is too long: paths and tags differ at their ends."""
    return text if len(text) <= cells else f"…{text[len(text) - max(0, cells - 1) :]}"


def fitted(text: str, cells: int) -> str:
    """The text in exactly so many cells: cut in its middle, as names differ at both ends, or filled up with spaces."""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    end = max(0, cells - 1) // 2
    return f"{set_cell_size(text, max(0, cells - 1 - end))}…{set_cell_size(text[::-1], end)[::-1]}"


def number_or_whole(value: float) -> str:
    """The return or a result of an episode: a whole number without decimals, unless it is very large; another one as
    `number`."""
    return f"{value:.0f}" if _is_finite(value) and abs(value) < 1e9 and value % 1 == 0 else number(value)


def out_of(done: int, total: int, of: str = " of ") -> str:
    """`950 of 2,000`; `950` if the total is unknown (0)."""
    return f"{done:,}{of}{total:,}" if total else f"{done:,}"


def thousandths(value: float) -> str:
    """Three decimals; a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def _is_finite(value: float) -> bool:
    """Return whether the value is finite as a float."""
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def duration(seconds: float | None) -> str:
    """1:02:03, or 2d 03:04 from two days on."""
    if seconds is None or not _is_finite(seconds):
        return "–"
    if abs(seconds) >= 1e9:
        return f"{short(seconds / 86_400)}d"
    minutes, secs = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}"


def fraction(part: float, whole: float) -> float:
    """`part / whole` within 0 to 1; 0 if it is undefined, because recordings may contain any value."""
    found = part / whole if whole else 0.0
    return min(max(found, 0.0), 1.0) if math.isfinite(found) else 0.0


def percent(share: float) -> str:
    """A share of a whole; 0% and 100% only if it is exactly that, but for rounding errors."""
    is_nearly = 1e-9 < share < 0.01 or 0.99 < share < 1 - 1e-9
    return f"{min(max(share, 0.001), 0.999):.1%}" if is_nearly else f"{share:.0%}"


def done_share(hello: Hello, progress: Progress) -> float:
    """Return how much of a run is done: of its environment steps or of its episodes, whichever will end it first."""
    return max(fraction(progress.env_steps, hello.steps), fraction(progress.episodes, hello.episodes or 0))


def judging(progress: Progress) -> str:
    """Return how far the final evaluation is: `12 of 100 fresh episodes`."""
    return f"{progress.judged:,} of {progress.to_judge:,} fresh episodes"


def moment(at: float) -> str:
    """Day and time of a unix time: 03-31 12:59; a dash for times out of range."""
    try:
        return time.strftime("%m-%d %H:%M", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return "–"


def gibibytes(count: float) -> str:
    """A size in GiB with one decimal."""
    return f"{count / 2**30:.1f}"


def outcome_of(game: str) -> Outcome:
    """Return what the episodes of a game yield; nothing besides return and length if this version doesn't know the
    game."""
    return game_of(game).outcome if game in GAMES else Outcome()


def outcome_of_record(record: RunRecord) -> Outcome:
    """As `outcome_of`. A reported loop may yield anything, which its record does not say: its return counts."""
    return Outcome() if record.runner == ReportedLoop.runner else outcome_of(record.game)


def is_cleared(outcome: Outcome) -> bool:
    """Return whether evaluations are judged by how many episodes reach the goal."""
    return outcome.judged_by == "goal"


def judged_label(outcome: Outcome) -> str:
    """The title above `judged_value`."""
    if is_cleared(outcome):
        return "cleared"
    return next((result.label for result in outcome.results if result.name == outcome.judged_by), "return")


def judged_value(outcome: Outcome, clear_rate: float, mean_return: float, results: Mapping[str, float]) -> float:
    """Return what an evaluation is judged by: the share of episodes that reached the goal, or a mean."""
    return clear_rate if is_cleared(outcome) else results.get(outcome.judged_by, mean_return)


def reached(outcome: Outcome, results: Sequence[float]) -> str:
    """The first result of an episode with its label: `x 1204`; empty without any."""
    if not outcome.results or not results:
        return ""
    return f"{outcome.results[0].label} {number_or_whole(results[0])}"


def goals(outcome: Outcome, count: int) -> str:
    """Return how often the goal was reached: `, 3 flags`; empty if never."""
    return f", {counted(count, outcome.goal.label)}" if count and outcome.goal is not None else ""


def judged(outcome: Outcome, evaluation: Evaluation | TaskScore) -> str:
    """The result of an evaluation."""
    if is_cleared(outcome):
        return f"{evaluation.clears}/{evaluation.episodes} cleared, return {number(evaluation.mean_return)}"
    results = outcome.named(evaluation.results) if isinstance(evaluation, Evaluation) else evaluation.results
    value = judged_value(outcome, 0.0, evaluation.mean_return, results)
    mean = f"{counted(evaluation.episodes, 'game')}, mean {judged_label(outcome)} {number(value)}"
    return mean + goals(outcome, evaluation.clears)


def within(found: Interval | None, shown: Callable[[float], str] = number) -> str:
    """A mean or a rate with its 95 % interval, such as `193 (175 to 212)`; a dash if it is unknown."""
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return shown(found.mean)
    return f"{shown(found.mean)} ({shown(found.low)} to {shown(found.high)})"


def judged_result(outcome: Outcome, result: FinalResult) -> Interval | None:
    """Return what the result of a run is judged by: a rate or a mean."""
    return result.clear_rate if is_cleared(outcome) else result.results.get(outcome.judged_by, result.mean_return)


def judged_best(outcome: Outcome, best: BestEvaluation) -> float:
    """As `judged_result`, of the best evaluation."""
    return judged_value(outcome, best.clears / max(1, best.episodes), best.mean_return, best.results)


def judged_number(outcome: Outcome) -> Callable[[float], str]:
    """Shows what evaluations are judged by."""
    return percent if is_cleared(outcome) else number


def result_text(outcome: Outcome, result: FinalResult) -> str:
    """The result of a run, and how it was found: `mean return 193 (175 to 212) over 100 fresh episodes`."""
    if not result.episodes:
        return f"none: {result.note}"
    if is_cleared(outcome):
        told = f"{within(result.clear_rate, percent)} cleared, return {within(result.mean_return)}"
    else:
        told = f"mean {judged_label(outcome)} {within(judged_result(outcome, result))}"
    notes = "; ".join(filter(None, (result.starts, result.note)))
    return f"{told} over {counted(result.episodes, 'fresh episode')}" + (f" ({notes})" if notes else "")
