"""Reads damaged files one after the other, as the program's commands do: `python -m tests.support.damaged_reader`.

Each line of standard input is the kind of file, and a folder, in JSON; the answer tells how each command ended there.
The commands run in this process, and so does what they start in the engine: two hundred processes that import torch
would take an hour. The memory of this process is limited to what the first, undamaged file of a kind needs and 2 GiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from engine.protocol.framing import decode_answer, pack
from engine.runtime.files import read_bounded, write_atomically

_ROOM_BYTES = 2 * 2**30
LONGEST = 2100
"""Characters of a line that says why a file is refused, at most."""
SHOWN = "-shown"
"""How the names of folders end whose files the screens are to show."""
Outcome = dict[str, Any]
"""command, status (-1: an exception), said (standard error), fault (traceback)."""


def command(*arguments: str) -> Outcome:
    """How a command of the program ends; its standard output is in `out`."""
    from mario_tui import cli

    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(each, "utf-8") for each in written)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patch.object(sys, "argv", ["", *arguments]):
        outcome = _tried(" ".join(arguments), cli.main)
        sys.stdout.flush(), sys.stderr.flush()
    texts = [each.getvalue().decode() for each in written]
    return outcome | {"out": texts[0], "said": texts[1] + outcome["said"]}


def call(name: str, work: Callable[[], object]) -> Outcome:
    """How something ends that a command or a screen does with the file."""
    return _tried(name, work)


def _tried(name: str, work: Callable[[], object]) -> Outcome:
    from engine.errors import UserError

    status, said, fault = 0, "", ""
    try:
        work()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except UserError as error:
        status, said = 2, f"{error}\n"
    except BaseException:
        status, fault = -1, traceback.format_exc()
    return {"command": name, "status": status, "said": said, "out": "", "fault": fault}


class EngineHere:
    """Stands for `EngineCommand`: the engine's command runs in this process, to its end."""

    def __init__(self, name: str, *arguments: str, leave_s: float = 0.0) -> None:
        module, sent = importlib.import_module(f"engine.commands.{name}"), list[bytes]()
        with (
            patch.object(sys, "argv", [name, *arguments]),
            patch.object(module, "take_stdout", lambda: lambda report: sent.append(pack(report))),
            contextlib.ExitStack() as patches,
        ):
            for each in _OF_PROCESSES:
                if hasattr(module, each):
                    patches.enter_context(patch.object(module, each, lambda **_: None))
            module.main()
        self._messages = [decode_answer(body[4:]) for body in sent]

    def messages(self) -> Iterator[Any]:
        return iter(self._messages)

    def crash_reason(self) -> str:
        return "Traceback: it sent no result"

    def __enter__(self) -> EngineHere:
        return self

    def __exit__(self, *_: object) -> None:
        pass


_OF_PROCESSES = ("killed_with_parent", "continued_with_parent", "end_with_stdin")


# ------------------------------------------------------------------------------------------ readers


def read_event_file(folder: Path) -> Iterator[Outcome]:
    from mario_tui.app import MarioApp
    from mario_tui.extras.event_files import EventFolder
    from mario_tui.extras.event_files.charts import ChartsScreen
    from tests.support.event_files import read

    yield command("export", str(folder / "x.tfevents"), "--output", str(folder / "out.csv"), "--force")
    yield command("export", str(folder), "--output", str(folder / "out.jsonl"), "--force")
    yield call("EventFolder", lambda: read(EventFolder(folder)))
    if _is_shown(folder):
        yield call("attach", lambda: on_screen(MarioApp(open_screen=lambda: ChartsScreen(folder)), "t"))


def read_cartridge(folder: Path) -> Iterator[Outcome]:
    """On the native console alone: nes-py never returns from a program that has instructions which it doesn't know."""
    import numpy as np

    from engine.games.mario.lanes import MarioLanes
    from engine.games.mario.task import MarioTask

    def play() -> None:
        lanes = MarioLanes(MarioTask(), 1, rom=folder / "game.nes")
        try:
            lanes.reset()
            for _ in range(40):
                lanes.step(np.ones(1, np.int64))
        finally:
            lanes.close()

    # the machine code of a damaged program is not for the user's cache
    with patch("engine.console.compiler.object_code.code_cache", lambda: folder):
        yield call("lanes", play)


def read_settings(folder: Path) -> Iterator[Outcome]:
    from engine.errors import UserError
    from mario_tui.app import MarioApp
    from mario_tui.data.settings import load_settings, remember_theme

    def remember() -> None:
        with contextlib.suppress(UserError):
            remember_theme("castle")

    os.environ["XDG_CONFIG_HOME"] = str(folder)
    yield call("settings", lambda: _refuse(load_settings()[1]))
    if _is_shown(folder):
        yield call("home", lambda: on_screen(MarioApp(run_dir=str(folder)), "f1", "escape"))
    yield call("another theme", remember)


def read_theme(folder: Path) -> Iterator[Outcome]:
    from mario_tui.app import MarioApp
    from mario_tui.data.settings import load_themes

    os.environ["XDG_CONFIG_HOME"] = str(folder / "none")
    usual, found = {theme.name for theme in load_themes()[0]}, list[str]()

    os.environ["XDG_CONFIG_HOME"] = str(folder)

    def load() -> None:
        themes, errors = load_themes()
        found.extend(theme.name for theme in themes if theme.name not in usual)
        _refuse(errors)

    yield call("themes", load)

    def show() -> None:
        app = MarioApp(run_dir=str(folder))
        on_screen(app, "f1", theme=found[0])

    if found and _is_shown(folder):
        yield call("home", show)


def read_options(folder: Path) -> Iterator[Outcome]:
    with patch("mario_tui.headless.train_headless", _planned):
        yield command("--no-ui", "--config", str(folder / "options.toml"), "--run-dir", str(folder))


def _planned(plan: Any, *_: Any) -> int:
    from engine.host.preflight import check_start

    check_start(plan.config, new=plan.run is None)
    return 0


def read_run(folder: Path) -> Iterator[Outcome]:
    """The record, the options, the annotation or the registry's entry of a run."""
    from mario_tui.app import MarioApp

    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    runs = str(folder / "runs")
    yield command("runs", "--run-dir", runs)
    listed = command("runs", "--json", "--run-dir", runs)
    yield listed
    yield call("JSON", lambda: json.loads(listed["out"]))
    os.chdir(folder)
    yield command("runs", "--names")
    with patch("mario_tui.headless.train_headless", _planned):
        yield command("--no-ui", "--resume", "demo", "--run-dir", runs)
    yield command("export", "demo", "--run-dir", runs, "--output", str(folder / "out.csv"), "--force")
    if _is_shown(folder):
        yield call("home", lambda: on_screen(MarioApp(run_dir=runs), "down", "enter"))


def read_history(folder: Path) -> Iterator[Outcome]:
    from engine.host.run_files import RunFiles
    from engine.host.run_state import RunState
    from engine.runs.recording import read_recording
    from engine.runs.registry import list_runs
    from engine.runs.run import HeldRun, Run
    from mario_tui.app import MarioApp

    (path,) = (folder / "runs").glob("*")
    run = Run(path)

    def restore() -> None:
        held = HeldRun(path)
        with patch("engine.host.run_files.FileWriter", _WriterHere):
            files, state = RunFiles(held), RunState()
        files.restore_history(state, 10_000)
        state.rewind(5_000)
        files.save_history(run.config(), state)
        os.close(held.folder.descriptor)

    yield call("recording", lambda: read_recording(run.history_path))
    if _is_shown(folder):
        yield call("dashboard", lambda: on_screen(MarioApp(run, run_dir=str(path.parent)), "t", "l", "h"))
    yield call("resume", restore)
    yield call("list", lambda: list_runs(path.parent))
    yield call("what was saved", lambda: read_recording(run.history_path))


class _WriterHere:
    """Writes without a thread of its own, which would outlive the file."""

    def __init__(self, *_: object) -> None:
        pass

    def write(self, path: Path, content: bytes) -> None:
        write_atomically(path, content)


def read_layout(folder: Path) -> Iterator[Outcome]:
    from mario_tui.screens.panel_grid import recall, remember

    os.environ["XDG_STATE_HOME"] = str(folder)
    yield call("layout", lambda: remember("dashboard", recall("dashboard")))


def read_card(folder: Path) -> Iterator[Outcome]:
    from mario_tui.extras.play import of_task

    with patch("engine.runs.policies.folder", lambda: folder):
        yield call("card", lambda: of_task("mario", None))
        yield command("completion", "bash")


def read_sweep(folder: Path) -> Iterator[Outcome]:
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    for more in ((), ("--json",), ("--csv",)):
        yield command("sweep", "status", "demo", "--run-dir", str(folder / "runs"), *more)
    yield command("runs", "--run-dir", str(folder / "runs"))


def read_spaces(folder: Path) -> Iterator[Outcome]:
    from engine.config.fields import ConfigError
    from engine.errors import UserError
    from engine.games.gym.spaces import parsed

    def parse() -> None:
        try:
            parsed(read_bounded(folder / "spaces.json", 2**22).decode())
        except (ConfigError, OSError, UnicodeDecodeError) as error:
            raise UserError(str(error).splitlines()[0]) from None

    if (folder / "spaces.json").is_file():
        yield call("spaces", parse)


def read_colours(folder: Path) -> Iterator[Outcome]:
    from mario_tui.data.differences import colours_of

    os.environ["XDG_STATE_HOME"] = str(folder)
    yield call("colours", lambda: [colours_of(["/a", "/c"]) for _ in range(2)])


def read_way(folder: Path) -> Iterator[Outcome]:
    from engine.extras.distillation.mario.ways import WayCache
    from engine.games.mario.task import MarioTask

    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield call("way", WayCache("1-1", MarioTask(), 0).load)


def read_policy(folder: Path) -> Iterator[Outcome]:
    policy = str(folder / "policy.safetensors")
    with patch("mario_tui.evaluate.EngineCommand", EngineHere):
        yield command("eval", policy, "--episodes=1")
    with patch("mario_tui.headless.train_headless", _planned):
        yield command("--no-ui", "--initial-policy", policy, "--run-dir", str(folder))
    yield call("play", lambda: _play(policy))


_NOBODY: Any = SimpleNamespace(presses=list, buttons=0)
"""Instead of the controls of a person, who would command through standard input."""


def _play(policy: str) -> None:
    """A second of the game that `mario-tui play` shows."""
    from engine.extras.playing import play
    from engine.protocol.results import PlayOrder

    game = play._game(PlayOrder(policy=policy), _NOBODY)
    game.begin(1, 0, None)
    for _ in range(30):
        if game.tick():
            break
    game.picture(), game.facts(), game.thought()


def read_teacher(folder: Path) -> Iterator[Outcome]:
    policy, other = str(folder / "policy.safetensors"), str(folder / "teacher.safetensors")
    small = ["--steps=64", "--eval-every=64", "--eval-episodes=1", f"--into={folder / 'out.safetensors'}", "--force"]
    with patch("mario_tui.extras.distill.EngineCommand", EngineHere), patch("signal.signal"):
        yield command("distill", policy, *small)
        yield command("distill", other, "--initial-policy", policy, *small)


def _is_shown(folder: Path) -> bool:
    """Whether the screens are to show what was read there. The application takes a second to start."""
    return folder.name.endswith(SHOWN)


def on_screen(app: Any, *keys: str, theme: str | None = None) -> None:
    """Show the application without a terminal, and press keys."""

    async def show() -> None:
        async with app.run_test(size=(100, 30)) as pilot:
            if theme is not None:
                app.theme = theme
            for key in keys:
                await pilot.pause()
                await pilot.press(key)
            await pilot.pause()
            app.export_screenshot()

    asyncio.run(show())


def _refuse(complaints: list[str]) -> None:
    """Raise what the screen would tell: each complaint is a line that can be read."""
    from engine.errors import UserError

    for line in complaints:
        assert len(line.splitlines()) == 1 and len(line) < LONGEST, f"{len(line)} characters: {line[:100]}"
    if complaints:
        raise UserError(complaints[0])


READERS: dict[str, Callable[[Path], Iterator[Outcome]]] = {
    "event file": read_event_file,
    "cartridge": read_cartridge,
    "settings": read_settings,
    "theme": read_theme,
    "--config": read_options,
    "record": read_run,
    "options of a run": read_run,
    "annotation": read_run,
    "registry": read_run,
    "recording": read_history,
    "layout": read_layout,
    "colours": read_colours,
    "card": read_card,
    "plan": read_sweep,
    "journal": read_sweep,
    "spaces": read_spaces,
    "way": read_way,
    "policy of Snake": read_policy,
    "policy of Mario": read_policy,
    "teacher": read_teacher,
}


def main() -> None:
    limited: set[str] = set()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may print
    here = Path.cwd()
    for line in sys.stdin:
        kind, folder = json.loads(line)
        outcomes = list(READERS[kind](Path(folder)))
        os.chdir(here)
        for outcome in outcomes:
            outcome["out"] = outcome["out"][:LONGEST]
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps([outcomes, peak]), file=answers, flush=True)
        if kind not in limited:
            limited.add(kind)
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + _ROOM_BYTES, hard))


def _data_bytes() -> int:
    """What `RLIMIT_DATA` counts: the private writable memory of this process."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmData"))


if __name__ == "__main__":
    main()
