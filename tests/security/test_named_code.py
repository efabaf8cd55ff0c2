"""Code that an option names is imported only if the user typed it now, or if a run names it that the user started
here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from engine.config.command_line import command_line
from engine.config.fields import ConfigError
from engine.config.user_code import import_module
from engine.runs.marks import check_code
from engine.runs.run import Run
from mario_tui.data.form import Form
from tests.support.program import run_program, the_run

TYPED = ("--game", "gym:my_env:Corridor-v0", "--network", "my_env:Linear")
SHORT = ("--no-ui", "--burnin", "100", "--eval-every", "200", "--batch-size", "16", "--replay-ratio", "1")


def new_folder(folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(Path(__file__).parents[1] / "support" / "my_env.py", folder / "my_env.py")
    return folder


def refused(*arguments: str, cwd: Path) -> str:
    done = run_program(*arguments, cwd=cwd, check=2)
    assert not (cwd / "imported").exists()
    (line,) = done.stderr.strip().splitlines()[-1:]
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a run was trained, with another home than any test has."""
    folder = new_folder(tmp_path_factory.mktemp("user") / "trained")
    run_program(*SHORT, *TYPED, "--steps", "400", cwd=folder)
    return folder


@pytest.fixture
def stranger(trained: Path, tmp_path: Path) -> Run:
    """The run, as somebody else has unpacked it: the code that it names is there."""
    (trained / "imported").unlink(missing_ok=True)
    shutil.copytree(trained / "checkpoints", tmp_path / "unpacked")
    return Run(next((tmp_path / "unpacked").iterdir()))


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "RUN"),
        ("--no-ui", "--resume", "RUN", "--steps", "500"),
        *(pytest.param(command, marks=pytest.mark.long) for command in (
            ("play", "RUN", "--record", "x.gif"), ("--no-ui", "--resume", "RUN", "--eval-only"),
        )),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
@pytest.mark.process
def test_code_of_a_strangers_run_or_policy_is_not_imported(
    command: tuple[str, ...], trained: Path, stranger: Run
) -> None:
    line = refused(*(str(stranger.path) if word == "RUN" else word for word in command), cwd=trained)
    assert "--env must be given" in line and line.endswith(f"{trained / 'my_env.py'}:Corridor-v0")


@pytest.mark.long
@pytest.mark.process
def test_each_option_that_names_code_has_to_be_typed(trained: Path, stranger: Run) -> None:
    env = f"{trained / 'my_env.py'}:Corridor-v0"
    assert "--network must be given" in refused("eval", str(stranger.path), "--env", env, cwd=trained.parent)
    done = run_program("--no-ui", *TYPED[:2], "--initial-policy", str(stranger.path), cwd=trained, check=2)
    assert f"must have network mlp, as this run, got {trained / 'my_env.py'}:Linear" in done.stderr


@pytest.mark.long
@pytest.mark.process
def test_nor_is_it_to_export_its_policy(trained: Path, stranger: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    assert "--env must be given" in refused("export", str(stranger.path), "--format", "onnx", cwd=trained)
    typed = ("--env", "my_env:Corridor-v0", "--network", "my_env:Linear")
    done = run_program("export", str(stranger.path), "--format", "onnx", *typed, cwd=new_folder(tmp_path / "elsewhere"))
    assert "actions agree with the policy" in done.stdout


def test_arguments_of_a_strangers_environment_are_not_used(tmp_path: Path) -> None:
    """Gymnasium itself has environments that import what their arguments name."""
    said = {"game": "gym", "env": "GymV26Environment-v0", "env_args": '{"env_id": "antigravity:Env-v0"}'}
    with pytest.raises(ConfigError, match="--env-args must be given"):
        check_code(said, {}, tmp_path, "the policy")
    check_code(said, {"env_args": said["env_args"]}, tmp_path, "the policy")
    check_code({**said, "env_args": "{}"}, {}, tmp_path, "the policy")


@pytest.mark.process
def test_what_the_user_types_is_imported(trained: Path, stranger: Run, tmp_path: Path) -> None:
    typed = ("--env", "my_env:Corridor-v0", "--network", "my_env:Linear")
    elsewhere = new_folder(tmp_path / "elsewhere")  # the same code in another place
    done = run_program("eval", str(stranger.path), *typed, "--episodes", "2", cwd=elsewhere)
    assert "2 games" in done.stdout and (elsewhere / "imported").exists() and not (trained / "imported").exists()


@pytest.mark.long
@pytest.mark.process
def test_an_own_run_goes_on_by_itself(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "own")
    run_program(*SHORT, *TYPED, "--steps", "400", cwd=folder)
    run = the_run(folder)
    assert run.config().value("env") == f"{folder / 'my_env.py'}:Corridor-v0"
    assert "games" in run_program("eval", run.name, "--episodes", "2", cwd=folder).stdout
    run_program("--no-ui", "--resume", run.name, "--steps", "500", cwd=folder)
    shutil.copytree(run.path, folder / "checkpoints" / "copy")  # which is not the run that was made here
    assert "--env must be given" in run_program("eval", "copy", cwd=folder, check=2).stderr
    values = run.config().values()
    check_code(values, {}, run.path, "the run")
    with pytest.raises(ConfigError, match="--env must be given"):  # nor is what somebody has put into it since
        check_code({**values, "env": "other:Env-v0"}, {}, run.path, "the run")


def test_a_file_with_the_name_of_another_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('imported instead of the real one')\n")
    with pytest.raises(ConfigError, match="can't be imported: ImportError: there is another module json; rename the"):
        import_module(str(tmp_path / "json.py"), "env")


def test_a_folder_or_a_link_of_the_same_name_is_no_other_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real" / "my_maze").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "my_maze_2.py").write_text("SIZE = 3\n")
    (tmp_path / "my_maze.py").write_text("SIZE = 2\n")
    monkeypatch.syspath_prepend(tmp_path / "link")
    assert import_module(str(tmp_path / "my_maze.py"), "env").SIZE == 2
    assert import_module(str(tmp_path / "real" / "my_maze_2.py"), "env").SIZE == 3


def test_a_module_that_is_not_imported_yet_is_not_hidden_either(tmp_path: Path) -> None:
    (tmp_path / "this.py").write_text("raise RuntimeError('imported instead of the real one')\n")
    with pytest.raises(ConfigError, match="there is another module this; rename the file"):
        import_module(str(tmp_path / "this.py"), "env")


@pytest.mark.long
@pytest.mark.process
def test_a_file_beside_the_user_hides_no_module(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "own")
    (folder / "json.py").write_text("raise RuntimeError('imported instead of the real one')\n")
    run_program(*SHORT, *TYPED, "--steps", "200", "--eval-every", "0", cwd=folder)


@pytest.mark.process
def test_a_list_and_a_form_of_a_strangers_run_import_nothing(trained: Path, stranger: Run) -> None:
    """Home shows the command of the selected run, and a form its options."""
    env_args = {"env_args": '{"width":5}'}
    config = stranger.config().changed(
        **env_args, spaces=stranger.config().value("spaces").replace(r'"{}"', '"{\\"width\\":5}"')
    )
    assert "--env-args" in command_line(config)
    assert Form(config.options(), stranger.name).config().value("env_args") == env_args["env_args"]
    assert not (trained / "imported").exists()


@pytest.mark.process
def test_to_list_a_strangers_run_without_spaces_asks_no_environment(tmp_path: Path) -> None:
    """Its options can't be read then; to find its spaces out would run the environment's code."""
    marker, run = tmp_path / "imported", tmp_path / "checkpoints" / "theirs"
    (tmp_path / "theirs.py").write_text(f"open({str(marker)!r}, 'w')\n")
    run_program("--no-ui", "--game", "gym:CartPole-v1", "--steps", "64", "--name", "theirs", cwd=tmp_path)
    lines = (run / "config.toml").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("spaces =", "env ="))]
    (run / "config.toml").write_text("\n".join([*kept, f'env = "{tmp_path}/theirs.py:Env-v0"']) + "\n")
    (listed,) = json.loads(run_program("runs", "--json", cwd=tmp_path).stdout)
    assert listed["name"] == "theirs" and listed["options"] is None and not marker.exists()
