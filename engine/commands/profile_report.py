"""The report of a profile, as Markdown and as figures for JSON."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.commands.profile_figures import PARTS, WORTH, Gain, Idea, Measurement, gain, limit, limiting, parts
from engine.config.fields import flag
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.protocol.messages import Split
from engine.runtime.stopwatch import SECTIONS

_ROWS = 12  # maximum number of rows of the table over time
_NAMES = {
    "learning": "learner-bound",
    "playing": "bound by playing",
    "sampling": "bound by the replay",
    "synchronising": "bound by synchronisation",
    "waiting": "waiting",
    "bookkeeping": "bound by bookkeeping",
    "the rest": "bound by what happens between the sections",
}


@dataclass(frozen=True)
class Trial:
    """An idea, the measurement before and the one with it; `found` is None if it could not be run."""

    idea: Idea
    config: RunConfig
    before: Measurement
    found: Measurement | None
    adopted: bool
    failure: str = ""


@dataclass(frozen=True)
class Confirmed:
    """Measurements of the original and the recommended configuration, in alternation."""

    before: tuple[Measurement, ...]
    after: tuple[Measurement, ...]

    @property
    def gain(self) -> Gain:
        return gain(self.before, self.after)

    @property
    def holds(self) -> bool:
        return self.gain.ratio >= WORTH


def options_between(before: RunConfig, after: RunConfig) -> list[str]:
    """The command-line flags that change `before` to `after`."""
    old = before.options()
    return [_as_flag(name, value) for name, value in after.options().items() if old.get(name) != value]


def markdown(name: str, base: Measurement, trials: list[Trial], confirmed: Confirmed | None) -> str:
    """The report as Markdown."""
    part, share = limit(base)
    config = base.config
    given = " ".join(options_between(make_config({"game": config.game, "runner": config.runner}), config)) or "defaults"
    ready = base.ready
    where = f"{ready.device} in {ready.precision}, {ready.lane_threads} lane threads, " if ready else ""
    lines = [
        f"# Profile of {name}",
        "",
        f"{config.game} under the {config.runner} runner ({given}), {time.strftime('%Y-%m-%d %H:%M')}: {where}"
        f"{base.seconds:.0f} s of steady state.",
        "",
        f"**{base.env_steps_per_s:,.0f} environment steps/s**, {base.updates_per_s:,.1f} updates/s, "
        f"{base.samples_per_s:,.0f} learned samples/s.",
        "",
        "## What limits it",
        "",
        f"It is **{_NAMES[part]}**: {part} takes {share:.0%} of the loop of {limiting(base.processes).process}"
        f"{_within(part, limiting(base.processes))}.",
        f"The run kept {base.cores_used:.1f} of {base.cores} cores busy; other programs took {base.others:.0%} of the "
        "machine meanwhile.",
        "",
        "## Where the time goes",
        "",
    ]
    for split in base.processes:
        lines += [*_table(split), ""]
    lines += [
        "*Loop*: share of the time of the process's main loop, including waiting for its threads; adds up to 100 %. "
        "*Threads*: average number of threads at work. *Cores*: CPU time of these threads.",
        "",
        "## The machine during the run",
        "",
        *_machine(base),
        "",
        "## Recommendations",
        "",
        *_recommendations(base, trials, confirmed),
        "",
    ]
    if ready is not None and ready.device.startswith("cuda"):
        lines += [
            "Work on a GPU is queued: sections measure the time for queueing it, and waiting for the GPU counts as "
            "learning. The table above shows how busy the GPU was.",
            "",
        ]
    lines += [
        f"Evaluations and checkpoints were off, and the replay held {base.replay_size:,} of {config.buffer_size:,} "
        "transitions. Compiled networks and other numbers of threads were not tried, because they have no options.",
        "",
    ]
    return "\n".join(lines)


def figures(name: str, base: Measurement, trials: list[Trial], confirmed: Confirmed | None) -> dict[str, Any]:
    """The figures of the report, for `--json`."""
    part, share = limit(base)
    return {
        "run": name,
        "options": base.config.options(),
        **_rates(base),
        "limit": {"part": part, "share": share, "process": limiting(base.processes).process},
        "processes": [msgspec.to_builtins(split) for split in base.processes],
        "cores_used": base.cores_used,
        "machine": [{"at_s": at, **msgspec.to_builtins(system)} for at, system in base.systems],
        "trials": [
            {
                "options": options_between(trial.before.config, trial.config),
                "why": trial.idea.why,
                "before": _rates(trial.before),
                "after": None if trial.found is None else _rates(trial.found),
                "faster": trial.adopted,
                "failure": trial.failure or None,
            }
            for trial in trials
        ],
        "recommended": _recommended(base, trials, confirmed),
        "confirmed": None
        if confirmed is None
        else {
            "before": [_rates(each) for each in confirmed.before],
            "after": [_rates(each) for each in confirmed.after],
            "ratio": confirmed.gain.ratio,
            "by_processor_time": confirmed.gain.by_processor_time,
            "holds": confirmed.holds,
        },
    }


def _rates(measured: Measurement) -> dict[str, float]:
    return {
        "env_steps_per_s": measured.env_steps_per_s,
        "updates_per_s": measured.updates_per_s,
        "samples_per_s": measured.samples_per_s,
        "speed": measured.speed,
        "speed_per_core": measured.speed_per_core,
        "others": measured.others,
    }


def _recommended(base: Measurement, trials: list[Trial], confirmed: Confirmed | None) -> list[str]:
    adopted = [trial for trial in trials if trial.adopted]
    if confirmed is None or not confirmed.holds or not adopted:
        return []
    return options_between(base.config, adopted[-1].config)


def _recommendations(base: Measurement, trials: list[Trial], confirmed: Confirmed | None) -> list[str]:
    lines = []
    flags = _recommended(base, trials, confirmed)
    if confirmed is not None:
        found = confirmed.gain
        clock = "steps per second of CPU time" if found.by_processor_time else "environment steps/s"
        each = [
            ", ".join(f"{m.speed_per_core if found.by_processor_time else m.speed:,.0f}" for m in measured)
            for measured in (confirmed.before, confirmed.after)
        ]
        what = f"**`{' '.join(flags)}`**:" if flags else "None. A faster trial was not confirmed; it is"
        lines += [f"{what} {found.ratio:.2f} times as fast (alternating runs: {each[0]} → {each[1]} {clock}).", ""]
    elif trials:
        lines += ["None. No trial was at least 10 % faster.", ""]
    else:
        return ["None. Nothing was tried."]
    lines += ["| tried | because | steps/s | steps/CPU s | |", "|---|---|---|---|---|"]
    by_processor_time = False
    for trial in trials:
        flag_text = " ".join(options_between(trial.before.config, trial.config))
        if trial.found is None:
            lines.append(f"| `{flag_text}` | {trial.idea.why} | | | {trial.failure} |")
            continue
        before, after = trial.before, trial.found
        compared = gain([before], [after])
        by_processor_time |= compared.by_processor_time
        lines.append(
            f"| `{flag_text}` | {trial.idea.why} | {before.speed:,.0f} → {after.speed:,.0f} | "
            f"{before.speed_per_core:,.0f} → {after.speed_per_core:,.0f} | "
            f"{compared.ratio - 1:+.0%}{' by CPU time' * compared.by_processor_time}, "
            f"{'adopted' if trial.adopted else 'not adopted'} |"
        )
    if by_processor_time:
        lines += ["", "Speeds are compared by the run's own CPU time where others took over a fifth of the machine."]
    if any("batch_size" in trial.idea.changes for trial in trials if trial.adopted) and flags:
        lines += [
            "",
            "With larger batches the optimiser takes fewer steps for the same number of samples: check the returns as "
            "well, and consider raising --learning-rate.",
        ]
    return lines


def _within(part: str, split: Split) -> str:
    found = [(section, split.loop.get(section, 0.0)) for section in PARTS.get(part, ())]
    shown = ", ".join(f"{section} {share:.0%}" for section, share in sorted(found, key=lambda each: -each[1]) if share)
    return f" ({shown})" if len(found) > 1 and shown else ""


def _table(split: Split) -> list[str]:
    lines = [f"| {split.process} | loop | threads | cores |", "|---|---|---|---|"]
    for section in SECTIONS:
        numbers = [part.get(section, 0.0) for part in (split.loop, split.busy, split.cpu)]
        if max(numbers) >= 0.001:
            loop, busy, cpu = numbers
            lines.append(f"| {section} | {loop:.1%} | {busy:.2f} | {cpu:.2f} |")
    lines.append(f"| between the sections | {parts(split)['the rest']:.1%} | | |")
    return lines


def _machine(base: Measurement) -> list[str]:
    systems = base.systems
    if not systems:
        return ["Not measured: the run was too short."]
    gpus = systems[-1][1].gpus
    head = ["s", "cores busy", "by the run", "memory of the run"]
    for index in range(len(gpus)):
        head += [f"GPU {index}", f"its memory, of {_or_unknown(gpus[index].memory_total_bytes, 2**30, 0)} GiB"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    every = -(-len(systems) // _ROWS)
    for at, system in systems[::every]:
        row = [f"{at:.0f}", f"{sum(system.cpu_percent) / 100:.1f}", f"{system.run_cpu_percent / 100:.1f}",
               f"{system.run_memory_bytes / 2**30:.2f} GiB"]  # fmt: skip
        for gpu in system.gpus:
            row += [f"{_or_unknown(gpu.utilisation_percent)} %", f"{_or_unknown(gpu.memory_used_bytes, 2**30, 1)} GiB"]
        lines.append(f"| {' | '.join(row)} |")
    if not gpus:
        lines += ["", f"GPU: {systems[-1][1].gpu_note}."]
    return lines


def _or_unknown(value: float | None, unit: float = 1.0, digits: int = 0) -> str:
    """A number in a unit; a question mark if the GPU does not report it."""
    return "?" if value is None else f"{value / unit:.{digits}f}"


def _as_flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return flag(name) if value else flag(f"no_{name}")
    return f"{flag(name)} {value}"
