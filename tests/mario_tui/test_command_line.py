"""What commands answer at once, without a process of their own."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from textual.widgets import Static

from engine.config.game import game_of
from engine.config.reading import make_config
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.games.boards.board_game import BoardGame
from engine.host.host_events import recorded
from engine.protocol.messages import Evaluation, FinalEvaluation, Mean
from engine.protocol.results import FinalResult
from engine.runs import checkpoints
from engine.runs.lookup import delete, find_policy, find_run, find_source, find_sweep, how_to_name
from engine.runs.marks import RECORD_FILE
from engine.runs.registry import create_run, list_runs
from engine.runs.run import Run
from engine.runs.sweep import Member, Sweep, SweepPlan
from mario_tui.app import MarioApp
from mario_tui.cli import run
from mario_tui.commands.train import training_parser
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.features import COMMANDS
from mario_tui.widgets.runs_table import RunsTable
from tests.support.app import folder_of_runs, until, write_recording
from tests.support.policy_files import altered, shipped
from tests.support.program import PATIENCE_S, PROGRAM


def refused(*arguments: str) -> str:
    """The one line that a command is refused with."""
    with pytest.raises(UserError) as error:
        run(list(arguments))
    assert "\n" not in str(error.value)
    return str(error.value)


def run_with_policy(folder: Path, policy: str = "mario-1-1") -> Run:
    """A run that `eval` and `--resume` accept."""
    made = create_run(make_config({"game": policy.partition("-")[0], "run_dir": str(folder)}))
    (made.path / checkpoints.BEST_POLICY_FILE).write_bytes(shipped(policy).read_bytes())
    checkpoint = made.path / checkpoints.folder_name(100)
    checkpoint.mkdir()
    (checkpoint / "config.toml").write_text(RunConfig(run_dir=str(folder)).to_toml())
    checkpoints.seal(checkpoint, 100, 1)
    return made


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Paths of the runs that are listed."""
    assert run(["runs", "--json", *arguments]) == 0
    return [each["path"] for each in json.loads(capsys.readouterr().out)]


def test_a_run_dir_is_the_only_folder_that_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = run_with_policy(tmp_path / "here"), run_with_policy(tmp_path / "there")
    (tmp_path / "empty").mkdir()
    assert listed(capsys, "--run-dir", "here") == [str(here.path)]
    assert listed(capsys, "--run-dir", "empty") == []
    assert set(listed(capsys)) == {str(here.path), str(there.path)}
    assert run(["runs", "--run-dir", "empty"]) == 0
    assert capsys.readouterr().out.startswith("no runs in empty yet")
    for name in ("latest", there.name):
        for command in (["attach", name], ["eval", name], ["play", name], ["--no-ui", "--resume", name]):
            assert name in refused(*command, "--run-dir", "empty")
    assert refused("attach", "--run-dir", "empty") == "latest: there is no run in empty yet"
    assert refused("--no-ui", "--resume", "latest", "--run-dir", "empty") == (
        "--resume latest: no run in empty has a checkpoint yet"
    )
    for folder, made in (("here", here), ("there", there)):
        source = find_source("latest", folder)
        assert source.run is not None and source.run.path == made.path
        assert find_policy("latest", folder).parent == made.path


def test_a_sweep_in_place_of_a_run_is_told_and_the_reverse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0),))
    path = create_sweep(tmp_path / "checkpoints", "lr", plan).path
    create_run(RunConfig(run_dir=str(path)), "lr-001")
    for name in ("lr", str(path)):
        told = f"{name}: is a sweep, not a run; use: mario-tui sweep watch {name} (or sweep stop, resume, wait)"
        for command in ("attach", "wait", "export", "play", "eval"):
            assert refused(command, name) == told
        assert refused("--no-ui", "--resume", name) == f"--resume: {told}"
        assert run(["stop", name]) == 2 and capsys.readouterr().err == f"mario-tui: error: {told}\n"
    for name in ("lr-001", str(path / "lr-001")):
        for command in ("watch", "status", "stop"):
            told = f"{name}: is a run, not a sweep; use: mario-tui attach {name} (or stop, pause, wait)"
            assert refused("sweep", command, name) == told


def test_a_name_in_two_folders_is_the_one_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=())
    made = dict[str, tuple[Run, Sweep]]()
    for folder in ("a", "b"):
        run_dir = tmp_path / folder / "checkpoints"
        made[folder] = create_run(RunConfig(run_dir=str(run_dir)), "base"), create_sweep(run_dir, "rates", plan)
        create_run(RunConfig(run_dir=str(run_dir / "rates")), "rates-001")
    for folder, (base, sweep) in made.items():
        monkeypatch.chdir(tmp_path / folder)
        assert find_run("base").path == base.path and find_sweep("rates").path == sweep.path
        assert find_run("rates-001").path.parent == sweep.path
        assert (how_to_name(base), how_to_name(sweep)) == ("base", "rates")
        assert find_run("rates-001", tmp_path / folder / "checkpoints").path.parent == sweep.path
    create_run(RunConfig(run_dir=str(tmp_path / "b" / "checkpoints" / "rates")), "base")
    assert find_run("base").path == made["b"][0].path  # not the one in the sweep
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert how_to_name(made["a"][0]) == str(made["a"][0].path) and how_to_name(made["a"][1]) == str(made["a"][1].path)
    assert refused("sweep", "stop", "base").startswith("base: is a run, not a sweep")
    assert refused("attach", "rates").startswith("rates: is a sweep, not a run")
    for name, command in (("base", ["attach"]), ("rates-001", ["eval"]), ("rates", ["sweep", "stop"])):
        told = refused(*command, name)
        assert re.match(rf"{name}: [23] have this name; give one of the paths: ", told)
        assert all(str(tmp_path / folder / "checkpoints") in told for folder in made)


def test_a_moved_run_has_the_name_and_the_checkpoints_of_its_folder(tmp_path: Path) -> None:
    run = create_run(RunConfig(run_dir=str(tmp_path)), "before")
    record = run.record()
    record.checkpoint = str(run.path / "step-000000000100")
    run.write_record(record)
    (run.path / "step-000000000100").mkdir()
    run.path.rename(tmp_path / "after")
    record = Run(tmp_path / "after").record()
    assert (record.name, record.checkpoint) == ("after", str(tmp_path / "after" / "step-000000000100"))
    for nowhere in ("step-000000000200", "..", "", "x/.."):
        record.checkpoint = nowhere
        Run(tmp_path / "after").write_record(record)
        assert Run(tmp_path / "after").record().checkpoint is None


@pytest.mark.parametrize("command", [["runs"], ["attach"], ["eval", "latest"], ["play", "latest"]])
def test_a_run_dir_that_is_not_there_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_run(RunConfig(run_dir="runs"))
    (tmp_path / "file").touch()
    assert refused(*command, "--run-dir", "missing") == "--run-dir must be an existing folder, got 'missing'"
    assert refused(*command, "--run-dir", "file") == "--run-dir must be a folder, got the file 'file'"


@pytest.mark.long
def test_eval_only_evaluates_the_newest_run_of_the_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mario = run_with_policy(tmp_path / "checkpoints")
    snake = run_with_policy(tmp_path / "checkpoints", "snake-12x12")  # newer
    create_run(make_config({"run_dir": "checkpoints"}))  # newer, without a policy
    assert run(["--game", "mario", "--eval-only", "--eval-episodes", "2", "--log-format", "json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["policy"], result["episodes"]) == (str(mario.path / checkpoints.BEST_POLICY_FILE), 2)
    assert "no effect" not in printed.err
    assert run(["--eval-only", "--resume", mario.name, "--eval-episodes", "2", "--parallel-envs", "16"]) == 0
    printed = capsys.readouterr()
    assert "stage 1-1 on native: 2/2 clears" in printed.out
    assert "mario-tui: --parallel-envs has no effect with --eval-only\n" in printed.err
    assert refused("--eval-only", "--resume", snake.name, "--game", "tetris").startswith("--game must be snake, as in ")
    told = "--eval-only: no run of 5x5 in checkpoints has a policy yet"  # no other network fits
    assert refused("--eval-only", "--game", "snake:5x5").startswith(told)


def test_eval_only_without_a_run_names_the_command_that_evaluates_any_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_with_policy(tmp_path / "elsewhere")
    for arguments in (["--game", "snake"], ["--game", "tetris", "--run-dir", "elsewhere"], ["--resume", "missing"]):
        complaint = refused(*arguments, "--eval-only", "--parallel-envs", "16")
        assert complaint.startswith("--eval-only: ") and complaint.endswith("; for any policy: mario-tui eval POLICY")
        assert len(complaint.splitlines()) == 1


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused("eval", "a\udcff") == r"arguments and the current folder must be valid UTF-8, got 'a\udcff'"
    folder = tmp_path / "b\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert refused("runs").endswith(r"b\udcff'")


@pytest.mark.parametrize("text", ["1e3", "1000", "1_000", "1000.0"])
def test_a_count_may_be_written_in_every_usual_way(text: str) -> None:
    """Past the count, it is the policy that is missing."""
    assert "missing: no such checkpoint" in refused("eval", "missing", "--episodes", text)


def test_an_automatic_batch_size_may_be_computed_in_parts() -> None:
    assert make_config({"batch_size": "auto", "accumulate": 300}).accumulate == 300


def test_a_damaged_record_is_listed_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = create_run(make_config({"game": "snake", "runner": "apex", "run_dir": str(tmp_path)}))
    (made.path / RECORD_FILE).write_text('{"name": "x"')
    run(["runs", "--json"])
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["state"], record["path"]) == ("damaged", str(made.path))
    assert (record["name"], record["game"], record["runner"]) == (made.name, "snake", "apex")
    assert record["reason"].startswith("run.json: ")
    run(["runs"])
    assert f"damaged   {made.path}: run.json: " in capsys.readouterr().out.splitlines()[1]
    (made.path / "config.toml").write_text("[[")
    assert [each.record().state for each in list_runs()] == ["damaged"]
    delete(made)
    assert list_runs() == []


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_lists_fit_into_the_terminal(
    columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, sweeps = tmp_path / "runs" / ("deep-" * 20), tmp_path / "sweeps" / ("deep-" * 20)
    long = "a-run-of-a-very-long-name-of-many-words-that-ends-with-its-number-17"
    folder_of_runs(runs, **{long: "finished", "short": "failed", "another": "running"})
    (runs / "another" / RECORD_FILE).write_text('{"name": "x"')
    create_sweep(sweeps, "a-sweep", SweepPlan(options={"game": "snake"}, jobs=1, threads=1, members=(Member({}, 0),)))
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run(["runs", "--run-dir", str(runs)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(len(line) <= columns for line in lines)
    assert [line.split()[0] for line in lines[1:]] == ["another", "short", lines[3].split()[0]]
    assert lines[3].startswith("a-run-of") and lines[3].split()[0].endswith("17")
    assert ("10,000" in lines[3]) == (columns > 40)  # a number is whole or left out
    run(["sweep", "status", "--run-dir", str(sweeps)])
    (line,) = capsys.readouterr().out.splitlines()
    assert len(line) <= columns and line.startswith("a-sweep") and line.endswith("a-sweep")


def test_a_filter_may_begin_with_dashes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, amp in (("off", False), ("on", True)):
        create_run(make_config({"game": "snake", "amp": amp, "run_dir": str(tmp_path)}), name)
    run(["runs", "--run-dir", str(tmp_path), "--filter", "--no-amp", "--names"])
    assert capsys.readouterr().out == "off\n"


def test_the_list_has_fractions_the_best_evaluation_and_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = create_run(make_config({"game": "snake", "board": "5x5", "run_dir": str(tmp_path)}))
    record = made.record()
    record.mean_return = 0.47
    best = Evaluation(env_steps=2000, episodes=30, clears=1, mean_return=3.5, best=True, seconds=1, results=(2.0,))
    record.best = recorded(best, game_of("snake").outcome)
    made.write_record(record)
    run(["runs"])
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (head[-2:], row[-2:]) == (["RETURN", "BEST"], ["0.470", "2.00"])
    final = FinalEvaluation(
        env_steps=4000, policy_env_steps=2000, episodes=100, clears=1, clear_rate_low=0.002, clear_rate_high=0.05,
        mean_return=Mean(2.5, 2.0, 3.0), results=(Mean(1.5, 1.0, 2.0),), note="no time for more",
    )  # fmt: skip
    record.result = FinalResult.of(final, game_of("snake").outcome)
    made.write_record(record)
    run(["runs"])
    told, *rows = capsys.readouterr().out.splitlines()
    assert told.endswith("    BEST  RESULT") and rows[0].endswith("    2.00  1.50 (1.00 to 2.00)")
    record.game = "mario"
    made.write_record(record)
    run(["runs"])
    assert capsys.readouterr().out.splitlines()[1].endswith("      3%  1% (0.2% to 5%)")
    record.game = "snake"
    made.write_record(record)
    run(["runs", "--json"])
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["best"] == {
        "env_steps": 2000, "episodes": 30, "clears": 1, "mean_return": 3.5, "mean_score": 2.0
    }  # fmt: skip
    assert listed["result"] == {
        "policy_env_steps": 2000, "episodes": 100, "clears": 1, "starts": "", "note": "no time for more",
        "clear_rate": 0.01, "clear_rate_low": 0.002, "clear_rate_high": 0.05,
        "mean_return": 2.5, "mean_return_low": 2.0, "mean_return_high": 3.0,
        "mean_score": 1.5, "mean_score_low": 1.0, "mean_score_high": 2.0,
    }  # fmt: skip
    assert listed["options"] == json.loads(json.dumps(made.config().options()))
    assert listed["options"]["board"] == "5x5"


def test_the_list_tells_evaluations_if_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = folder_of_runs(tmp_path, evaluated="finished", other="finished")
    write_recording(made, [], evaluated=[0.53, math.nan])
    (tmp_path / "other" / "history.msgpack").unlink()
    run(["runs", "--json", "--evaluations", "--run-dir", str(tmp_path)])
    other, evaluated = json.loads(capsys.readouterr().out)
    assert (other["name"], other["evaluations"]) == ("other", [])
    one = {
        "env_steps": 1000,
        "episodes": 10,
        "clears": 0,
        "mean_return": 0.53,
        "best": True,
        "seconds": 1.0,
        "solved": None,
    }
    assert evaluated["evaluations"] == [
        one | {"mean_x_pos": 42.0},
        one | {"env_steps": 2000, "mean_return": None, "best": False, "mean_x_pos": 42.0},
    ]
    run(["runs", "--json", "--run-dir", str(tmp_path)])
    assert "evaluations" not in json.loads(capsys.readouterr().out)[0]
    assert "--json" in refused("runs", "--evaluations")


async def test_the_list_names_a_state_as_home_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = create_run(RunConfig(run_dir=str(tmp_path)))
    record = made.record()
    record.state, record.env_steps, record.reason = "finished", 10, "stopped from the dashboard"
    made.write_record(record)
    run(["runs", "--run-dir", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[1].split()[1] == "stopped"
    run(["runs", "--json", "--run-dir", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)[0]["state"] == "stopped"
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)):
        assert "■ stopped" in [str(cell) for cell in app.screen.query_one(RunsTable).get_row_at(0)]


async def test_home_shows_a_damaged_run_and_why(tmp_path: Path) -> None:
    made = create_run(RunConfig(run_dir=str(tmp_path)))
    (made.path / RECORD_FILE).write_text("")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        table = app.screen.query_one(RunsTable)
        assert "! damaged" in [str(cell) for cell in table.get_row_at(0)]
        preview = app.screen.query_one("#preview-text", Static)
        await until(pilot, lambda: "run.json: " in str(preview.render()), "the reason")


def test_home_is_not_opened_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "must be a folder" in refused("--run-dir", str(tmp_path / "file"))


def test_the_table_names_folders_where_there_are_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        create_run(RunConfig(run_dir=str(tmp_path / folder)))
    run(["runs"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "FOLDER"
    assert {row.split()[-1] for row in rows} == {str(tmp_path / "a"), str(tmp_path / "b")}
    run(["runs", "--run-dir", str(tmp_path / "a")])
    assert "FOLDER" not in capsys.readouterr().out


def test_the_help_lists_every_command() -> None:
    listed = [
        line.split()[1] for line in training_parser().format_help().splitlines() if line.startswith("  mario-tui")
    ]
    assert [name for name in listed if re.fullmatch("[a-z][a-z-]*", name)] == [*COMMANDS]


@pytest.mark.parametrize("asked", [("--help",), ("-h",), ("help",), ("help", "--game", "tetris")])
def test_the_help_begins_with_what_is_used_daily(asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        run([*asked])
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(["--help-all", *asked[1:]])
    everything = capsys.readouterr().out
    assert not done.value.code and len(shown.splitlines()) < 100 < 200 < len(everything.splitlines())
    task = "--board" if "tetris" in asked else "--stage"
    for daily in ("mario-tui attach", "--resume", task, "--steps", "--run-dir", "--help-all"):
        assert daily in shown and daily in everything
    assert shown.index("mario-tui attach") < shown.index("--resume")
    assert "--learning-rate" in everything and "--learning-rate" not in shown


def test_help_of_a_command_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["help", "wait"])
    assert capsys.readouterr().out.startswith("usage: mario-tui wait ")


@pytest.mark.process
def test_output_that_does_not_fit_on_the_disk_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "completion", "bash"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
    assert done.stderr == "mario-tui: error: can't write the output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("policy", "episodes", "played"),
    [
        ("mario-1-1", 2, 2),
        ("mario-six-stages", 3, 6),
        pytest.param("mario-six-stages", 265, 270, marks=pytest.mark.long),
        pytest.param("snake-12x12", 1, 1, marks=pytest.mark.long),
    ],
)
@pytest.mark.process
def test_an_evaluation_plays_every_stage_equally_often(
    policy: str, episodes: int, played: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["eval", policy, "--episodes", str(episodes), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == played and {task["episodes"] for task in result["tasks"]} <= {played // 6}
    assert (result["mean_score_low"] is None) == (played == 1)


@pytest.mark.process
def test_an_evaluation_begins_in_any_phase_if_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    asked, lengths = ["eval", "mario-1-1", "--stage", "3-4", "--episodes", "4", "--noop-max", "0", "--json"], []
    for also in ([], ["--random-phase"]):
        assert run([*asked, *also]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["random_phase"] == bool(also)
        lengths.append({episode["length"] for episode in result["played"]})
    assert len(lengths[0]) == 1 < len(lengths[1])


@pytest.mark.process
def test_a_share_of_the_episodes_of_an_evaluation_begins_halfway(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "mario-1-1", "--episodes", "4", "--halfway-starts", "0.5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["halfway_starts"] == 0.5
    assert min(episode["length"] for episode in result["played"]) < 150
    with pytest.raises(UserError, match=r"^halfway_starts must be .* \(castles, world 8\), got 0\.5$"):
        run(["eval", "mario-1-4", "--halfway-starts", "0.5"])


@pytest.mark.process
def test_an_evaluation_tells_where_episodes_end(capsys: pytest.CaptureFixture[str]) -> None:
    stages = ["1-1", "1-2"]
    asked = ["eval", "mario-1-1", "--stage", ",".join(stages), "--episodes", "6", "--seed", "3"]
    assert run([*asked, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    played = result["played"]
    assert [each["episode"] for each in played] == [1, 2, 3, 4, 5, 6]
    assert all(each["cleared"] == [each["stage"]] * each["flag"] for each in played)
    assert result["clears"] == 6 * result["mean_cleared"] == sum(each["flag"] for each in played) == 3
    missed = sorted((each["stage"], each["x_pos"] // 64 * 64) for each in played if not each["flag"])
    ends = [(each["stage"], each["x_pos"]) for each in result["ends"] for _ in range(each["episodes"])]
    assert ends == missed and {stage for stage, _ in ends} == {"1-2"}

    assert run(asked) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    places = ", ".join(f"{each['x_pos']:,} ({each['episodes']})" for each in result["ends"])
    assert told == f"ends in 1-2 by x, in steps of 64: {places}"

    assert run(["eval", "tetris-7x14", "--episodes", "1", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert not {"ends", "mean_cleared"} & other.keys() and other["played"][0]["score"] == other["mean_score"]


@pytest.mark.process
def test_policies_that_take_turns_play_the_whole_game(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "mario-1-1,mario-six-stages"
    assert run(["eval", asked, "--episodes", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["name"], result["stage"], result["episodes"], result["trained_env_steps"]) == (
        asked,
        "game",
        2,
        None,
    )
    assert all(each["cleared"][0] == "1-1" and each["stage"] != "1-1" for each in result["played"])
    assert result["mean_cleared"] >= 1 and sum(end["episodes"] for end in result["ends"]) == 2

    assert run(["eval", asked, "--episodes", "1", "--stage", "1-1"]) == 0
    assert "stage 1-1 on native: 1/1 clears" in capsys.readouterr().out
    assert refused("eval", "mario-1-1,snake-12x12") == (
        "CHECKPOINT: policies that take turns must all be for mario, got 'mario-1-1,snake-12x12'"
    )
    assert refused("eval", asked, "--fresh") == "--fresh can't be combined with policies that take turns"
    other = altered("mario-1-1", tmp_path, frame_skip=3)
    told = "CHECKPOINT: policies that take turns must have the same frame skip and size of pictures"
    assert refused("eval", f"{other},mario-six-stages") == told


@pytest.mark.process
def test_several_policies_are_an_array_of_those_that_could_be_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = altered("snake-12x12", tmp_path, network="grid")
    assert run(["eval", str(damaged), "mario-1-1", "--episodes", "2", "--json"]) == 1
    said = capsys.readouterr()
    (result,) = json.loads(said.out)
    assert (result["kind"], result["name"], result["clears"]) == ("included", "mario-1-1", 2)
    assert result["mean_return_low"] < result["mean_return"] < result["mean_return_high"]
    assert said.err.startswith(f"mario-tui: {damaged}: ") and "damaged" in said.err


@pytest.mark.long
def test_several_policies_are_evaluated_into_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder = run_with_policy(tmp_path).path
    assert run(["eval", str(run_folder), "tetris-7x14", "--episodes", "2"]) == 0
    head, *rows = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert head == ["POLICY", "EPISODES", "RESULT", "95 % INTERVAL", "RETURN"]
    assert rows[0][:5] == [run_folder.name, "best of the run", "2", "cleared 100%", "34% to 100% (Wilson)"]
    assert rows[1][:3] == ["tetris-7x14", "included", "2"]
    assert rows[1][3].startswith("score ") and rows[1][4].endswith("(Student's t)")


@pytest.mark.process
def test_ctrl_c_during_the_imports_ends_it_without_a_traceback(tmp_path: Path) -> None:
    interrupted = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what started the tests may ignore it
class Interrupt:
    def find_spec(self, name, *others):
        if name == "engine.errors":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
runpy.run_module("mario_tui", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", interrupted], capture_output=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.process
def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    done = subprocess.run(["sh", "-c", f"{PROGRAM[0]} runs >&- 2>&-"], cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 0


def test_what_a_game_leaves_out_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    snake = type(game_of("snake"))
    monkeypatch.delattr(snake, "keys")
    monkeypatch.delattr(BoardGame, "keys_of_person")
    said = refused("play", "--human", "--game", "snake")
    assert said == "--human can't be combined with --game snake, which only policies can play"
