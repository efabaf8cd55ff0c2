"""`mario-tui completion`, in interactive shells. Shells that are not on this machine are skipped."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from engine.config.reading import make_config
from engine.errors import UserError
from engine.runs.registry import create_run
from mario_tui.cli import run
from mario_tui.extras.completion import SHELLS
from tests.support.program import Terminal

HOSTILE = "$(touch hurt)"
SOURCED = {
    "bash": "bind 'set show-all-if-ambiguous on'; bind 'set enable-bracketed-paste off'; "
    'eval "$(mario-tui completion bash)"',
    "zsh": "autoload -Uz compinit; compinit -D -u; unsetopt auto_menu; PROMPT='$ '; "
    'eval "$(mario-tui completion zsh)"',
    "fish": "function fish_prompt; echo '$ '; end; mario-tui completion fish | source",
}
COMMAND = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(UserError, match="invalid choice: 'csh'"):
        run(["completion", "csh"])


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.process
def test_tab_completes_commands_options_values_and_runs(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    create_run(make_config({"run_dir": str(tmp_path / "runs"), "game": "snake"}), "my-run")
    create_run(make_config({"run_dir": str(tmp_path / "runs"), "game": "snake"}), HOSTILE)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PS1", "$ ")
    terminal = Terminal(cwd=tmp_path, columns=120, rows=40, program=COMMAND[shell])
    terminal.send(f"{SOURCED[shell]}; clear; echo rea''dy\r")
    terminal.wait_for("ready")
    cases = (
        ("mario-tui prof", "profile "),
        ("mario-tui --preset apex-", "apex-classic", "apex-paper"),
        ("mario-tui --boa", "--board "),
        ("mario-tui --game te", "tetris"),
        ("mario-tui play --stage 8-", "8-1", "8-4"),
        ("mario-tui export --format ", "csv", "jsonl", "parquet"),
        ("mario-tui attach my", "my-run"),
        ("mario-tui stop latest my", "my-run"),
        ("mario-tui --resume ", "latest", "my-run", "touch"),
        ("mario-tui eval snake-", "snake-12x12"),
        ("mario-tui distill mario-1-1 8-", "8-1", "8-4"),
        ("mario-tui export --run-dir ru", "runs/"),
    )
    for number, (typed, *wanted) in enumerate(cases):
        terminal.send(f"{typed}\t")
        terminal.wait_for(*wanted)
        terminal.send("\x15\x03")  # delete the line, and leave a menu
        terminal.send(f"clear; echo nex''t {number}\r")
        terminal.wait_for(f"next {number}")
    terminal.hang_up()
    terminal.wait()
    assert not (tmp_path / "hurt").exists()
