"""`mario-tui policies`: the trained policies that there are: those of the package, and those of this user's runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.cells import cell_len

from engine.errors import UserError
from engine.protocol.outcome import Conditions
from engine.protocol.results import PolicyKind
from engine.runs import policies
from engine.runs.checkpoints import BEST_POLICY_FILE, POLICY_FILE, committed
from engine.runs.lookup import how_to_name
from engine.runs.policies import Rate
from engine.runs.registry import list_records
from engine.runs.run import Run, RunRecord
from engine.runtime.text import install_command, printable, size_text
from mario_tui.commands.options import Parser, add_run_dir, existing
from mario_tui.commands.runs import record_as_dict
from mario_tui.data.format import counted, is_cleared, judged_label, number, outcome_of, result_text

_ABOUT = (
    "List trained policies, by the names that eval and play take: those of the package, and of each run the best one, "
    "or that of the newest checkpoint, and those that were saved. PLAYS BY: a card's first rate, or the result of the "
    "run, or without one its best evaluation, which is partly luck."
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A policy, with what is known of how it plays."""

    name: str
    """What commands find it by."""
    kind: PolicyKind
    game: str
    stage: str
    """What it was trained on."""
    path: str | None
    """None if it is not installed."""
    size_bytes: int | None
    env_steps: int | None
    rates: list[Rate] = []
    """On its card, each with its conditions."""
    run: dict[str, Any] | None = None
    """The run that it belongs to, as `runs --json` prints it."""


def policies_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="mario-tui policies", description=_ABOUT)
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    parser.add_argument("--game", metavar="GAME", help="only those of this game")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = policies_parser().parse_args(arguments)
    records = list_records(existing(options.run_dir))
    every = [(found, _played(found, record)) for found, record in (*_included(), *_stored(records))]
    listed = [each for each in every if options.game in (None, each[0].game)]
    if options.game is not None and not listed:
        raise UserError(f"--game must be one of {', '.join(sorted({each.game for each, _ in every}))}, "
                        f"got {options.game!r}")  # fmt: skip
    if options.json:
        print(json.dumps(msgspec.json.decode(msgspec.json.encode([found for found, _ in listed])), indent=2))
    else:
        _print_table(listed)
    return 0


def _included() -> Iterator[tuple[Found, None]]:
    """Those that come with the package, installed or not."""
    for card in policies.cards():
        path = policies.path_of(card.name)
        found = Found(
            name=card.name, kind="included", game=card.game, stage=card.stage, env_steps=card.env_steps,
            path=None if path is None else str(path), size_bytes=None if path is None else path.stat().st_size,
            rates=card.rates,
        )  # fmt: skip
        yield found, None


def _stored(records: list[tuple[Run, RunRecord]]) -> Iterator[tuple[Found, RunRecord]]:
    for run, record in records:
        for path, kind, env_steps in _files(run, record):
            try:
                size = path.stat().st_size
            except OSError:  # deleted in the meantime
                continue
            name = str(path) if kind == "saved" else how_to_name(run)
            of_run = record_as_dict(run, record)
            found = Found(
                name=name, kind=kind, game=record.game, stage=record.task, path=str(path), size_bytes=size,
                env_steps=env_steps, run=of_run,
            )  # fmt: skip
            yield found, record


def _files(run: Run, record: RunRecord) -> Iterator[tuple[Path, PolicyKind, int | None]]:
    """The policies in the folder of a run: kind, and environment steps if they are known."""
    best, checkpoints = run.path / BEST_POLICY_FILE, committed(run)
    if best.is_file():
        yield best, "best", record.best.env_steps if record.best else None
    elif checkpoints and (checkpoints[-1] / POLICY_FILE).is_file():
        yield checkpoints[-1] / POLICY_FILE, "checkpoint", _steps_of(checkpoints[-1])
    for path in sorted(run.path.glob("policy-*.safetensors")):
        yield path, "saved", _steps_of(path)


def _steps_of(path: Path) -> int | None:
    """The steps in the name of a checkpoint or a saved policy."""
    digits = path.name.removesuffix(".safetensors").rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _played(found: Found, record: RunRecord | None) -> str:
    """How well it plays, in words; empty if nothing is known."""
    outcome = outcome_of(found.game)
    if found.rates:
        rate = next((each for each in found.rates if each.is_under(Conditions())), found.rates[0])
        if is_cleared(outcome):
            return f"{rate.clears} of {counted(rate.episodes, 'episode')} cleared"
        return f"mean {judged_label(outcome)} {number(rate.mean_score)} over {counted(rate.episodes, 'episode')}"
    if record is None or found.kind != "best":
        return ""
    if record.result is not None and record.result.episodes:
        return result_text(outcome, record.result)
    if (best := record.best) is None:
        return ""
    if is_cleared(outcome):
        return f"best evaluation: {best.clears} of {best.episodes} cleared"
    mean = best.results.get(outcome.judged_by, best.mean_return)
    return f"best evaluation: mean {judged_label(outcome)} {number(mean)}"


def _print_table(listed: list[tuple[Found, str]]) -> None:
    head = ("POLICY", "KIND", "GAME", "TRAINED ON", "STEPS", "SIZE", "PLAYS BY")
    rows = [head, *(_row(found, played) for found, played in listed)]
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        cells = [
            f"{' ' * (width - cell_len(text))}{text}" if name in ("STEPS", "SIZE") else text.ljust(width)
            for name, text, width in zip(head, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
    missing = [found.name for found, _ in listed if found.path is None]
    if missing:  # a size of none
        print(f"those without a size: {install_command('policies')}")


def _row(found: Found, played: str) -> tuple[str, ...]:
    size = "–" if found.size_bytes is None else size_text(found.size_bytes)
    steps = "–" if found.env_steps is None else f"{found.env_steps:,}"
    stages = found.stage.split(",")
    trained_on = found.stage if len(stages) <= 2 else f"{stages[0]} ... {stages[-1]} ({len(stages)})"
    return (*map(printable, (found.name, found.kind, found.game, trained_on)), steps, size, printable(played))
