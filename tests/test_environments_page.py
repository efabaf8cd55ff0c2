"""The code of docs/environments.md runs, and its tables say what there is."""

from __future__ import annotations

import re
from pathlib import Path

from engine.config.games import own_options
from tests.support.program import json_lines, run_program

PAGE = (Path(__file__).parent.parent / "docs" / "environments.md").read_text("utf-8")
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.M | re.S))
SHORT = ("--burnin", "200", "--batch-size", "16", "--replay-ratio", "1", "--steps", "600", "--eval-every", "600")


def test_the_environment_and_the_network_of_the_page_are_trained(tmp_path: Path) -> None:
    assert FILES.keys() == {"my_env.py", "my_net.py"}
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    command = next(line for line in PAGE.splitlines() if line.startswith("mario-tui") and "--network" in line)
    options = command.split()[1:]
    done = run_program("--no-ui", "--log-format", "json", *options, *SHORT, cwd=tmp_path)
    events = json_lines(done.stdout)
    assert any(event["event"] == "evaluation" for event in events)
    assert any(event["event"] == "episode" and event["episode_return"] == 1 for event in events)


def test_the_page_names_every_option() -> None:
    named = set(re.findall(r"--([a-z-]+)", PAGE))
    own = {name.replace("_", "-") for name, spec in own_options("gym").items() if not spec.metadata["hidden"]}
    assert own <= named
