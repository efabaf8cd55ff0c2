"""The report of a profile, as Markdown and as figures for JSON: the part of a run's loop that limits it, and ideas for
making it faster.

`Idea.at_most` is the share of the loop that an idea could save. It only decides the order in which ideas are tried;
recommendations are based on measurements (`engine.extras.profiling.profile`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import msgspec

from engine.config.fields import AUTO, ConfigError, flag
from engine.config.reading import make_config
from engine.config.run_config import RunConfig, belongs
from engine.config.runners import RUNNERS
from engine.protocol.messages import Ready, Split, System
from engine.runtime.stopwatch import SECTIONS

PARTS: dict[str, tuple[str, ...]] = {
    "learning": ("transfer", "forward", "backward", "optimise"),
    "playing": ("act", "emulate", "preprocess", "insert"),
    "sampling": ("sample",),
    "synchronising": ("synchronise",),
    "waiting": ("wait",),
    "bookkeeping": ("log", "evaluate", "save"),
}
"""Parts of the loop, with their sections."""
WORTH = 1.1
"""Factor by which a recommended configuration must be faster; smaller differences are within measurement noise."""
BUSY = 0.2
"""Share of the machine taken by other programs above which wall time says little."""
_WORTH_TRYING = 0.05
_LARGEST_BATCH, _MOST_LANES = 1024, 512


@dataclass(frozen=True)
class Measurement:
    """A run's rates and splits over `seconds` of steady state."""

    config: RunConfig
    ready: Ready | None
    seconds: float
    env_steps_per_s: float
    updates_per_s: float
    processes: list[Split]  # means, the leading process first
    cores: int
    cores_used: float  # by all processes of the run
    others: float  # share of the machine's processor time that other programs took
    systems: list[tuple[float, System]] = field(default_factory=list)  # seconds since learning began
    replay_size: int = 0

    @property
    def samples_per_s(self) -> float:
        """Transitions learned per second, by all ranks."""
        ranks = self.config.processes if self.config.runner_info.averages_gradients else 1
        batch_size = self.config.batch_size
        if batch_size == AUTO and self.ready is not None:
            batch_size = self.ready.batch_size
        return self.updates_per_s * batch_size * ranks

    @property
    def speed(self) -> float:
        """Environment steps per second. Under Ape-X, those that the learner keeps up with at the replay ratio, because
        actors may run ahead."""
        if self.config.runner_info.learner:
            return self.samples_per_s / self.config.replay_ratio
        return self.env_steps_per_s

    @property
    def speed_per_core(self) -> float:
        """`speed` per core used: environment steps per second of CPU time."""
        return self.speed / max(self.cores_used, 1e-9)


@dataclass(frozen=True)
class Gain:
    """Ratio of the speeds of two configurations, by wall time or by CPU time."""

    ratio: float
    by_processor_time: bool


@runtime_checkable
class HasFasterOptions(Protocol):
    """A game in which the same lanes can step much faster."""

    def faster(self, config: RunConfig) -> Mapping[str, Any]:
        """Return the options that make them, if a run has others."""


def gain(before: Sequence[Measurement], after: Sequence[Measurement]) -> Gain:
    """Compare mean speeds: by CPU time for runs on the CPU if other programs were busy, because then the share of the
    machine that a run gets is random; otherwise by wall time."""
    every = (*before, *after)
    on_cpu = all(each.ready is not None and each.ready.device == "cpu" for each in every)
    by_processor_time = on_cpu and any(each.others > BUSY for each in every)

    def mean(measured: Sequence[Measurement]) -> float:
        return statistics.fmean(each.speed_per_core if by_processor_time else each.speed for each in measured)

    return Gain(mean(after) / max(mean(before), 1e-9), by_processor_time)


def mean_split(splits: Sequence[Split]) -> Split:
    """The mean of several splits of one process, weighted by their seconds."""
    seconds = sum(split.seconds for split in splits)

    def mean(name: str) -> dict[str, float]:
        parts: list[dict[str, float]] = [getattr(split, name) for split in splits]
        sections = dict.fromkeys(section for part in parts for section in part)
        weighted = {
            section: sum(split.seconds * part.get(section, 0.0) for split, part in zip(splits, parts, strict=True))
            for section in sections
        }
        return {section: total / seconds for section, total in weighted.items()} if seconds else {}

    return Split(process=splits[0].process, seconds=seconds, loop=mean("loop"), busy=mean("busy"), cpu=mean("cpu"))


def parts(split: Split) -> dict[str, float]:
    """Share of the loop of each part; time outside all sections is "the rest"."""
    found = {part: sum(split.loop.get(section, 0.0) for section in sections) for part, sections in PARTS.items()}
    return {**found, "the rest": max(0.0, 1 - sum(found.values()))}


def limiting(processes: Sequence[Split]) -> Split:
    """The process that limits the run: the leading one, or its members if it waits for them most of the time."""
    leader, *members = processes
    if members and leader.loop.get("wait", 0.0) > 0.5:
        return mean_split(members)
    return leader


def limit(measured: Measurement) -> tuple[str, float]:
    """The part that takes most of the limiting process's loop, and its share."""
    shares = parts(limiting(measured.processes))
    part = max(shares, key=shares.__getitem__)
    return part, shares[part]


@dataclass(frozen=True)
class Idea:
    """Changes of options that may make a run faster, and why; to be confirmed by a measurement."""

    changes: dict[str, Any]
    why: str
    at_most: float


def ideas(measured: Measurement) -> list[tuple[Idea, RunConfig]]:
    """Ideas to try next, with the changed configurations; the most promising first."""
    config = measured.config
    found = []
    for idea in sorted(_ideas(measured), key=lambda idea: -idea.at_most):
        changed = _changed(config, idea.changes)
        if idea.at_most >= _WORTH_TRYING and changed is not None and changed != config:
            found.append((idea, changed))
    return found


def _ideas(measured: Measurement) -> Iterable[Idea]:
    config, split = measured.config, limiting(measured.processes)
    share = parts(split)
    learning, emulation, sampling = share["learning"], split.loop.get("emulate", 0.0), share["sampling"]
    each_step = share["playing"] + share["bookkeeping"] + share["the rest"]
    gpus = bool(measured.systems and measured.systems[-1][1].gpus)
    if not config.amp:
        yield Idea({"amp": True}, f"learning in float32 takes {learning:.0%} of the loop", learning / 2)
    if config.device == "cpu" and gpus:
        yield Idea({"device": "auto"}, f"learning on the CPU takes {learning:.0%} of the loop", learning)
    if config.batch_size != AUTO and config.batch_size < _LARGEST_BATCH:
        small = config.batch_size < 64
        saved = 0.75 if small else 0.5 if config.batch_size < 256 else 0.2
        yield Idea(
            {"batch_size": config.batch_size * (4 if small else 2)},
            f"learning and sampling take {learning + sampling:.0%} of the loop, in batches of "
            f"{config.batch_size}; larger ones share the costs of an update",
            saved * (learning + sampling),
        )
    if config.accumulate > 1:
        yield Idea(
            {"accumulate": 1}, f"learning takes {learning:.0%} of the loop, in {config.accumulate} parts", learning / 4
        )
    if config.parallel_envs < _MOST_LANES:
        factor = 4 if config.parallel_envs < 16 else 2
        yield Idea(
            {"parallel_envs": config.parallel_envs * factor},
            f"what is done once for all lanes ({config.parallel_envs}) takes {each_step:.0%} of the loop",
            each_step * (1 - 1 / factor),
        )
    if belongs("async_envs", config.game, config.runner) and not config.async_envs:
        yield Idea(
            {"async_envs": True},
            f"the loop waits {emulation:.0%} of its time for the lanes, and learns {learning:.0%} of it",
            min(emulation, learning),
        )
    game = config.game_info
    if isinstance(game, HasFasterOptions) and (faster := dict(game.faster(config))):
        yield Idea(faster, f"emulation takes {emulation:.0%} of the loop", 0.9 * emulation)
    if config.replay_in_files:
        yield Idea({"replay_device": "auto"}, f"sampling from the file takes {sampling:.0%} of the loop", sampling / 2)
    yield from _ideas_of_runners(measured, split)


def _ideas_of_runners(measured: Measurement, split: Split) -> Iterable[Idea]:
    config, cores = measured.config, measured.cores
    waits = split.loop.get("synchronise", 0.0) + split.loop.get("wait", 0.0)
    runner, processes = config.runner_info, config.processes
    waiting = measured.processes[0].loop.get("wait", 0.0)
    if runner.learner and runner.count and waiting > 0.2 and processes < cores:
        yield Idea({runner.count: 2 * processes}, f"the {runner.learner} waits {waiting:.0%} of its time", waiting)
    if processes > 1 and len(_gpus(measured)) < processes:
        changes: dict[str, Any] = {"runner": RunConfig.runner, "parallel_envs": config.parallel_envs * processes}
        if runner.averages_gradients and config.batch_size != AUTO:
            changes["batch_size"] = config.batch_size * processes
        yield Idea(
            changes,
            f"{len(measured.processes)} processes share {cores} cores, and synchronise and wait {waits:.0%} of their "
            "time; as many lanes in one",
            waits + 0.1,
        )
    plays = parts(split)["playing"]
    if runner.count is None and cores > 2 and config.parallel_envs > 1:
        beside, count = next((info, info.count) for info in RUNNERS.values() if info.learner and info.count)
        yield Idea(
            {"runner": beside.name, count: 2, "parallel_envs": config.parallel_envs // 2},
            f"playing takes {plays:.0%} of the loop that also learns; two {beside.member}s would play beside it",
            plays,
        )


def _gpus(measured: Measurement) -> list[Any]:
    on_gpu = measured.ready is not None and measured.ready.device.startswith("cuda")
    return measured.systems[-1][1].gpus if on_gpu and measured.systems else []


def _changed(config: RunConfig, changes: dict[str, Any]) -> RunConfig | None:
    """The configuration with changes, without options that its runner does not have; None if it is not valid."""
    values = {**config.options(), **changes}
    values = {name: value for name, value in values.items() if belongs(name, config.game, values["runner"])}
    try:
        return make_config(values)
    except ConfigError:
        return None


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
