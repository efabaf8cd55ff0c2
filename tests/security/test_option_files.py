"""Code that only a file of options names is imported if the user trusts its folder; places elsewhere are shown."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.config.fields import ConfigError
from engine.errors import UserError
from engine.runs.marks import mark_own, trust
from engine.runs.registry import create_run
from engine.runs.sweep import Sweep
from mario_tui.launch import make_plan
from tests.security.test_compiler import OTHER, only_root
from tests.support.program import Terminal, kill_hosts, refusal, run_program, the_run

TEXT = 'game = "gym"\nenv = "my_env:Corridor-v0"\n'
SHORT = ("--steps", "64", "--burnin", "32", "--batch-size", "16", "--eval-every", "0")


@pytest.fixture
def gift(tmp_path: Path) -> Path:
    """A folder that somebody else has given the user, who has unpacked it."""
    (folder := tmp_path / "gift").mkdir(0o755)
    shutil.copy(Path(__file__).parents[1] / "support" / "my_env.py", folder / "my_env.py")
    (folder / "config.toml").write_text(TEXT)
    (folder / "plan.toml").write_text(f"seeds = 2\n[options]\n{TEXT}")
    return folder


def refused(folder: Path, *arguments: str) -> str:
    line = refusal(*arguments, cwd=folder.parent)
    assert not (folder / "imported").exists()
    return line


@pytest.mark.parametrize(
    "command",
    [
        ("--no-ui", "--config"),
        ("--eval-only", "--config"),
        ("profile", "--config"),
        ("sweep", "--seeds", "2", "--config"),
        ("sweep", "--plan"),
    ],
    ids=" ".join,
)
def test_no_command_imports_what_a_strangers_file_names(command: tuple[str, ...], gift: Path) -> None:
    file = f"gift/{command[-1].removeprefix('--')}.toml"
    code = f"env names code that would run: {gift / 'my_env.py'}:Corridor-v0"
    trusted = f"if you trust the files in {gift}, add --trust"
    assert refused(gift, *command, file) == f"mario-tui: error: {file}: {code}; {trusted}"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ('env = "CartPole-v1"\nnetwork = "my_env:Linear"', "network"),
        ('env = "CartPole-v1"\nenv_import = "my_env:Linear"', "env_import"),
        ('game = "gym:my_env:Corridor-v0"', "env"),
        ('env = "GymV26Environment-v0"\nenv_args = {env_id = "antigravity:Env-v0"}', "env_args"),
        ('env = "GymV26Environment-v0"\nenv-args = {env_id = "antigravity:Env-v0"}', "env_args"),
        ('env = "os:CartPole-v1"', "env"),
        ("env = '{\"size\":1}'", "env"),
    ],
)
def test_each_option_that_names_code_is_asked_about(options: str, named: str, gift: Path) -> None:
    if "env-args" not in options:
        (gift / "config.toml").write_text(options)
        assert f"config.toml: {named} names code" in refused(
            gift, "--no-ui", "--game", "gym", "--config", "gift/config.toml"
        )
    (gift / "plan.toml").write_text(f"seeds = 1\n[options]\n{options}")
    assert f"plan.toml: {named} names code" in refused(gift, "sweep", "--game", "gym", "--plan", "gift/plan.toml")


@pytest.mark.parametrize(
    "vary",
    [
        'network = ["mlp", "my_env:Linear"]',
        'network = "mlp, my_env:Linear"',
        '" --network=my_env:Linear,mlp" = ["small"]',
        "env-args = [{}, {size = 'a.b:C'}]",
        "env = '{\"size\":1}'",  # of a module in the file `{"size".py`
    ],
)
def test_nor_is_what_varies_in_a_plan(vary: str, gift: Path) -> None:
    (gift / "plan.toml").write_text(f'[vary]\n{vary}\n[options]\ngame = "gym"')
    assert " names code that would run: " in refused(gift, "sweep", "--plan", "gift/plan.toml")


@pytest.mark.parametrize(
    "options", ['game = "gym:CartPole-v1"', 'game = "gym:FrozenLake-v1"\nenv_args = {is_slippery = false}']
)
@pytest.mark.process
def test_installed_environments_need_no_trust(options: str, gift: Path) -> None:
    (gift / "config.toml").write_text(options)
    assert make_plan({}, gift / "config.toml").config.game == "gym"


def test_what_is_typed_instead_needs_no_trust(gift: Path) -> None:
    assert make_plan({"env": "CartPole-v1"}, gift / "config.toml").config.value("env") == "CartPole-v1"
    assert not (gift / "imported").exists()


@pytest.mark.process
def test_trust_holds_for_one_start_in_a_script(gift: Path) -> None:
    run_program("--no-ui", "--config", "gift/config.toml", "--trust", *SHORT, cwd=gift.parent)
    assert the_run(gift.parent).config().value("env") == f"{gift / 'my_env.py'}:Corridor-v0"
    (gift / "imported").unlink()
    assert "add --trust" in refused(gift, "--no-ui", "--config", "gift/config.toml")
    run_program("--no-ui", "--resume", "latest", "--steps", "128", cwd=gift.parent)  # which the user has started


@pytest.mark.long
@pytest.mark.process
def test_trust_holds_for_all_members_of_a_sweep(gift: Path) -> None:
    try:
        run_program("sweep", "--plan", "gift/plan.toml", "--name", "two", "--trust", *SHORT, cwd=gift.parent)
        run_program("sweep", "wait", "two", cwd=gift.parent)
        sweep = Sweep(gift.parent / "checkpoints" / "two")
        assert [sweep.run(number).record().state for number in range(2)] == ["finished"] * 2
        run_program("sweep", "add", "two", "--seeds", "1", cwd=gift.parent)
        run_program("sweep", "wait", "two", cwd=gift.parent)
    finally:
        kill_hosts(gift.parent)


@pytest.mark.process
def test_a_terminal_asks_once(gift: Path) -> None:
    command = ("--detach", "--config", "gift/config.toml", *SHORT)
    (gift / "below").mkdir()
    shutil.copy(gift / "config.toml", gift / "below")
    asked = "Do you trust the files in"
    try:
        terminal = Terminal(*command, cwd=gift.parent, columns=200)
        terminal.wait_for(f"--env {gift / 'my_env.py'}:Corridor-v0", f"{asked} {gift}, now and later? [y/N]")
        terminal.send("n\n")
        assert terminal.wait() == 2 and "are not trusted; nothing was started" in terminal.text()
        assert not (gift / "imported").exists()
        terminal = Terminal(*command, cwd=gift.parent, columns=200)
        terminal.wait_for(asked)
        terminal.send("y\n")
        assert terminal.wait() == 0 and (gift / "imported").exists()
    finally:
        kill_hosts(gift.parent)
    assert make_plan({}, gift / "config.toml").config.value("env") == f"{gift / 'my_env.py'}:Corridor-v0"
    (gift / "imported").unlink()
    (gift / "below" / "config.toml").write_text(TEXT.replace("my_env", "../my_env"))
    assert f"the files in {gift / 'below'}, add --trust" in refused(
        gift, "--no-ui", "--config", "gift/below/config.toml"
    )


@pytest.mark.process
def test_a_rank_of_torchrun_is_not_asked(gift: Path) -> None:
    job = "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_RUN_ID=job"
    under = ("env", *job.split())
    command = ("--no-ui", "--runner", "ddp", "--config", "gift/config.toml")
    terminal = Terminal(*command, cwd=gift.parent, columns=200, under=under)
    assert terminal.wait() == 2 and "add --trust" in terminal.text() and "[y/N]" not in terminal.text()


@pytest.mark.parametrize(
    "how",
    [
        *("folder", "sticky", "file", "code", "beside the code", "compiled code", "above", "link"),
        pytest.param("another user's", marks=only_root),
    ],
)
def test_nobody_trusts_what_others_can_write(how: str, gift: Path, tmp_path: Path) -> None:
    file = gift / "config.toml"
    trust(gift)
    match how:
        case "folder":
            gift.chmod(0o777)
        case "sticky":
            gift.chmod(0o1777)
        case "file":
            file.chmod(0o666)
        case "code":
            (gift / "my_env.py").chmod(0o666)
        case "beside the code":  # where Python would take compiled code from
            (sticky := tmp_path / "sticky").mkdir()
            sticky.chmod(0o1777)
            (gift / "my_env.py").rename(sticky / "my_env.py")
            file.write_text(TEXT.replace("my_env", str(sticky / "my_env")))
        case "compiled code":
            (gift / "__pycache__").mkdir()
            (gift / "__pycache__").chmod(0o1777)
        case "above":
            tmp_path.chmod(0o777)
        case "link":
            (open_to_all := tmp_path / "open").mkdir()
            open_to_all.chmod(0o777)
            file.rename(open_to_all / "config.toml")
            file.symlink_to(open_to_all / "config.toml")
        case _:
            os.chown(file, OTHER, OTHER)
    reason = "belongs to another user" if how == "another user's" else "can be written by others"
    needed = f"env names code that would run, and .* {reason}; if you trust it, give it on the command line: --env "
    for trusted in (False, True):
        with pytest.raises(UserError, match=needed):
            make_plan({}, file, trusted=trusted)
    assert not (gift / "imported").exists()
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("command", [("--plan", "gift/plan.toml"), ("--seeds", "2", "--config", "gift/config.toml")])
def test_nor_a_module_that_is_found_where_others_can_write(command: tuple[str, ...], gift: Path) -> None:
    (sticky := gift.parent / "sticky").mkdir()
    sticky.chmod(0o1777)
    (gift / "my_env.py").rename(sticky / "my_env.py")
    line = refusal("sweep", *command[:-1], f"../{command[-1]}", "--trust", cwd=sticky)
    assert f"names code that would run, and {sticky} can be written by others" in line
    assert not (sticky / "imported").exists()


@pytest.mark.process
def test_the_file_of_an_own_run_names_what_the_user_has_chosen(gift: Path) -> None:
    config = make_plan({"run_dir": str(gift.parent)}, gift / "config.toml", trusted=True).config
    mark_own((run := create_run(config, "own")).path, config.values())
    file = run.path / "config.toml"
    assert make_plan({}, file).config.value("env") == f"{gift / 'my_env.py'}:Corridor-v0"
    file.write_text(file.read_text().replace("Corridor-v0", "Other-v0"))
    with pytest.raises(UserError, match="env names code"):
        make_plan({}, file)


@pytest.mark.process
def test_another_folder_is_not_trusted(gift: Path, tmp_path: Path) -> None:
    trust(gift)
    assert make_plan({}, gift / "config.toml")
    gift.rename(tmp_path / "before")
    shutil.copytree(tmp_path / "before", gift)  # as a later gift that is unpacked there
    for folder in (gift, tmp_path / "before"):
        with pytest.raises(UserError, match="add --trust"):
            make_plan({}, folder / "config.toml")


def test_places_elsewhere_are_shown(gift: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = 'game = "snake"\nrunner = "apex"\nray = "192.0.2.1:6379"\nsinks = "wandb,mlflow"\n'
    (gift / "config.toml").write_text(f'{options}run_dir = "{tmp_path}/runs"\n')
    places = f"--run-dir {tmp_path}/runs, --ray 192.0.2.1:6379, --sinks wandb"
    with pytest.raises(ConfigError), pytest.MonkeyPatch.context() as patch:
        (tmp_path / "here").mkdir()
        patch.chdir(tmp_path / "here")
        make_plan({"gamma": 2}, gift / "config.toml")
    assert capsys.readouterr().err == f"note: {gift}/config.toml names places elsewhere: {places}\n"


@pytest.mark.parametrize("run_dir", ["runs", "../gift/runs"])
def test_usual_places_are_not(run_dir: str, gift: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (gift / "config.toml").write_text(f'game = "snake"\nrun_dir = "{run_dir}"\nsinks = "json-lines"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(gift)
        assert make_plan({}, Path("config.toml")).notes == ()
    assert capsys.readouterr().err == ""


@pytest.mark.process
def test_the_log_of_a_run_names_places_elsewhere_too(gift: Path, tmp_path: Path) -> None:
    (gift / "config.toml").write_text(f'game = "snake"\nboard = "5x5"\nrun_dir = "{tmp_path}/elsewhere"\n')
    done = run_program("--no-ui", "--config", "config.toml", *SHORT, cwd=gift)
    line = f"config.toml names places elsewhere: --run-dir {tmp_path}/elsewhere"
    (log,) = (tmp_path / "elsewhere").glob("*/run.log")
    assert done.stderr.splitlines()[0] == f"note: {line}" and line in log.read_text()
    (gift / "plan.toml").write_text(f'seeds = 1\n[options]\nseed = 1\nrun_dir = "{tmp_path}/elsewhere"\n')
    done = run_program("sweep", "--plan", "plan.toml", cwd=gift, check=2)
    assert done.stderr.splitlines()[0] == f"note: plan.toml names places elsewhere: --run-dir {tmp_path}/elsewhere"
