"""Makes tables of the documentation from the CSV files of `bench/`: every evaluation of every run that they count.

    python -m bench.tables

A page holds a table between `<!-- table: NAME -->` and `<!-- end of table -->`; this writes it anew. Each table names
the runs that it counts, so a CSV without one of them is an error, not a table of fewer runs.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.clears import RATES, STEADY
from bench.curves import PUBLISHED

ROOT = Path(__file__).parent.parent
_PLACE = re.compile(r"(?<=<!-- table: )([\w-]+)( -->\n\n).*?(?=\n\n<!-- end of table -->)", re.DOTALL)
_EVERY = 50_000
"""Steps between two evaluations on Mario; they come with the first step of the lanes at or after that."""

Rows = list[dict[str, str]]


class MissingRuns(Exception):
    """A CSV lacks runs that its table counts."""


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    first, *others = ("| " + " | ".join(row) + " |" for row in (heads, *lines))
    return "\n".join((first, "|" + "---|" * len(heads), *others))


def runs_of(rows: Rows, column: str, needed: Sequence[str], **others: str) -> dict[str, Rows]:
    """The rows of each needed value of `column`, of those whose other columns have these values."""
    found: dict[str, Rows] = {each: [] for each in needed}
    for row in rows:
        if row[column] in found and all(row[name] == value for name, value in others.items()):
            found[row[column]].append(row)
    if missing := [name for name, its in found.items() if not its]:
        given = ", ".join(f"{name} {value}" for name, value in others.items())
        raise MissingRuns(f"{column} {', '.join(missing)}" + (f" of {given}" if given else ""))
    return found


def _rate(row: dict[str, str]) -> float:
    return int(row["clears"]) / int(row.get("episodes", "31"))


def _first(rows: Rows, reached: Callable[[dict[str, str]], bool]) -> int | None:
    return next((at for at, row in enumerate(rows) if reached(row)), None)


def _thousands(steps: float) -> str:
    return f"{steps / 1e3:,.0f}k"


SEEDS = ("0", "1", "2", "3", "4")


def _marks(rows: Rows) -> list[tuple[float, int]]:
    """Minutes and steps until a run clears once, half of the episodes, and 95 %."""
    found = []
    for least in RATES:
        at = _first(rows, lambda row, least=least: _rate(row) > 0 and _rate(row) >= least)  # type: ignore[misc]
        if at is None:
            raise MissingRuns(f"seed {rows[0]['seed']} never clears {least:.0%}")
        found.append((float(rows[at]["minutes"]), int(rows[at]["env_steps"])))
    return found


def _after_good(rows: Rows) -> Rows:
    at = _first(rows, lambda row: _rate(row) >= RATES[-1])
    return [] if at is None else rows[at + 1 :]


def clears(rows: Rows) -> str:
    runs = list(runs_of(rows, "seed", SEEDS).values())
    marks = [list(each) for each in zip(*map(_marks, runs), strict=True)]
    medians = [
        f"{statistics.median(m for m, _ in each):.1f} min, {_thousands(statistics.median(s for _, s in each))}"
        for each in marks
    ]
    ranges = [f"{min(each)[0]:.1f} to {max(each)[0]:.1f} min" for each in marks]
    steps = [each[1] for each in marks[-1]]
    ranges[-1] += f", {_thousands(min(steps))} to {_thousands(max(steps))}"
    lowest = sorted({min(int(row["clears"]) for row in _after_good(run)) for run in runs})
    return markdown(
        ("five seeds", "first clear", "half of the episodes", "95 %", "lowest evaluation after that"),
        [("median", *medians, ""), ("range", *ranges, f"{' and '.join(map(str, lowest))} of {runs[0][0]['episodes']}")],
    )


def clears_of_each_seed(rows: Rows) -> str:
    lines = []
    for seed, run in runs_of(rows, "seed", SEEDS).items():
        after = _after_good(run)
        lowest = f"{min(int(row['clears']) for row in after)} of {after[0]['episodes']} ({len(after)} evaluations)"
        marks = [f"{minutes:.1f} min, {_thousands(steps)} steps" for minutes, steps in _marks(run)]
        lines.append((seed, *marks, lowest))
    return markdown(("seed", "first clear", "half of the episodes", "95 %", "lowest evaluation after that"), lines)


def steadiness(larger_gaps: str, *seeds: str) -> Callable[[Rows], str]:
    """Clears of 31 from 200,000 steps on; those below 90 % after 95 % was reached are bold."""

    def table(rows: Rows) -> str:
        shown = range(200_000, 800_000, _EVERY)
        lines = []
        for seed, run in runs_of(rows, "seed", seeds, larger_gaps=larger_gaps).items():
            cells, good = dict[int, str](), False
            for row in run:
                fallen = good and _rate(row) < STEADY
                cells[int(row["env_steps"]) // _EVERY] = f"**{row['clears']}**" if fallen else row["clears"]
                good = good or _rate(row) >= RATES[-1]
            last = [cells[at] for at in sorted(cells) if at * _EVERY >= 800_000]
            tail = f"{last[0]} each" if len(set(last)) == 1 else ", ".join(last)
            lines.append((seed, *(cells[steps // _EVERY] for steps in shown), tail))
        return markdown(("seed", *map(_thousands, shown), "until 1.0M"), lines)

    return table


BETA_SEEDS = ("32076", "44161", "46855", "62200", "65506", "66368", "69080", "76745")


def beta(rows: Rows) -> str:
    """When runs with either growth of beta clear 95 %, and how many of their evaluations until 500,000 steps are below
    90 % after that."""
    step_by_step = [row for row in read("steadiness") if row["larger_gaps"] == "step by step"]
    lines = []
    runs = (runs_of(each, "seed", BETA_SEEDS) for each in (step_by_step, rows))
    for seed, *both in zip(BETA_SEEDS, *(found.values() for found in runs), strict=True):
        cells = []
        for run in both:
            seen = [row for row in run if int(row["env_steps"]) <= 500_000]
            at, after = _first(run, lambda row: _rate(row) >= RATES[-1]), _after_good(seen)
            cells.append("not reached" if at is None else _thousands(int(run[at]["env_steps"])))
            cells.append(f"{sum(_rate(row) < STEADY for row in after)} of {len(after)}")
        lines.append((seed, *cells))
    return markdown(("seed", "1e-5: 95 % after", "below 90 % then", "1.92e-5: 95 % after", "below 90 % then"), lines)


def board_field(rows: Rows) -> str:
    programs = {
        "mario-tui": "mario-tui, default run, with symmetries and arrival times",
        "cleanrl-style": "a DQN loop in CleanRL's style, 16 of our games in a vector",
        "stable-baselines3": "Stable-Baselines3 2.9, DQN",
        "tianshou": "Tianshou 2.0, DQN",
        "jumanji-a2c": "Jumanji 1.1, A2C on its own Snake, where crashes are ruled out while another move is left",
    }
    lines = []
    for learner, run in runs_of(rows, "learner", tuple(programs)).items():
        last, at = run[-1], _first(run, lambda row: float(row["score"]) >= 20)
        reached = "–"
        if at is not None:
            reached = f"{float(run[at]['minutes']):.1f} min, {_thousands(int(run[at]['env_steps']))} steps"
        rate = int(last["env_steps"]) / (60 * float(last["minutes"]))
        memory = max(int(row["megabytes"]) for row in run)
        lines.append((programs[learner], f"{rate:,.0f}", f"{memory:,}", reached, f"{float(last['score']):.1f}"))
    return markdown(("program", "environment steps/s", "MB", "20 fruits", "mean fruits of 50 greedy games"), lines)


REACHED = {"CartPole-v1": (475, 50_000), "LunarLander-v3": (200, 100_000)}
"""The mean return to reach, and the steps of a run that never does."""


def reached(rows: Rows) -> str:
    """When a policy's mean return over 100 fresh episodes first reached a mark, for each seed: steps, and minutes of
    processor time. The median counts a run that never reached it as longer than all others."""
    lines = []
    for env, (mark, most_steps) in REACHED.items():
        for learner in LEARNERS:
            cells, minutes = list[str](), list[float]()
            for run in runs_of(rows, "seed", SEEDS, env=env, learner=learner).values():
                last = next((row for row in reversed(run) if row["fresh_return"]), run[-1])
                steps, taken = _thousands(int(last["env_steps"])), float(last["cpu_minutes"])
                if float(last["fresh_return"] or -math.inf) < mark:
                    if int(run[-1]["env_steps"]) < most_steps:
                        raise MissingRuns(f"{learner} in {env} has no {most_steps:,} steps")
                    cells.append("never")
                    minutes.append(math.inf)
                else:
                    cells.append(f"{steps}, {taken:.2f}")
                    minutes.append(taken)
            lines.append((f"{env}, {mark}", learner, *cells, f"{statistics.median(minutes):.2f}"))
    return markdown(("until", "program", *(f"seed {seed}" for seed in SEEDS), "median minutes"), lines)


MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


def _minatar_means(rows: Rows, game: str, learning_rate: str) -> tuple[str, str]:
    """Means of training return and greedy evaluation over the last ten evaluations, of each seed."""
    runs = runs_of(rows, "seed", SEEDS[:3], env=f"MinAtar/{game}-v0", n_step="1", learning_rate=learning_rate).values()
    training, evaluation = (
        ", ".join(f"{statistics.mean(float(row[f'{kind}_return']) for row in run[-10:]):.1f}" for run in runs)
        for kind in ("training", "evaluation")
    )
    return training, evaluation


def _spaced(game: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", game)


def minatar(rows: Rows) -> str:
    return markdown(
        ("MinAtar, a million frames", "training return", "greedy evaluation", "DQN of the paper, training"),
        [(_spaced(game), *_minatar_means(rows, game, "1e-4"), f"about {PUBLISHED[game]:.0f}") for game in MINATAR],
    )


def minatar_rates(rows: Rows) -> str:
    return markdown(
        ("one-step returns, seeds 0, 1, 2", "1e-4: training", "evaluation", "5e-4: training", "evaluation"),
        [(_spaced(game), *_minatar_means(rows, game, "1e-4"), *_minatar_means(rows, game, "5e-4")) for game in MINATAR],
    )


ZOO = ("CartPole-v1", "LunarLander-v3", "MountainCar-v0", "Acrobot-v1")
LEARNERS = ("mario-tui", "Stable-Baselines3")


def zoo(rows: Rows) -> str:
    """Mean returns of 100 fresh episodes after the zoo's number of steps, of each seed."""
    lines = []
    for env in ZOO:
        cells = []
        for learner in LEARNERS:
            runs = runs_of(rows, "seed", SEEDS, env=env, learner=learner)
            last = [next(row for row in reversed(run) if row["fresh_return"]) for run in runs.values()]
            judged = [[float(row[f"fresh_{name}"]) for name in ("return", "low", "high")] for row in last]
            each = [f"{mean:.0f} ({low:.0f} to {high:.0f})" for mean, low, high in judged]
            cells.append(f"{each[0]} with each seed" if len(each) > len(set(each)) == 1 else ", ".join(each))
        lines.append((env, *cells))
    return markdown(("environment", "mario-tui, defaults", "Stable-Baselines3 2.9, DQN of its zoo"), lines)


@dataclass(frozen=True)
class DocumentedTable:
    page: str
    csv: str
    make: Callable[[Rows], str]


_FIGURES, _STEADINESS = "bench/experiments/further-figures.md", "bench/experiments/steadiness.md"
TABLES = {
    "clears": DocumentedTable("docs/benchmarks.md", "clears", clears),
    "clears-of-each-seed": DocumentedTable(_FIGURES, "clears", clears_of_each_seed),
    "snake-8x8": DocumentedTable("docs/benchmarks.md", "snake-8x8", board_field),
    "beta": DocumentedTable("bench/experiments/prioritized-replay.md", "beta", beta),
    "reached": DocumentedTable("docs/benchmarks.md", "reached", reached),
    "zoo": DocumentedTable("docs/benchmarks.md", "zoo", zoo),
    "minatar": DocumentedTable("docs/benchmarks.md", "minatar", minatar),
    "minatar-rates": DocumentedTable(_FIGURES, "minatar", minatar_rates),
    "steadiness-at-once": DocumentedTable(
        _STEADINESS,
        "steadiness",
        steadiness("at once", "2176", "2254", "5388", "5648", "6105", "8075", "8166", "8779", "9408", "9822"),
    ),
    "steadiness-step-by-step": DocumentedTable(
        _STEADINESS,
        "steadiness",
        steadiness(
            "step by step", "32076", "44161", "46855", "62200", "65506", "66368", "69080", "76745", "84983", "90871"
        ),
    ),
    "steadiness-two-cores": DocumentedTable(
        _STEADINESS, "steadiness", steadiness("step by step, two cores", "780", "2148", "4630", "6646", "8406")
    ),
}


def read(name: str) -> Rows:
    with (ROOT / "bench" / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def with_tables(page: str) -> str:
    """The page's text with its tables made from the CSV files."""

    def made(found: re.Match[str]) -> str:
        table = TABLES[found[1]]
        return f"{found[1]}{found[2]}{table.make(read(table.csv))}"

    return _PLACE.sub(made, (ROOT / page).read_text("utf-8"))


def main() -> None:
    for page in sorted({table.page for table in TABLES.values()}):
        (ROOT / page).write_text(with_tables(page), "utf-8")


if __name__ == "__main__":
    main()
