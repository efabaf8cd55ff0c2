"""`mario-tui profile`: analysis of measurements, report and trace of a real run, and whether its advice is correct."""

from __future__ import annotations

import dataclasses
import json
import signal
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.config.command_line import given
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.extras.profiling.profile import RunFailedError, measure, search
from engine.extras.profiling.report import (
    Confirmed,
    Measurement,
    Trial,
    figures,
    gain,
    ideas,
    limit,
    markdown,
    mean_split,
    options_between,
)
from engine.protocol.messages import GPU, Failed, Ready, Split, System
from mario_tui.commands.train import training_parser
from tests.support.program import PATIENCE_S, PROGRAM, nobody_is_left, run_program, wait_until

SNAKE = ("--game", "snake", "--board", "5x5", "--parallel-envs", "8", "--batch-size", "64")


def measured(
    config: RunConfig,
    loop: dict[str, float],
    speed: float = 100.0,
    cores_used: float = 1.0,
    others: float = 0.0,
    members: tuple[Split, ...] = (),
) -> Measurement:
    """A measurement on an idle machine with two cores."""
    leader = Split(process="player", seconds=5.0, loop=loop, busy=loop, cpu=loop)
    return Measurement(
        config=config,
        ready=Ready(device="cpu", precision="float32", lane_threads=2, torch_threads=2),
        seconds=5.0,
        env_steps_per_s=speed,
        updates_per_s=speed * config.replay_ratio / config.batch_size,
        processes=[leader, *members],
        cores=2,
        cores_used=cores_used,
        others=others,
    )


def first_idea(config: RunConfig, loop: dict[str, float], **rest: Any) -> dict[str, Any]:
    return ideas(measured(config, loop, **rest))[0][0].changes


LEARNING = {"forward": 0.45, "backward": 0.35, "optimise": 0.03, "sample": 0.05, "act": 0.06, "emulate": 0.01}
PLAYING = {"forward": 0.1, "backward": 0.1, "act": 0.4, "emulate": 0.25, "insert": 0.05}


def test_the_limit_is_the_part_of_the_loop_that_takes_most() -> None:
    part, share = limit(measured(RunConfig(), LEARNING))
    assert (part, round(share, 2)) == ("learning", 0.83)
    assert limit(measured(RunConfig(), PLAYING))[0] == "playing"
    actor = Split(process="actor 0", seconds=5.0, loop={"emulate": 0.7, "act": 0.3}, busy={}, cpu={})
    waiting = measured(make_config({"runner": "apex"}), {"wait": 0.8, "forward": 0.2}, members=(actor,))
    assert limit(waiting) == ("playing", 1.0)


def test_ideas_follow_the_limit() -> None:
    assert first_idea(RunConfig.of(amp=False, batch_size=256), LEARNING) == {"amp": True}
    assert first_idea(RunConfig.of(batch_size=8), LEARNING) == {"batch_size": 32}
    assert first_idea(RunConfig.of(parallel_envs=1), PLAYING) == {"parallel_envs": 4}
    balanced = {"forward": 0.25, "backward": 0.2, "emulate": 0.45, "act": 0.02}
    assert {"async_envs": True} in [
        idea.changes for idea, _ in ideas(measured(RunConfig.of(async_envs=False), balanced))
    ]
    assert all("async_envs" not in idea.changes for idea, _ in ideas(measured(RunConfig(), balanced)))
    assert first_idea(RunConfig.of(emulator="nes-py"), {"emulate": 0.8, "forward": 0.2}) == {"emulator": "native"}


def test_an_idea_keeps_all_other_options() -> None:
    ranks = make_config({"game": "snake", "runner": "ddp", "num_processes": 2, "board": "4x4", "seed": 3})
    changed = {str(idea.changes.get("runner")): config for idea, config in ideas(measured(ranks, {"synchronise": 0.8}))}
    single = changed["single"]
    assert (single.parallel_envs, single.batch_size) == (2 * ranks.parallel_envs, 2 * ranks.batch_size)
    assert (single.value("board"), single.seed, single.runner) == ("4x4", 3, "single")


def test_on_a_busy_machine_speeds_are_compared_by_cpu_time() -> None:
    config = RunConfig()
    slow, fast = measured(config, LEARNING, 100, 1.0), measured(config, LEARNING, 150, 1.0)
    assert gain([slow], [fast]).ratio == pytest.approx(1.5)
    starved = measured(config, LEARNING, 90, 0.5, others=0.6)
    found = gain([slow], [starved])
    assert found.by_processor_time and found.ratio == pytest.approx(1.8)


def test_the_search_adopts_faster_options_and_continues_from_them() -> None:
    speeds = {8: 100.0, 32: 180.0, 128: 190.0}

    def again(config: RunConfig) -> Measurement:
        if config.parallel_envs > 32:
            raise RunFailedError(Failed(reason="no memory", traceback="", log_path="", checkpoint=None))
        return measured(config, LEARNING, speeds[config.batch_size])

    base = again(RunConfig.of(batch_size=8))
    trials = search(base, 3, again, lambda text: None)
    assert [(trial.config.batch_size, trial.adopted) for trial in trials] == [(32, True), (128, False), (32, False)]
    assert trials[2].failure == "no memory"
    best = trials[0].found
    assert best is not None
    report = markdown("x", base, trials, Confirmed((base, base), (best, best)))
    assert "**`--batch-size 32`**: 1.80 times as fast (alternating runs: 100, 100 → 180, 180" in report
    assert "learner-bound" in report and "learning takes 83% of the loop" in report
    assert "no memory" in report
    chance = Confirmed((base, base), (best, dataclasses.replace(best, env_steps_per_s=20)))
    assert "None. A faster trial was not confirmed; it is 1.00 times as fast" in markdown("x", base, trials, chance)
    assert figures("x", base, trials, chance)["recommended"] == []
    assert figures("x", base, trials[1:], None)["recommended"] == []


def test_gpus_are_shown_over_time() -> None:
    def system(percent: float) -> System:
        gpu = GPU(name="H", utilisation_percent=percent, memory_used_bytes=3 * 2**30, memory_total_bytes=80 * 2**30,
                  temperature_c=None)  # fmt: skip
        return System(cpu_percent=[50.0, 100.0], memory_used_bytes=0, memory_total_bytes=1, run_cpu_percent=120.0,
                      run_memory_bytes=2**30, processes=2, gpus=[gpu], gpu_note="")  # fmt: skip

    base = dataclasses.replace(
        measured(RunConfig.of(device="cpu"), LEARNING),
        systems=[(float(second), system(second)) for second in range(30)],
    )
    report = markdown("x", base, [], None)
    assert "| s | cores busy | by the run | memory of the run | GPU 0 | its memory, of 80 GiB |" in report
    rows = [line for line in report.splitlines() if line.endswith("| 3.0 GiB |")]
    assert len(rows) == 10 and rows[1] == "| 3 | 1.5 | 1.2 | 1.00 GiB | 3 % | 3.0 GiB |"
    assert {"device": "auto"} in [idea.changes for idea, _ in ideas(base)]
    on_gpu = dataclasses.replace(
        base, ready=Ready(device="cuda:0", precision="bfloat16", lane_threads=2, torch_threads=1)
    )
    assert "Work on a GPU is queued" in markdown("x", on_gpu, [], None)
    busy = dataclasses.replace(on_gpu, others=0.9)
    assert not gain([busy], [on_gpu]).by_processor_time
    (idea, config), *_ = ideas(base)
    row = next(
        line
        for line in markdown("x", busy, [Trial(idea, config, busy, busy, False)], None).splitlines()
        if line.endswith("not adopted |")
    )
    assert row.endswith("| +0%, not adopted |")
    starved = dataclasses.replace(base, others=0.9)
    report = markdown("x", base, [Trial(idea, config, base, starved, False)], None)
    assert "| +0% by CPU time, not adopted |" in report and "by the run's own CPU time" in report


def test_a_batch_that_the_run_has_chosen_counts_as_learned_samples() -> None:
    chosen = dataclasses.replace(
        measured(RunConfig(), LEARNING, 100),
        config=make_config({"batch_size": "auto"}),
        ready=Ready(device="cpu", precision="float32", lane_threads=2, torch_threads=2, batch_size=512),
        updates_per_s=3.0,
    )
    assert chosen.samples_per_s == 1536


def test_splits_are_averaged_weighted_by_their_seconds() -> None:
    one = Split(process="a", seconds=1.0, loop={"act": 0.4}, busy={}, cpu={})
    two = Split(process="a", seconds=3.0, loop={"act": 0.2, "log": 0.1}, busy={}, cpu={})
    found = mean_split([one, two])
    assert found.loop == pytest.approx({"act": 0.25, "log": 0.075})


def test_options_between_are_flags() -> None:
    after = make_config({"batch_size": 32, "amp": False, "runner": "parallel"})
    assert set(options_between(RunConfig(), after)) >= {"--batch-size 32", "--no-amp", "--runner parallel"}


@pytest.mark.long
@pytest.mark.process
def test_a_profile_of_snake_writes_report_and_trace(tmp_path: Path) -> None:
    done = run_program(
        "profile", *SNAKE, "--runner", "parallel", "--num-processes", "2", "--duration", "4", "--trials", "0",
        "--replay-ratio", "16",  # so that learning takes most of the time on any machine
        "--json", "--report-file", "report.md", "--trace", "trace.json", cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["limit"]["part"] == "learning" and found["env_steps_per_s"] > 0
    assert [split["process"] for split in found["processes"]] == ["worker 0", "worker 1"]
    for split in found["processes"]:
        assert 0.7 < sum(split["loop"].values()) <= 1.01
        assert {"act", "forward", "backward", "sample", "insert", "synchronise"} <= set(split["loop"])
    report = (tmp_path / "report.md").read_text()
    assert "It is **learner-bound**" in report and "| backward |" in report
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len({event["pid"] for event in events}) == 2
    assert {"act", "emulate", "forward", "backward"} <= {event["name"] for event in events}
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["report.md", "trace.json"]
    nobody_is_left(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--duration", "soon"), "--duration must be between 2 and 3,600, got 'soon'"),
        (("--batch-size", "-1"), "--batch-size"),
        (("--report-file", "nowhere/report.md"), "--report-file: nowhere/report.md: can't be written"),
        (("--trials", "many"), "--trials must be a whole number between 0 and 100, got 'many'"),
        (("--resume", "latest"), "unrecognized arguments: --resume latest (see: mario-tui profile --help)"),
        (("--buffer-size", "1e12"), "--buffer-size"),
    ],
)
@pytest.mark.process
def test_wrong_usage_is_one_line(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = run_program("profile", *arguments, cwd=tmp_path, check=2)
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("running")]
    assert line.startswith("mario-tui: error: ") and said in line


@pytest.mark.long
@pytest.mark.process
def test_an_aborted_profile_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [*PROGRAM, "profile", *SNAKE, "--duration", "600"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and "running" in process.stderr.readline()
    wait_until(
        lambda: list(tmp_path.glob("mario-tui-profile-*/runs/*/run.json")), "the run that is measured", by=process
    )
    process.terminate()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    process.stderr.close()
    nobody_is_left(tmp_path)
    assert list(tmp_path.glob("mario-tui-profile-*")) == []


BAD = {
    "one lane, in turns": ("--no-async-envs", "--parallel-envs", "1"),
    "tiny batches": ("--batch-size", "8", "--replay-ratio", "8"),
    "float32": ("--no-amp",),
}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BAD)
@pytest.mark.process
def test_following_the_advice_makes_a_bad_configuration_faster(name: str, tmp_path: Path) -> None:
    """Both configurations are measured again, in alternation, after the profile."""
    if name == "float32" and "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor does not multiply in bfloat16")
    done = run_program(
        "profile", *BAD[name], "--duration", "12", "--trials", "4", "--json", "--report-file", "report.md",
        cwd=tmp_path, timeout_s=1500,
    )  # fmt: skip
    flags = [word for option in json.loads(done.stdout)["recommended"] for word in option.split()]
    assert flags, done.stderr + (tmp_path / "report.md").read_text()
    before, after = (make_config(given(training_parser().parse_args([*BAD[name], *more]))) for more in ([], flags))
    turns = [(measure(before, tmp_path / "runs", 8), measure(after, tmp_path / "runs", 8)) for _ in range(3)]
    by_processor_time = gain(*zip(*turns, strict=True)).by_processor_time
    slow, fast = (
        statistics.median(each.speed_per_core if by_processor_time else each.speed for each in side)
        for side in zip(*turns, strict=True)
    )
    assert fast > 1.1 * slow
