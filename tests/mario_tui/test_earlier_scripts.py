"""Every command line of docs/coming-from-earlier-scripts.md works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mario_tui.cli import run
from tests.support.program import run_program, the_run

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-earlier-scripts.md"
LINES = re.findall(r"^- .+:\s+`mario-tui (.+)`$", PAGE.read_text("utf-8"), re.MULTILINE)
EARLIER_FLAGS = (
    "--num-processes", "--num-actors", "--parallel-envs", "--batch-size", "--render", "--burnin", "--episodes",
    "--sync-every", "--save-every", "--eval-only", "--buffer-size", "--learning-rate", "--alpha", "--beta",
    "--beta-annealing", "--prioritized-replay", "--no-amp", "--async-envs", "--use-mmap-buffer", "--resume",
    "--duration", "--report-file",
)  # fmt: skip
QUICK = re.compile("^--eval-only")
"""Lines that the short tests run; the long tests run all."""
A_FEW_STEPS = ("--no-ui", "--steps", "64", "--burnin", "32", "--batch-size", "16", "--buffer-size", "8000")


@pytest.mark.parametrize(
    "line",
    [line if QUICK.search(line) else pytest.param(line, marks=pytest.mark.long) for line in LINES],
)
@pytest.mark.process
def test_an_earlier_command_line_works(line: str, tmp_path: Path) -> None:
    words = shlex.split(line)
    if words[0] == "profile":
        run_program(*words, "--duration", "2", "--trials", "0", "--parallel-envs", "2", cwd=tmp_path)
        assert (tmp_path / "profile.md").read_text("utf-8").startswith("# ")
        return
    if "--resume" in words or "--eval-only" in words:
        game = ("--game", words[words.index("--game") + 1]) if "--game" in words else ()
        run_program(*A_FEW_STEPS, *game, "--parallel-envs", "2", cwd=tmp_path)
    if "--eval-only" in words:
        done = run_program(*words, "--eval-episodes", "1", cwd=tmp_path)
        assert "mean return" in done.stdout
        return
    run_program(*words, *A_FEW_STEPS, *(("--steps", "128") if "--resume" in words else ()), cwd=tmp_path)
    record = the_run(tmp_path).record()
    assert record.state == "finished" and record.env_steps >= 64


def test_the_page_explains_every_earlier_flag() -> None:
    rows = re.findall(r"^- (`--[^:]+`): (?!`mario-tui)", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {flag for row in rows for flag in re.findall(r"--[a-z-]+", row)} >= set(EARLIER_FLAGS)


def test_the_help_has_every_flag_of_earlier_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        run(["--help-all"])
    assert done.value.code == 0
    words = set(re.split(r"[\s,]+", capsys.readouterr().out))
    assert set(EARLIER_FLAGS) <= words
