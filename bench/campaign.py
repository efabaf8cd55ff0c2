"""Trains Mario's stages one after another for some minutes, such as those for which a GPU is lent, and goes on later.

    python -m bench.campaign [STAGE ...] [--minutes M] [--out DIR] [--no-resume] [--device D] [-- OPTION ...]

Every stage gets an equal share of the minutes that are left. It trains with the options of `RECIPES` (and those after
`--`, which win) until an evaluation meets its goal, its steps are done or its share is spent. Then its best policy
plays 100 games from starts that training knows and 100 from a band of no-ops that it never sees, and goes to DIR with a
card. Minutes that goals leave over go to the other stages. The next call goes on from the newest checkpoints; with
`--no-resume` new runs begin, with the best policies so far. Ctrl-C or SIGTERM ends it in order; if it is killed, only
what came after the newest checkpoint is lost.

DIR has `campaign.md` and `campaign.csv` (the table), `policies/` with cards, `runs/`, and `STAGE.log`, which its runs
print.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench.tables import markdown
from bench.training import PROGRAM
from engine.errors import UserError
from engine.games.mario.actions import has_halfway
from engine.runners.start import resolve_device
from engine.runs.checkpoints import BEST_POLICY_FILE, committed
from engine.runs.marks import is_run
from engine.runs.run import Run, RunRecord
from engine.runtime.files import lock_exclusively, open_lock, write_atomically
from engine.runtime.processes import exits_on_signals

COMMON = (
    "--random-phase --epsilon-steps 1 --start-states 0.3 --buffer-size 400000 --eval-episodes 62 --final-episodes 0"
)
FROM_REWARDS = "--actions simple --learning-rate-schedule decay --final-advantage-learning none"
TRAINED_ON = "--action-noise 0.01 --learning-rate 0.0003 --learning-rate-schedule decay"
BY_DEVICE = {
    "cpu": "--eval-every 100000 --save-every 100000",
    "cuda": "--parallel-envs 128 --eval-every 250000 --save-every 500000",
}
HELD_OUT = (201, 255)
"""No-ops at the start that no run and no choice of a policy ever has; with `_ENEMY_STAGES` others, because an enemy
reaches a Mario who waits for longer."""
_HELD_OUT_BEFORE_ENEMY, _ENEMY_STAGES = (81, 120), ("1-2", "3-2", "5-1")
_NOOPS = 120
"""The most at the start of an episode, in training and in its evaluations; fewer where these are held out."""
_LEAST_S = 20.0
"""A share that is shorter is not begun."""
_LEAVE_S = 120.0
"""For a run to end in order."""


@dataclass(frozen=True)
class Recipe:
    """How a stage is trained."""

    policy: str
    """Its weights are the beginning."""
    options: str
    steps: int = 5_000_000
    goal: float = 0.97
    """Share of the episodes of an evaluation, at which training ends."""

    def arguments(self, stage: str, device: str) -> list[str]:
        """Options of the run."""
        noops = f"--noop-max {most_noops(stage)} --steps {self.steps}"
        halfway = "--halfway-starts 0.25" if has_halfway(stage) else ""
        by_device = BY_DEVICE["cuda" if device.startswith("cuda") else "cpu"]
        return shlex.split(f"--stage {stage} --device {device} {COMMON} {by_device} {noops} {halfway} {self.options}")


def held_out(stage: str) -> tuple[int, int]:
    """The least and the most no-ops of the starts that are kept out of the stage's training."""
    return _HELD_OUT_BEFORE_ENEMY if stage in _ENEMY_STAGES else HELD_OUT


def most_noops(stage: str) -> int:
    """The most no-ops with which the stage's training and its evaluations begin."""
    return min(_NOOPS, held_out(stage)[0] - 1)


def _hard(policy: str, gamma: float, also: str = "", steps: int = 5_000_000) -> Recipe:
    """A stage without a policy, for which a search has found no way either."""
    return Recipe(policy, f"{FROM_REWARDS} --gamma {gamma} {also}".strip(), steps)


def _weak(stage: str, gamma: float, also: str = "") -> Recipe:
    """A stage whose policy loses games from starts that it does not know: from any, until the rate is 0."""
    return Recipe(f"mario-{stage}", f"{TRAINED_ON} --gamma {gamma} {also}".strip(), steps=800_000)


def _guided(policy: str, gamma: float, also: str = "", steps: int = 5_000_000) -> Recipe:
    """A stage that no policy clears, or not often: from states of a way, too."""
    return Recipe(policy, f"{TRAINED_ON} --guide 0.3 --gamma {gamma} {also}".strip(), steps)


RECIPES = {
    "5-3": _guided("mario-5-3", 0.97),
    "6-2": _guided("mario-6-2", 0.97),
    "7-1": _guided("mario-7-1", 0.98),
    "8-2": _guided("mario-8-2", 0.97, "--actions simple"),
    "7-3": _guided("mario-7-3", 0.98),
    "8-1": _guided("mario-4-1", 0.98, "--actions simple", steps=25_000_000),
    "8-4": _hard("mario-7-4", 0.99, "--actions complex", steps=25_000_000),
    "5-2": _guided("mario-5-2", 0.97),
    "7-2": _weak("7-2", 0.98),  # in red, with strokes
    "7-4": _guided("mario-7-4", 0.98, "--actions simple"),
    "4-2": _weak("4-2", 0.99),
    "4-4": _weak("4-4", 0.99),
    "2-2": _weak("2-2", 0.98),
    "3-1": _weak("3-1", 0.97),
    "3-4": _weak("3-4", 0.99),
    "1-2": _weak("1-2", 0.95),
    "3-2": _weak("3-2", 0.95),
    "5-1": _weak("5-1", 0.97),
    "5-4": _weak("5-4", 0.98),
    "2-4": _weak("2-4", 0.99),
    "2-3": _weak("2-3", 0.99),
    "8-3": _weak("8-3", 0.97),
    "2-1": _guided("mario-1-1-noise", 0.97),
}
"""In the order in which they are worth their minutes: the stages whose policies are missing or clear few episodes, and
those whose policies are weak on starts that they do not know (bench/experiments/policies.md)."""


class Judged(msgspec.Struct):
    """How the policy of a stage in the campaign's folder plays, of 100 games each."""

    latest: str
    """Checksum of the last policy that was judged, which this one is unless it was worse."""
    known: int
    """Clears of games from starts that training knows."""
    held_out: int
    """Clears of games from starts that it does not."""
    ends: str
    """Where the latter ended without the flag: x in steps of 64, and how many."""


class Campaign:
    """The runs, policies and tables in a folder.

    Args:
        out: folder.
        device: that of `--device`.
        more: options of all runs, which win over those of `RECIPES`.
        episodes: that judge a policy.
    """

    def __init__(self, out: Path, device: str, more: Sequence[str], episodes: int) -> None:
        self._out, self._device, self._more, self._episodes = out, device, list(more), episodes
        self._state, self._policies = out / "campaign.json", out / "policies"
        self._judging_s = 30.0
        """Seconds that a judgement takes: at first a guess, then the longest."""
        self.judged: dict[str, Judged] = {}
        if self._state.exists():
            self.judged = msgspec.json.decode(self._state.read_bytes(), type=dict[str, Judged])

    def run(self, stages: Sequence[str], minutes: float) -> None:
        """Train and judge the stages that are not done, for so many minutes."""
        end = time.monotonic() + 60 * minutes
        failed = {stage for stage in stages if not self._try(self._judge, stage)}  # left by a call that was ended
        while left := [stage for stage in stages if stage not in failed and not self._is_done(stage)]:
            for number, stage in enumerate(left):
                share = (end - time.monotonic()) / (len(left) - number)
                if share < _LEAST_S:
                    return
                seconds = max(share - self._judging_s, share / 2)
                if not (self._try(partial(self._train, seconds=seconds), stage) and self._try(self._judge, stage)):
                    failed.add(stage)
                self.write_tables()

    @staticmethod
    def _try(work: Callable[[str], None], stage: str) -> bool:
        """Whether the work on a stage succeeds; one that fails must not cost the others."""
        try:
            work(stage)
        except (UserError, OSError, subprocess.CalledProcessError) as error:
            _say(f"{stage}: {error}")
            return False
        return True

    def begin_anew(self, stages: Sequence[str]) -> None:
        """Set the runs of stages aside: the next ones begin with the best policies."""
        for stage in stages:
            path = self._run(stage).path
            if path.exists():
                names = (path.with_name(f"{stage}-{number}") for number in range(1, 1000))
                path.rename(next(name for name in names if not name.exists()))

    def write_tables(self) -> str:
        """Write the tables, and return the one in Markdown."""
        stages = [stage for stage in RECIPES if is_run(self._run(stage).path)]
        rows = [self._row(stage) for stage in stages]
        with (self._out / "campaign.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*COLUMNS], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        table = markdown([*COLUMNS.values()], [[str(row[name]) for name in COLUMNS] for row in rows])
        also = f"Options of all: `{' '.join((COMMON, *self._more))}`"
        (self._out / "campaign.md").write_text(f"{also}\n\n{table}\n", encoding="utf-8")
        return table

    def _run(self, stage: str) -> Run:
        return Run((self._out / "runs" / stage).resolve())

    def _record(self, stage: str) -> RunRecord | None:
        run = self._run(stage)
        return run.record() if is_run(run.path) else None

    def _is_done(self, stage: str) -> bool:
        record = self._record(stage)
        return record is not None and (record.env_steps >= record.steps or _is_met(stage, record))

    def _train(self, stage: str, seconds: float) -> None:
        """Train until the goal, the steps or the seconds are reached. Raises `CalledProcessError` if the run fails."""
        run, recipe = self._run(stage), RECIPES[stage]
        waited = time.monotonic() + _LEAVE_S
        while is_run(run.path) and run.is_alive():  # the campaign was killed, and it has noticed that nobody reads
            if time.monotonic() > waited:
                raise UserError(f"{run.path} is still active; to end it: mario-tui stop {run.path}")
            time.sleep(0.2)
        arguments = recipe.arguments(stage, self._device) + self._more
        if committed(run):
            at = arguments.index("--stage")
            command = [PROGRAM, "--resume", str(run.path), *arguments[:at], *arguments[at + 2 :]]
        else:
            shutil.rmtree(run.path, ignore_errors=True)
            best = self._policies / f"mario-{stage}.safetensors"
            policy = str(best.resolve()) if best.exists() else recipe.policy
            folder = ("--run-dir", str(run.path.parent), "--name", stage)
            command = [PROGRAM, *folder, "--initial-policy", policy, *arguments]
        command += ["--no-ui", "--log-format", "json", "--log-events", "evaluation"]
        _say(f"{stage}: {seconds / 60:.1f} minutes: {shlex.join(['mario-tui', *command[1:]])}")
        with (
            (self._out / f"{stage}.log").open("ab") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True) as process,
        ):
            ending = threading.Event()

            def end() -> None:  # a second signal would end it at once
                if not ending.is_set():
                    ending.set()
                    process.send_signal(signal.SIGINT)

            timer = threading.Timer(seconds, end)
            timer.start()
            assert process.stdout is not None
            try:
                for event in map(json.loads, process.stdout):
                    if event["event"] == "evaluation":
                        _say(f"{stage}: {event['env_steps']:,} steps, {event['clears']} of {event['episodes']}")
                        if event["clears"] >= recipe.goal * event["episodes"]:
                            end()
            except BaseException:
                end()
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=_LEAVE_S)
                raise
            finally:
                timer.cancel()
        if process.returncode not in (0, 130, -signal.SIGINT):  # the latter two while it is starting
            raise subprocess.CalledProcessError(process.returncode, shlex.join(command))

    def _judge(self, stage: str) -> None:
        """Judge and store the run's best policy, unless that has happened, or a better one is stored."""
        run = self._run(stage)
        policy = run.path / BEST_POLICY_FILE
        if not policy.exists():
            return
        latest, before = hashlib.sha256(policy.read_bytes()).hexdigest(), self.judged.get(stage)
        if before is not None and before.latest == latest:
            return
        begun = time.monotonic()
        known = self._played(policy, 0, most_noops(stage), "--random-phase")
        other = self._played(policy, *held_out(stage))
        ends = ", ".join(f"{end['x_pos']} ({end['episodes']})" for end in other["ends"])
        if before is None or known["clears"] >= before.known:
            tool = (sys.executable, "-m", "engine.commands.release_policy", "--native")
            names = ("--into", str(self._policies), "--name", f"mario-{stage}")
            subprocess.run([*tool, *names, str(run.path)], check=True, stdout=subprocess.DEVNULL)
            self.judged[stage] = Judged(latest, known["clears"], other["clears"], ends)
        else:
            before.latest = latest
        write_atomically(self._state, msgspec.json.format(msgspec.json.encode(self.judged)))
        _say(f"{stage}: {known['clears']} of {self._episodes} known starts, {other['clears']} of those held out")
        self._judging_s = max(self._judging_s, time.monotonic() - begun)

    def _played(self, policy: Path, low: int, high: int, *also: str) -> dict[str, Any]:
        """The report of `mario-tui eval` on episodes that begin with `low` to `high` no-ops."""
        noops = ("--noop-min", str(low), "--noop-max", str(high))
        options = ("--episodes", str(self._episodes), "--seed", "1", *noops, *also)
        done = subprocess.run(
            [PROGRAM, "eval", str(policy), "--json", *options],
            stdout=subprocess.PIPE,
            check=True,
            start_new_session=True,
        )
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def _row(self, stage: str) -> dict[str, Any]:
        record, judged, recipe = self._record(stage), self.judged.get(stage), RECIPES[stage]
        assert record is not None
        best = record.best
        return {
            "stage": stage,
            "policy": recipe.policy,
            "options": recipe.options,
            "steps": record.env_steps,
            "minutes": round(record.wall_s / 60, 1),
            "best": "" if best is None else f"{best.clears} of {best.episodes}",
            "known": "" if judged is None else judged.known,
            "held_out": "" if judged is None else judged.held_out,
            "band": "{} to {}".format(*held_out(stage)),
            "ends": "" if judged is None else judged.ends,
            "end": "goal" if _is_met(stage, record) else "steps" if record.env_steps >= record.steps else "minutes",
        }


COLUMNS = {
    "stage": "stage",
    "policy": "begins with",
    "options": "options",
    "steps": "steps",
    "minutes": "minutes",
    "best": "best evaluation",
    "known": "clears, known starts",
    "held_out": "clears, held out",
    "band": "held out: no-ops",
    "ends": "where those end without the flag: x",
    "end": "stopped at its",
}
"""Of the CSV, and what the table in Markdown calls them."""


def _is_met(stage: str, record: RunRecord) -> bool:
    best = record.best
    return best is not None and best.clears >= RECIPES[stage].goal * best.episodes


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description="Train Mario's stages one after another.", allow_abbrev=False)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"default: {' '.join(RECIPES)}")
    parser.add_argument("--minutes", type=float, default=25.0, help="of this call (default: 25)")
    parser.add_argument("--out", type=Path, default=Path("campaign"), help="folder for everything (default: campaign)")
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True, help="go on with its runs")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--episodes", type=int, default=100, help="that judge a policy (default: 100)")
    options = parser.parse_args(given[:at])
    stages = options.stages or [*RECIPES]
    try:
        if unknown := [stage for stage in stages if stage not in RECIPES]:
            raise UserError(f"STAGE must be among {', '.join(RECIPES)}, got {unknown[0]}")
        device = str(resolve_device(options.device))
        options.out.mkdir(parents=True, exist_ok=True)
        with exits_on_signals(), open_lock(options.out / "lock") as lock:
            try:
                lock_exclusively(lock)
            except BlockingIOError:
                raise UserError(f"{options.out} is in use by another campaign") from None
            campaign = Campaign(options.out, device, given[at + 1 :], options.episodes)
            try:
                if not options.resume:
                    campaign.begin_anew(stages)
                campaign.run(stages, options.minutes)
            except (KeyboardInterrupt, SystemExit):
                _say("ended; the same command goes on")
            print(campaign.write_tables())
    except UserError as error:
        _say(f"bench.campaign: error: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
