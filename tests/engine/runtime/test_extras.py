"""The command that adds an extra fits how the program was installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.runtime.text import _command, install_command


def test_an_extra_is_added_to_the_clone_that_the_program_runs_from(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    pip = clone / ".venv/bin/pip"
    pip.parent.mkdir(parents=True)
    origin = json.dumps({"dir_info": {"editable": True}, "url": clone.as_uri()})
    assert _command("ray", origin, pip, clone) == "pip install -e '.[ray]'"
    pip.touch()
    assert _command("ray", origin, pip, clone) == ".venv/bin/pip install -e '.[ray]'"
    assert _command("ray", origin, pip, tmp_path) == f"'{pip}' install -e '{clone}[ray]'"
    elsewhere = tmp_path / "an environment" / "pip"
    elsewhere.parent.mkdir()
    elsewhere.touch()
    assert _command("ray", origin, elsewhere, clone) == f"'{elsewhere}' install -e '.[ray]'"
    assert _command("ray", origin, pip, None) == f"'{pip}' install -e '{clone}[ray]'"


@pytest.mark.parametrize("origin", [None, '{"archive_info": {}, "url": "file:///mario_tui.whl"}', '{"dir_info": {}}'])
def test_other_installations_get_an_extra_by_the_packages_name(origin: str | None, tmp_path: Path) -> None:
    assert _command("ray", origin, tmp_path, tmp_path) == "pip install 'mario-tui[ray]'"


def test_this_installation_has_a_command() -> None:
    assert "[ray]'" in install_command("ray")
