"""What assistants read is what the program says now, and the experiment in it works as it stands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from mario_tui.cli import run
from mario_tui.extras.assistants import EXPERIMENT, text
from mario_tui.features import COMMANDS
from tests.support import assistants
from tests.support.program import json_lines, kill_hosts, run_program


def test_page_and_llms_txt_are_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["assistants"]) == 0
    printed = capsys.readouterr().out
    how = "run: python -m tests.support.assistants"
    assert assistants.PAGE.read_text("utf-8") == printed == text(), how
    assert assistants.INDEX.read_text("utf-8") == assistants.index(), how
    assert {*re.findall(r"^- `mario-tui (\S+?)[` ]", printed, re.MULTILINE)} >= set(COMMANDS)
    assert len(EXPERIMENT) == 10


@pytest.mark.process
def test_the_experiment_works_line_by_line(tmp_path: Path) -> None:
    said = {}
    try:
        for line, _ in EXPERIMENT:
            words = shlex.split(line.replace("20000", "2000").replace("10000", "1000"))[1:]
            done = run_program(*words, cwd=tmp_path, check=0)
            said[" ".join(words[:2])] = done.stdout
    finally:
        kill_hosts(tmp_path)
    assert json.loads(said["schema options"])["properties"]["n_step"]
    compared = json.loads(said["sweep status"])
    assert len(compared["settings"] if isinstance(compared, dict) else compared) > 0
    assert json_lines(said["follow single"])[-1]["event"] == "summary"
    assert json.loads(said["stop single"])[0]["state"] == "finished"
    assert json.loads(said["eval single"])["fresh"] is True
    assert all(row["tag"].startswith("eval/") for row in map(json.loads, said["export single"].splitlines()))
    assert [*(tmp_path / "checkpoints" / "compared").glob("*/run.json")]
