"""Home under Textual's pilot: every key of its table does what it says, on real runs and on what they leave behind."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
from textual.widgets import Input, Static
from textual.widgets._footer import FooterKey

from engine.config.command_line import command_line, options_apart
from engine.config.reading import make_config
from engine.protocol.messages import Changed, Evaluation, Progress, Saved
from engine.runs.checkpoints import committed
from engine.runs.marks import mark_own
from engine.runs.run import Run, make_annotation, read_annotation, write_annotation
from engine.runs.sweep import Member, SweepPlan
from mario_tui.app import READ_ONLY, MarioApp
from mario_tui.commands.train import training_parser
from mario_tui.data import differences
from mario_tui.data.form import text_of_value
from mario_tui.data.keys import keys_in
from mario_tui.extras.sweeps.folder import create_sweep
from mario_tui.launch import make_plan
from mario_tui.screens import panel_grid
from mario_tui.screens.compare import CompareScreen
from mario_tui.screens.dashboard import DashboardScreen
from mario_tui.screens.dialogs import ConfirmScreen, HelpScreen, TextScreen
from mario_tui.screens.home import HomeScreen
from mario_tui.screens.new_run import NewRunScreen
from mario_tui.widgets import runs_table
from mario_tui.widgets.runs_table import RunsTable
from tests.support.app import (
    folder_of_runs,
    hold,
    names,
    said,
    shown_as,
    start,
    table_of,
    text,
    too_small,
    type_at_once,
    until,
)
from tests.support.program import PATIENCE_S, kill_hosts, next_event, run_program, wait_until


@pytest.mark.long
@pytest.mark.process
async def test_a_real_run_is_followed_until_it_is_lost(tmp_path: Path) -> None:
    host = start(tmp_path, steps=100_000_000, burnin=100)
    app = MarioApp(run_dir=str(tmp_path / "checkpoints"))
    async with app.run_test(size=(80, 24)) as pilot:
        table = table_of(app)

        def cells() -> str:
            return " ".join(str(cell) for cell in table.get_row_at(0))

        await until(pilot, lambda: "● running" in cells(), "the state")
        keys = list(table.rows)
        steps = cells()
        await until(pilot, lambda: cells() != steps, "newer steps")
        assert list(table.rows) == keys
        assert all(new is old for new, old in zip(table.rows, keys, strict=True))  # nothing was built anew
        for process in psutil.Process(host.process.pid).children(recursive=True):
            process.kill()
        host.process.kill()
        host.process.wait()
        await until(pilot, lambda: "? lost" in cells(), "the loss")


async def test_keys_wait_for_the_options_of_many_runs_by_which_they_are_filtered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_runs(tmp_path, **{f"run-{number}": "finished" for number in range(5)})  # with seeds 0 to 4
    monkeypatch.setattr(runs_table, "_READ_AT_ONCE", 2)
    go_on = threading.Event()

    def options_of(run: Run) -> dict[str, Any]:
        go_on.wait(PATIENCE_S)
        return dict(differences.options_of(run))

    monkeypatch.setattr(runs_table, "options_of", options_of)
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(names(app)) == 5, "the runs")
        await pilot.press("slash")
        await until(pilot, lambda: isinstance(app.focused, Input), "the filter")
        type_at_once(app, *"seed=3", "enter", "A")
        await until(pilot, lambda: table_of(app).is_filtering and app.focused is table_of(app), "what is read")
        assert not table_of(app).marked
        go_on.set()
        await until(pilot, lambda: table_of(app).marked, "the mark")
        assert names(app) == ["run-3"] and len(table_of(app).marked) == 1
        go_on.clear()
        table_of(app).filter("seed=4")
        table_of(app).filter("")
        assert len(names(app)) == 5 and not table_of(app).is_filtering
        go_on.set()
        await pilot.pause(0.2)
        assert len(names(app)) == 5


async def test_a_name_may_be_longer_than_the_screen(tmp_path: Path) -> None:
    run, _ = folder_of_runs(tmp_path, long="finished", short="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        for length in (60, 79, 120):
            name = "n" * length
            run = Run(run.path.rename(tmp_path / name))
            await until(pilot, lambda name=name: name in names(app), "the name")


async def test_a_change_touches_one_cell_and_neither_cursor_nor_scroll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = folder_of_runs(tmp_path, **{f"run-{index:02}": "finished" for index in range(40)})
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        table = table_of(app)
        await pilot.press(*["down"] * 30)
        await until(pilot, lambda: table.scroll_y == table.scroll_target_y > 0, "the scroll")
        at, scrolled = table.cursor_row, table.scroll_y
        touched: list[Any] = []
        update = table.update_cell

        def update_cell(row: Any, column: Any, value: Any, **more: Any) -> None:
            touched.append((row, column, value))
            update(row, column, value, **more)

        monkeypatch.setattr(table, "update_cell", update_cell)
        record = runs[20].record()
        record.env_steps += 5_000
        runs[20].write_record(record)
        await until(pilot, lambda: touched, "the change")
        assert [(Path(str(key)).name, column) for key, column, _ in touched] == [("run-20", "steps")]
        shutil.rmtree(runs[39].path)  # the first row
        await until(pilot, lambda: table.row_count == 39, "the removal")
        assert (table.cursor_row, table.current().record.name) == (at - 1, "run-09")  # type: ignore[union-attr]
        assert table.scroll_y == scrolled


async def test_keys_of_vim_and_home_and_end_move_the_cursor(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, d="finished", c="finished", b="finished", a="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        at = names(app)
        for keys, row in (("j", 1), ("jj", 3), ("j", 3), ("k", 2), ("g", 0), ("k", 0), ("G", 3)):
            await pilot.press(*keys)
            assert table_of(app).current().record.name == at[row]  # type: ignore[union-attr]
        for key, row in (("home", 0), ("end", 3)):
            await pilot.press(key)
            assert table_of(app).current().record.name == at[row]  # type: ignore[union-attr]


async def test_sorting_by_key_and_by_mouse(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, b="finished", c="failed", a="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        assert names(app) == ["a", "c", "b"]  # newest first
        await pilot.press("o")  # by the first column: state
        assert names(app) == ["c", "a", "b"]
        await pilot.press("o")
        assert names(app) == ["a", "b", "c"]
        await pilot.press("O")
        assert names(app) == ["c", "b", "a"]
        label = next(str(column.label) for key, column in table_of(app).columns.items() if key.value == "run")
        assert label == "run▼"
        await pilot.click(RunsTable, offset=(20, 1))  # the header, at "run"
        await until(pilot, lambda: names(app) == ["a", "b", "c"], "the click")
        await pilot.press("2")  # the second column, by which they are sorted already
        assert names(app) == ["c", "b", "a"]
        await pilot.press("2")
        await pilot.press("down", "o")
        assert names(app) == ["a", "c", "b"]  # steps, the most first
        assert table_of(app).current().record.name == "b"  # type: ignore[union-attr]  # the cursor stays with its run


async def test_the_run_under_the_cursor_is_previewed_where_there_is_room(tmp_path: Path) -> None:
    old, new = folder_of_runs(tmp_path, old="failed", new="finished")
    record = old.record()
    record.reason = "the cat"
    old.write_record(record)
    new.history_path.unlink()
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:

        def shown() -> tuple[str, str]:
            return tuple(str(app.screen.query_one(f"#preview-{part}").render()) for part in ("text", "chart"))  # type: ignore[return-value]

        await until(pilot, lambda: "■ stopped" in shown()[0] and "no data yet" in shown()[1], "a run without history")
        await pilot.press("down")
        await until(pilot, lambda: "✗ failed  the cat" in shown()[0] and "●" in shown()[1], "one with")
        assert "mario-tui --game mario" in shown()[0]
        record.env_steps = 123_456
        old.write_record(record)
        await until(pilot, lambda: "steps    123k of 2.0M (6%)" in shown()[0], "the newer record")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.screen.query_one("#preview").display, "no room for it")


async def test_filter_and_clear(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, first="finished", second="failed", third="failed")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("slash", *"fail sec")
        await until(pilot, lambda: names(app) == ["second"], "the filter")
        assert "1 match “fail sec”" in str(app.screen.query_one("#hint", Static).render())
        await pilot.press("enter")  # keeps it, and keys are the table's again
        assert isinstance(app.screen, HomeScreen)
        assert app.focused is table_of(app)
        await pilot.press("space")
        assert len(table_of(app).marked) == 1
        await pilot.press("escape")
        await until(pilot, lambda: names(app) == ["third", "second", "first"], "all runs")
        assert len(table_of(app).marked) == 1
        await pilot.press("escape")
        assert not table_of(app).marked


async def test_delete_asks_and_refuses_what_runs(tmp_path: Path) -> None:
    gone, kept, alive = folder_of_runs(tmp_path, gone="finished", kept="failed", alive="running")
    with hold(alive):
        app = MarioApp(run_dir=str(tmp_path))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("d")  # on the newest
            assert isinstance(app.screen, HomeScreen)
            assert "Stop before deleting: alive" in said(app)
            await pilot.press("down", "d")
            assert isinstance(app.screen, ConfirmScreen)
            await pilot.press("n")
            await pilot.press("d", "enter")  # what can't be undone needs more than Enter
            assert isinstance(app.screen, HomeScreen)
            assert kept.path.is_dir()
            await pilot.press("down", "delete", "y")
            await until(pilot, lambda: names(app) == ["alive", "kept"], "the deletion")
    assert not gone.path.exists()
    assert kept.path.is_dir()
    assert alive.path.is_dir()


async def test_a_sweep_is_deleted_with_its_runs(tmp_path: Path) -> None:
    plan = SweepPlan({}, 1, None, tuple(Member({}, seed) for seed in range(3)))
    sweep = create_sweep(tmp_path, "both", plan)
    folder_of_runs(sweep.path, **{sweep.run(0).name: "finished", sweep.run(1).name: "failed"})
    (other,) = folder_of_runs(tmp_path, other="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(names(app)) == 2, "the list, in which its runs are folded")
        while (current := table_of(app).current()) is None or current.sweep is None:
            await pilot.press("down")
        await pilot.press("d")
        question = (await shown_as(pilot, ConfirmScreen)).query(Static).first()
        assert str(question.render()) == "Delete both, a sweep of 2 runs?"
        await pilot.press("y")
        await until(pilot, lambda: names(app) == ["other"], "the deletion")
    assert other.path.is_dir() and not sweep.path.exists()


async def test_resuming_acts_on_the_marked_runs_and_says_which_it_leaves_out(tmp_path: Path) -> None:
    done, alive, *_ = folder_of_runs(tmp_path, done="finished", alive="running", b="finished", a="failed")
    record = done.record()
    record.env_steps = record.steps
    done.write_record(record)
    app = MarioApp(run_dir=str(tmp_path))
    with hold(alive):
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("A", "r")
            asked = " ".join(str(each.render()) for each in (await shown_as(pilot, ConfirmScreen)).query(Static))
            assert "Resume 2 runs? a, b\n" in asked and "they share" in asked
            assert "Running already: alive\nFinished (resume one alone, to raise its limit): done" in asked
            await pilot.press("y")
            await until(pilot, lambda: said(app).count("has no complete checkpoint") == 2, "the attempts")
            app.clear_notifications()
            await pilot.press("escape", "r")  # the selected one, which is not asked about
            await until(pilot, lambda: said(app).count("a: has no complete checkpoint") == 1, "the attempt")


@pytest.mark.long
@pytest.mark.process
async def test_marked_runs_are_resumed_in_the_background(tmp_path: Path) -> None:
    options = ("--game", "snake:5x5", "--burnin", "100", "--parallel-envs", "2", "--run-dir", str(tmp_path))
    runs = [Run(tmp_path / name) for name in ("one", "two")]
    for run in runs:
        run_program(*options, "--detach", "--name", run.name, cwd=tmp_path)
    run_program("stop", "one", "two", cwd=tmp_path)
    before = [run.record().env_steps for run in runs]
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("A", "r", "y")
        await until(pilot, lambda: "2 runs resumed" in said(app), "the start")
        assert isinstance(app.screen, HomeScreen)
    wait_until(lambda: all(run.record().env_steps > steps for run, steps in zip(runs, before, strict=True)), "training")
    run_program("stop", "one", "two", cwd=tmp_path)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
async def test_the_footer_always_names_the_key_of_the_help(tmp_path: Path, width: int) -> None:
    folder_of_runs(tmp_path, a="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(width, 24)) as pilot:

        def keys() -> list[str]:
            found = [key for key in app.screen.query(FooterKey) if key.display]
            return [key.action for key in found if key.region.width and key.region.right <= width]

        await until(pilot, lambda: "help" in keys(), "the key of the help")
        assert keys()[:2] == ["open", "new"]
        assert {"quit_app", "help"} <= {*keys()} and ("delete" in keys()) is (width >= 80)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen) and "help" in keys(), "the comparison's")


async def test_without_runs_the_footer_names_what_one_can_begin_with(tmp_path: Path) -> None:
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:

        def keys() -> list[str]:
            return [key.action for key in app.screen.query(FooterKey) if key.display]

        await until(
            pilot, lambda: keys()[:5] == ["new", "watch", "play", "quit_app", "help"], "the keys of the welcome"
        )
        folder_of_runs(tmp_path, a="finished")
        await until(pilot, lambda: keys()[:3] == ["open", "new", "resume_run"], "the keys of runs")


async def test_tags_leave_room_for_when_a_run_was_last_seen(tmp_path: Path) -> None:
    run, _ = folder_of_runs(tmp_path, a="finished", b="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        table = table_of(app)
        before = [str(key.value) for key in table.columns]
        write_annotation(run, make_annotation("tag", ""))
        await until(pilot, lambda: "tags" in [str(key.value) for key in table.columns], "the tags")
        after = [str(key.value) for key in table.columns]
        assert "seen" in before and "seen" in after
        await until(pilot, lambda: table.virtual_size.width <= 120, "a table that fits")


async def test_several_are_deleted_with_the_mouse(tmp_path: Path) -> None:
    runs = folder_of_runs(tmp_path, a="finished", b="failed", c="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("space", "space", "d")
        await pilot.click("#no")
        assert isinstance(app.screen, HomeScreen)
        await pilot.press("d")
        await pilot.click("#yes")
        await until(pilot, lambda: names(app) == ["a"], "the deletion")
    assert [run.path.exists() for run in runs] == [True, False, False]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"game": "snake", "board": "8x8", "prioritized_replay": False},
        {"game": "tetris", "reward": "jumanji", "batch_size": "auto", "replay_device": "files"},
        {"runner": "apex", "num_actors": 3},
        {"stage": "random", "actions": "noop,right,right+A", "learning_rate": 1e-3, "run_dir": "my runs"},
    ],
)
def test_a_command_line_starts_the_same_run(options: dict[str, Any]) -> None:
    import shlex

    from engine.config.command_line import given

    config = make_config(options)
    program, *arguments = shlex.split(command_line(config))
    assert program == "mario-tui"
    assert make_plan(given(training_parser().parse_args(arguments))).config == config
    texts = {name: text_of_value(value) for name, value in options_apart(config).items()}
    assert NewRunScreen(options=texts).form.config() == config


async def test_a_new_run_takes_the_options_of_the_selected_one(tmp_path: Path) -> None:
    plain, foreign, tuned = folder_of_runs(tmp_path, plain="finished", foreign="finished", tuned="failed")
    (tuned.path / "config.toml").write_text(make_config({"n_step": 3, "amp": False, "seed": 7}).to_toml())
    gym = make_config({"game": "gym", "env": "CartPole-v1"}).to_toml()
    (foreign.path / "config.toml").write_text(gym.replace("CartPole-v1", f"{tmp_path}/theirs.py:Env-v0"))
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("N")
        form = (await shown_as(pilot, NewRunScreen)).form
        config, of_run = form.config(), tuned.config()
        assert {**config.values(), "run_dir": ""} == {**of_run.values(), "run_dir": ""}
        assert config.run_dir == str(tmp_path)
        assert form.command() == f"mario-tui --seed=7 --n-step=3 --no-amp --run-dir={tmp_path}"
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)
        await pilot.press("down", "N")
        await until(pilot, lambda: "names code that would run" in said(app), "the refusal")
        await pilot.press("space")
        for key, done in (("N", "repeated"), ("e", "edited"), ("y", "copied")):
            app.clear_notifications()
            await pilot.press(key)
            assert said(app) == f"One run can be {done} at a time; clear the marks first (esc)"
    assert plain.path.is_dir()


async def test_a_strangers_run_that_names_code_opens_no_form_to_resume_it(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, foreign="finished")
    gym = make_config({"game": "gym", "env": "CartPole-v1"}).to_toml()
    (run.path / "config.toml").write_text(gym.replace("CartPole-v1", f"{tmp_path}/theirs.py:Env-v0"))
    record = run.record()
    record.env_steps = record.steps
    run.write_record(record)
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("r")
        await until(pilot, lambda: "names code that would run" in said(app), "the refusal")
        assert isinstance(app.screen, HomeScreen)
        app.clear_notifications()
        mark_own(run.path, run.config().values())
        await pilot.press("r")
        await shown_as(pilot, NewRunScreen)


async def test_copy_shows_and_copies_the_command_line(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, a="finished", b="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("y")
        assert isinstance(app.screen, TextScreen)
        assert "mario-tui --game mario --seed 1" in str(app.screen.query_one("#text").render())
        assert app.clipboard == "mario-tui --game mario --seed 1"
        await pilot.press("escape")
        assert isinstance(app.screen, HomeScreen)


async def test_read_only_changes_nothing_and_says_so(tmp_path: Path) -> None:
    (run,) = folder_of_runs(tmp_path, one="finished")
    app = MarioApp(run_dir=str(tmp_path), read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "read-only" in str(app.screen.query_one("#title").render())
        shown = {binding.binding.action for binding in app.screen.active_bindings.values()}
        offered = {command.title for command in app.get_system_commands(app.screen)}
        for key in keys_in("home"):
            assert (key.action in shown) is not key.changes, key
            assert (key.label in offered) is not key.changes, key
        for pressed in ("n", "r", "d", "delete"):
            app.clear_notifications()
            await pilot.press(pressed)
            assert isinstance(app.screen, HomeScreen)
            await until(pilot, lambda: said(app) == READ_ONLY, "the note")
        await pilot.press("enter")
        dashboard = app.screen
        assert isinstance(dashboard, DashboardScreen)
        await until(pilot, lambda: dashboard.feed.snapshot().end, "the recording")
        await pilot.press("x")
        assert app.screen is dashboard
        await pilot.press("escape", "y")  # looking is allowed
        assert isinstance(app.screen, TextScreen)
    assert run.path.is_dir()


@pytest.mark.long
@pytest.mark.process
async def test_a_live_run_gets_no_command_in_read_only(tmp_path: Path) -> None:
    panel_grid.layout_file("dashboard").unlink()
    host = start(tmp_path, steps=100_000_000, burnin=100)
    app = MarioApp(open_run=host.run, host=host, read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        dashboard = await shown_as(pilot, DashboardScreen)
        progress = await until(pilot, lambda: dashboard.feed.snapshot().progress, "progress")
        for key in keys_in("dashboard"):
            if key.changes:
                await pilot.press(*key.keys.split(","))
        assert dashboard.is_current
        newer = await until(
            pilot, lambda: (p := dashboard.feed.snapshot().progress) and p.env_steps > progress.env_steps and p, "steps"
        )
        assert newer.state == "running"
        assert not [
            event for event in dashboard.feed.snapshot().others if isinstance(event, Changed | Saved | Evaluation)
        ]
        await pilot.press("8", "w")
        await until(pilot, lambda: not dashboard.query_one("#log").display, "the panel's absence")
        assert not panel_grid.layout_file("dashboard").exists()
    kill_hosts(tmp_path)


# ---------------------------------------------------------------------------------------------- drawing


async def test_nothing_is_drawn_of_a_screen_under_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of_runs(tmp_path, a="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        home = app.screen
        await pilot.press("question_mark")
        await shown_as(pilot, HelpScreen)
        assert home.is_current  # around the dialog
        await pilot.press("escape", "enter")
        dashboard = await shown_as(pilot, DashboardScreen)
        await until(pilot, lambda: dashboard.shown.points and dashboard.shown.end, "the recording")
        assert not home.is_current
        drawn: list[str] = []
        monkeypatch.setattr(app, "post_display_hook", lambda: drawn.append("something"))
        compositor = dashboard._compositor
        monkeypatch.setattr(compositor, "render_full_update", lambda simplify=False: drawn.append("everything"))

        async def draw_a_chart() -> list[str]:
            drawn.clear()
            dashboard.charts[0].refresh()
            await until(pilot, lambda: drawn, "the chart")
            return drawn

        while "everything" in await draw_a_chart():  # the dashboard has just opened
            pass
        home.query_one("#hint", Static).update("news")
        for _ in range(10):
            assert "everything" not in await draw_a_chart()


@pytest.mark.long
async def test_sizes(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, **{f"mario-1-1-20261120-0{index}0000": "finished" for index in range(9)})
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(50, 20)) as pilot:
        table = table_of(app)
        assert table.virtual_size.width <= 50  # all of it is there without scrolling
        await pilot.resize_terminal(39, 12)
        await until(pilot, lambda: "must be at least 40x12, got 39x12" in too_small(app), "the least size")
        await pilot.resize_terminal(250, 70)
        await until(pilot, lambda: [str(key.value) for key in table.columns][-1] == "folder", "all columns")
        assert isinstance(app.screen, HomeScreen)
        for index in range(20):  # a storm
            await pilot.resize_terminal(20 + 12 * index % 230, 5 + 9 * index % 60)
        await pilot.resize_terminal(80, 24)
        await shown_as(pilot, HomeScreen)
        await until(pilot, lambda: table.virtual_size.width <= 80, "a table that fits")
        assert len(app.screen_stack) == 2
        await pilot.press("n", "f3")
        await until(pilot, lambda: app.screen.query("#edit-stage"), "the fields")
        await pilot.resize_terminal(30, 8)
        await pilot.resize_terminal(50, 20)
        await shown_as(pilot, NewRunScreen)
        await until(pilot, lambda: app.screen.query_one("#edit-stage").size.width > 10, "room to type")
        assert isinstance(app.screen.query_one("#edit-seed"), Input)


async def test_ctrl_c_twice_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mario_tui.app._DOUBLE_PRESS_S", PATIENCE_S)
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+c")
        assert "Press Ctrl-C again to quit" in said(app)
        assert app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app._exit, "the exit")
    assert app.return_code == 0


async def test_enter_twice_closes_the_dialog_alone(tmp_path: Path) -> None:
    run = folder_of_runs(tmp_path, **{"mario-1": "finished"})[0]
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: table_of(app).row_count, "the run")
        await pilot.press("e")
        await until(pilot, lambda: app.screen.query("#tags"), "the dialog")
        type_at_once(app, "a", "b", "enter", "enter")
        await until(pilot, lambda: read_annotation(run).tags, "the tags")
        await pilot.pause()
        assert isinstance(app.screen, HomeScreen)
    assert read_annotation(run).tags == ("ab",)


async def test_a_long_name_takes_the_room_of_another_column(tmp_path: Path) -> None:
    folder_of_runs(tmp_path, **{"mario-1-1-1-2-1-3-20261121-093000": "finished"})
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        table = table_of(app)
        await until(pilot, lambda: table.row_count, "the run")
        assert table.virtual_size.width <= 80


async def test_a_table_that_scrolls_cuts_no_column(tmp_path: Path) -> None:
    names = {f"mario-1-1-20261121-0930{number:02}": "finished" for number in range(25)}
    folder_of_runs(tmp_path, **names)
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        table = table_of(app)
        for width in (80, 78, 82, 79, 81, 90):
            await pilot.resize_terminal(width, 24)
            await until(pilot, lambda: table.show_vertical_scrollbar, "a scrollbar")
            await until(pilot, lambda: not table.show_horizontal_scrollbar, "columns that fit")


async def test_a_row_that_is_to_be_selected_is_as_soon_as_it_is_there(tmp_path: Path) -> None:
    oldest, _ = folder_of_runs(tmp_path, oldest="finished", other="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        table = table_of(app)
        await until(pilot, lambda: names(app) == ["other", "oldest"], "the runs")
        table.select(str(oldest.path.resolve()))
        assert table.cursor_row == 1
        table.select(str(tmp_path.resolve() / "later"))
        assert table.cursor_row == 1
        folder_of_runs(tmp_path, later="finished")
        await until(pilot, lambda: "later" in names(app), "the new run")
        current = table.current()
        assert current is not None and current.record.name == "later"


async def test_a_folder_that_can_not_be_read_is_told_once_and_what_is_shown_stays(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder_of_runs(folder, one="finished")
    app = MarioApp(run_dir=str(folder))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: names(app) == ["one"], "the run")
        app.run_dir = str(tmp_path / ("n" * 300))  # a name that no file system accepts, as a dead mount accepts none
        await until(pilot, lambda: "the runs can't be listed (File name too long)" in said(app), "the reason")
        await pilot.press("f5", "f5", "down")
        assert names(app) == ["one"]
        app.run_dir = str(folder)
        folder_of_runs(folder, two="finished")
        await until(pilot, lambda: names(app) == ["two", "one"] or names(app) == ["one", "two"], "the runs again")
        assert said(app).count("can't be listed") == 1


async def test_a_working_directory_that_is_deleted_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = folder_of_runs(tmp_path / "runs", one="finished")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    app = MarioApp(run_dir=str(run.path.parent))
    async with app.run_test(size=(120, 40)) as pilot:
        work.rmdir()
        preview = app.screen.query_one("#preview-text", Static)
        await until(pilot, lambda: str(run.path) in "".join(str(preview.render()).split("\n")), "the preview")
        await pilot.press("enter", "escape", "f5")
        assert names(app) == ["one"]
    app = MarioApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("f5", "n", "escape")
        assert table_of(app).row_count == 0


@pytest.mark.process
async def test_marked_runs_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hosts = [start(tmp_path, game="snake", board="5x5", steps=10**9, seed=seed) for seed in (1, 2)]
    runs = [host.run for host in hosts]
    try:
        for host in hosts:
            with host.connect() as client:
                next_event(client, Progress, lambda each: each.env_steps > 0)
        app = MarioApp(run_dir="checkpoints")
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: table_of(app).row_count == 2, "the runs")
            await pilot.press("A")
            assert "2 marked (x stop, P pause, C checkpoint, d delete)" in text(app.screen, "hint")

            def states() -> set[str]:
                return {row.status for row in table_of(app).listed}

            await until(pilot, lambda: states() == {"running"}, "the training")
            await pilot.press("C")
            await until(pilot, lambda: all(committed(run) for run in runs), "both checkpoints")
            await until(pilot, lambda: "2 runs saved in a checkpoint" in said(app), "the word of them")
            await pilot.press("P")
            await until(pilot, lambda: states() == {"paused"}, "the pause")
            await pilot.press("P")
            await until(pilot, lambda: states() == {"running"}, "the training")
            await pilot.press("x")
            question = (await shown_as(pilot, ConfirmScreen)).query(Static).first()
            assert str(question.render()) == "Stop 2 runs?"
            await pilot.press("y")
            await until(pilot, lambda: states() == {"stopped"}, "the end")
            await pilot.press("x")
            await until(pilot, lambda: "None of these is active" in said(app), "that nothing is left to stop")
    finally:
        for host in hosts:
            host.process.kill()


async def test_runs_of_a_sweep_are_folded_under_it_and_the_filter_finds_them(tmp_path: Path) -> None:
    plan = SweepPlan({}, 1, None, tuple(Member({}, seed) for seed in range(2)))
    sweep = create_sweep(tmp_path, "both", plan)
    members = [sweep.run(number).name for number in (0, 1)]
    folder_of_runs(sweep.path, **{members[0]: "finished", members[1]: "failed"})
    folder_of_runs(tmp_path, alone="finished")
    app = MarioApp(run_dir=str(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: table_of(app).listed, "the runs")
        assert sorted(names(app)) == ["alone", "both (sweep of 2)"]
        await pilot.press("f")
        current = table_of(app).current()
        if current is not None and current.sweep is None:  # the newest is selected
            assert "Only a sweep has runs to show" in said(app)
            await pilot.press("j", "f")
        at = names(app).index("both (sweep of 2)")
        assert {*names(app)[at + 1 : at + 3]} == {f"  {name}" for name in members} and len(names(app)) == 4
        await pilot.press("j", "f")  # from one of them
        assert sorted(names(app)) == ["alone", "both (sweep of 2)"]
        await pilot.press("slash", *members[1], "enter")
        await until(pilot, lambda: names(app) == [f"  {members[1]}"], "what the filter finds")


async def test_a_dashboard_leads_to_the_runs_beside_it(tmp_path: Path) -> None:
    sweep = create_sweep(tmp_path, "both", SweepPlan({}, 1, None, tuple(Member({}, seed) for seed in range(2))))
    folder_of_runs(sweep.path, **{sweep.run(0).name: "finished", sweep.run(1).name: "failed"})
    folder_of_runs(tmp_path, first="finished", second="finished")
    app = MarioApp(run_dir=str(tmp_path))

    def shown() -> str:
        return app.screen.run.name if isinstance(app.screen, DashboardScreen) else ""

    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: table_of(app).listed, "the runs")
        runs = [name for name in names(app) if "sweep" not in name]
        table_of(app).move_cursor(row=names(app).index(runs[0]))
        await pilot.press("enter")
        await until(pilot, lambda: shown() == runs[0], "the first run")
        await pilot.press("left_square_bracket")
        assert f"{runs[0]} is the first run of the list" in said(app)
        await pilot.press("right_square_bracket")
        await until(pilot, lambda: shown() == runs[1], "the run below, past the sweep")
        assert len(app.screen_stack) == 3
        await pilot.press("escape")
        await shown_as(pilot, HomeScreen)
        app.open_dashboard(sweep.run(0))
        await until(pilot, lambda: shown() == sweep.run(0).name, "a run of the sweep")
        there = "right_square_bracket" if app.run_beside(sweep.run(0), 1) else "left_square_bracket"
        await pilot.press(there)
        await until(pilot, lambda: shown() == sweep.run(1).name, "the other run of the sweep")
