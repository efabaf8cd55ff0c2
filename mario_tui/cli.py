"""The command line. An error before a run starts is one line on stderr, with exit status 2."""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from engine import __version__
from engine.config.command_line import add_arguments, given
from engine.config.fields import flag, must_be_within, read_number
from engine.config.presets import PRESETS
from engine.config.run_config import GAMES, RUNNERS, make_config
from engine.config.torchrun import torchrun_rank
from engine.errors import UserError
from engine.runs import policies
from engine.runs.annotation import record_as_dict
from engine.runs.registry import find_run, list_runs
from engine.runs.run import RECORD_FILE, Run
from engine.runtime.parent import killed_with_parent
from engine.runtime.text import printable, printable_stream
from mario_tui.data.standing import standing
from mario_tui.launch import expanded, make_plan

_COMMANDS = """\
commands:
  mario-tui                       home: your runs, new run, resume, attach
  mario-tui --game mario [...]    start a run and open its dashboard
  mario-tui --no-ui [...]         the same without the dashboard
  mario-tui attach [RUN|PATH]     dashboard of a running or finished run; charts of event files
  mario-tui runs [--json]         list runs
  mario-tui eval CHECKPOINT       clear rate and return over many episodes
  mario-tui play [CHECKPOINT]     watch a policy; --human: play yourself; --record FILE
  mario-tui profile [...]         time per section, bottlenecks, and faster options
  mario-tui serve                 the terminal UI in a browser; --host ADDRESS, --port N

--read-only works with attach, with serve, or alone (home)

exit status: 0 finished or stopped, 1 the run failed, 2 wrong usage or configuration
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def main() -> None:
    """Console entry point."""
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    # Newer Pythons colour help and tracebacks; `printable_stream` would show those codes as text.
    os.environ["PYTHON_COLORS"] = "0"
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        print(f"mario-tui: error: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # the reader closed the pipe, as in `mario-tui runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        if error.filename is None:
            raise
        print(printable(f"mario-tui: error: {error.filename}: {error.strerror}"), file=sys.stderr)
        status = 2
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run the command and return its exit status."""
    commands = {
        "attach": _attach,
        "runs": _runs,
        "eval": _eval,
        "play": _play,
        "profile": _profile,
        "serve": _serve,
    }
    command = commands.get(arguments[0]) if arguments else None
    if command is not None:
        return command(arguments[1:])
    home, rest = _home_parser().parse_known_args(arguments)
    return _train(arguments) if rest else _home(home)


def training_parser(game: str = GAMES[0], runner: str = RUNNERS[0]) -> argparse.ArgumentParser:
    """Parser for starting a run; its help covers `game` and `runner`."""
    parser = _Parser(
        prog="mario-tui",
        usage="mario-tui [COMMAND] [options]",
        description="Train Double-DQN agents from a terminal and watch them learn. The options and defaults below are\n"
        f"those of {game} with the {runner} runner; for others: mario-tui --game snake --runner apex --help",
        epilog=_COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mario-tui {__version__}")
    parser.add_argument("--no-ui", action="store_true", help="train without the dashboard")
    parser.add_argument(
        "--log-format", choices=("rich", "plain", "json"), help="with --no-ui (default: rich on a terminal, else plain)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="read options from a file; flags override it")
    parser.add_argument("--resume", metavar="RUN|PATH|latest", help="resume from a run's newest or a given checkpoint")
    parser.add_argument("--name", metavar="NAME", help="name of the new run (default: its game and the time)")
    parser.add_argument(
        "--preset",
        metavar="NAME",
        help="start from a known setup; file and flags override it: "
        + "; ".join(f"{name} ({preset.help})" for name, preset in PRESETS.items()),
    )
    _add_read_only(parser)
    add_arguments(parser, game, runner)
    return parser


def _train(arguments: list[str]) -> int:
    game, runner = _chosen(arguments, "--game", GAMES), _chosen(arguments, "--runner", RUNNERS)
    options = training_parser(game, runner).parse_args(arguments)
    values = given(options)
    if options.read_only:
        others = [
            name for name in ("no_ui", "config", "resume", "name", "preset", "log_format") if getattr(options, name)
        ]
        asked = next(name for name in (*others, *values) if name != "run_dir")
        raise UserError(
            f"--read-only can't be combined with {flag(asked)}, which starts a run; use it alone, with attach or with "
            "serve"
        )
    if (rank := torchrun_rank()) is not None:
        if not options.no_ui:
            raise UserError(f"torchrun needs --no-ui; for the dashboard: mario-tui attach {rank.name}")
        killed_with_parent()
    plan = make_plan(values, options.config, options.resume, options.preset, options.name)
    if plan.is_done:
        assert plan.run is not None
        print(f"{plan.run.name}: all environment steps are done")
        return 0
    if rank is not None and rank.index:
        run = str(Path(plan.config.run_dir).resolve() / rank.name)
        os.execv(sys.executable, [sys.executable, "-P", "-m", "engine.commands.rank", run])
    if options.log_format and not options.no_ui:
        raise UserError("--log-format needs --no-ui")
    if options.no_ui:
        from mario_tui.headless import train_headless

        chosen = options.log_format or ("rich" if sys.stdout.isatty() else "plain")
        return train_headless(plan, chosen)
    _need_terminal("mario-tui --no-ui")
    from mario_tui.app import MarioApp

    run_dir = str(expanded(values["run_dir"])) if "run_dir" in values else None
    host = plan.start()
    return MarioApp(open_run=host.run, host=host, run_dir=run_dir).run_in_terminal()


def _chosen(arguments: list[str], option: str, accepted: tuple[str, ...]) -> str:
    """The valid value that the arguments give an option, else its default; found before parsing, for the help."""
    for before, argument in pairwise(["", *arguments]):
        name = argument if before == option else argument.removeprefix(f"{option}=")
        if name in accepted:
            return name
    return accepted[0]


def _home_parser() -> argparse.ArgumentParser:
    """Options of the home screen; any other option starts a run."""
    parser = _Parser(prog="mario-tui", add_help=False, allow_abbrev=False)
    _add_run_dir(parser)
    _add_read_only(parser)
    return parser


def _home(options: argparse.Namespace) -> int:
    _need_terminal("mario-tui --no-ui, or mario-tui runs")
    from mario_tui.app import MarioApp

    return MarioApp(run_dir=options.run_dir, read_only=options.read_only).run_in_terminal()


def _serve(arguments: list[str]) -> int:
    parser = _Parser(
        prog="mario-tui serve",
        description="The terminal UI in a browser. The printed address contains a token that grants full access to "
        "your runs. By default the server listens on this machine only; from another one, use "
        "ssh -L 8000:localhost:8000 MACHINE.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=_whole("--port", 0, 65_535), default=8000, metavar="N", help="0: any free port (default: 8000)"
    )
    _add_run_dir(parser)
    _add_read_only(parser)
    options = parser.parse_args(arguments)
    from mario_tui.serve import serve

    return serve(options.host, options.port, options.run_dir, read_only=options.read_only)


def _attach(arguments: list[str]) -> int:
    parser = _Parser(
        prog="mario-tui attach",
        description="Dashboard of a running or finished run, or charts of TensorBoard event files.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        default="latest",
        help="a run's name or path, latest (the default), an event file, or a folder of event files",
    )
    _add_run_dir(parser)
    _add_read_only(parser)
    options = parser.parse_args(arguments)
    run_dir = _existing(options.run_dir)
    charts = _charts(Path(options.run))
    run = None if charts else _run_of(options.run, run_dir)
    _need_terminal("mario-tui runs")
    from mario_tui.app import MarioApp

    app = MarioApp(open_run=run, run_dir=options.run_dir, read_only=options.read_only, charts=charts)
    return app.run_in_terminal()


def _charts(path: Path) -> Path | None:
    """The path if it is an event file or a folder of event files, but not a run."""
    if (path / RECORD_FILE).exists() or not path.exists():
        return None
    from mario_tui.data.event_files import event_files, problem_of  # slow: it imports TensorBoard

    found = bool(event_files(path)) if path.is_dir() else not problem_of(path)
    return path if found else None


def _run_of(name: str, run_dir: str | None) -> Run:
    """The run with that name or path. Raises `UserError` that tells what is missing from an existing path."""
    try:
        return find_run(name, run_dir)
    except UserError:
        path = Path(name)
        if (path / RECORD_FILE).is_file():
            raise
        if path.is_dir():
            raise UserError(f"{name}: the folder contains neither a run nor event files") from None
        if path.is_file():
            from mario_tui.data.event_files import problem_of

            raise UserError(f"{name}: {problem_of(path)}") from None
        raise


def _runs(arguments: list[str]) -> int:
    parser = _Parser(prog="mario-tui runs", description="List runs, newest first.")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    _add_run_dir(parser)
    options = parser.parse_args(arguments)
    runs = list_runs(_existing(options.run_dir))
    if options.json:
        print(json.dumps([record_as_dict(run) for run in runs], indent=2))
        return 0
    if not runs:
        where = "" if options.run_dir is None else f" in {options.run_dir}"
        print(f"no runs{where} yet; start one with: mario-tui --game mario")
        return 0
    folders = [str(run.path.parent) for run in runs]
    if len(set(folders)) == 1:
        folders = [""] * len(runs)
    head = f"{'RUN':<32} {'STATE':<9} {'ENV STEPS':>12} {'OF':>12} {'RETURN':>8}"
    print(head + "  FOLDER" * any(folders))
    for run, folder in zip(runs, folders, strict=True):
        record = run.record()
        state = standing(record)
        if state == "damaged":
            print(printable(f"{record.name:<32} {state:<9} {run.path}: {record.reason}"))
            continue
        mean = "-" if record.mean_return is None else f"{record.mean_return:.0f}"
        line = f"{record.name:<32} {state:<9} {record.env_steps:>12,} {record.steps:>12,} {mean:>8}"
        print(printable(f"{line}  {folder}".rstrip()))
    return 0


def _eval(arguments: list[str]) -> int:
    parser = _Parser(prog="mario-tui eval", description="Clear rate and mean return of a policy.")
    _add_policy(parser)
    parser.add_argument("--episodes", type=_whole("--episodes", 1), default=20, metavar="N",
                        help="episodes to play (default: 20)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args(arguments)
    from engine.runs.checkpoints import find_policy
    from mario_tui.evaluate import evaluate

    chosen = _evaluation_options(options)
    policy = find_policy(options.checkpoint, _existing(options.run_dir))
    _check_policy(policy, options)
    return evaluate(policy, options.episodes, chosen, as_json=options.json)


def _play(arguments: list[str]) -> int:
    parser = _Parser(prog="mario-tui play", description="Watch a policy play in real time, or play yourself.")
    parser.add_argument("--human", action="store_true", help="play yourself: arrows or WASD, x jumps, z runs")
    parser.add_argument("--game", choices=GAMES, help="game to play without CHECKPOINT (default: mario)")
    parser.add_argument("--board", metavar="WxH", help="board size of Snake or Tetris, without CHECKPOINT")
    parser.add_argument("--hold", type=_whole("--hold", 20, 2000), default=250, metavar="MS",
                        help="with --human: how long a key press counts as held (default: 250)")  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="record to a .gif or .mp4 file; without a terminal, one episode"
    )
    _add_policy(parser, optional=True)
    options = parser.parse_args(arguments)
    chosen = _evaluation_options(options)
    if options.record is not None:
        chosen.append(f"--record={options.record.resolve()}")
    if options.human and options.checkpoint is not None:
        raise UserError("CHECKPOINT can't be combined with --human")
    for name in ("game", "board"):
        if options.checkpoint is not None and getattr(options, name) is not None:
            raise UserError(f"--{name} can't be combined with CHECKPOINT, which determines the {name}")
    game = options.game or GAMES[0]
    title = game
    if options.human:
        task = {"game": game, "board": options.board, "stage": options.stage, "emulator": options.emulator}
        make_config({name: value for name, value in task.items() if value is not None})  # validates
        chosen.append(f"--game={game}")
        if options.board is not None:
            chosen.append(f"--board={options.board}")
    else:
        from engine.runs.checkpoints import find_policy
        from engine.runs.origin import origin_of

        if options.checkpoint is None:
            policy = policies.of_task(game, options.board or (options.stage if game == "mario" else None))
        else:
            policy = find_policy(options.checkpoint, _existing(options.run_dir))
        game = _check_policy(policy, options)
        chosen.insert(0, str(policy))
        title = origin_of(policy).name
        if options.record is not None and not sys.stdout.isatty():
            from mario_tui.play import record

            return record(chosen)
    _need_terminal("mario-tui eval, or mario-tui play CHECKPOINT --record FILE")
    from mario_tui.play import PlayApp

    return PlayApp(title, chosen, human=options.human, game=game, hold_s=options.hold / 1000).run_in_terminal()


def _profile(arguments: list[str]) -> int:
    from mario_tui.profile import add_profile_arguments, profile

    parser = _Parser(
        prog="mario-tui profile",
        usage="mario-tui profile [options of a run] [--duration S] [--report-file FILE] [--trace FILE.json] [--json]",
        description="Measure where a run spends its time, what limits it, and which options make it faster.",
        allow_abbrev=False,
    )
    add_profile_arguments(parser, _whole)
    game, runner = _chosen(arguments, "--game", GAMES), _chosen(arguments, "--runner", RUNNERS)
    add_arguments(parser, game, runner)
    return profile(parser.parse_args(arguments))


def _add_policy(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    parser.add_argument(
        "checkpoint",
        nargs="?" if optional else None,
        help="a policy file, a checkpoint folder, a run's name or path, latest, or an included policy (mario-1-1)"
        + ("; if omitted, the included policy for --game and --stage" if optional else ""),
    )
    parser.add_argument(
        "--epsilon", type=_share, default=0.0, metavar="E", help="fraction of random actions (default: 0)"
    )
    parser.add_argument(
        "--noop-max",
        type=_whole("--noop-max", 0, 255),
        default=30,
        metavar="N",
        help="maximum number of random no-op frames at the start (default: 30)",
    )
    parser.add_argument(
        "--seed", type=_whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="random seed (default: 0)"
    )
    parser.add_argument("--stage", metavar="NAME", help="play this stage instead of the one it was trained on")
    parser.add_argument(
        "--emulator", metavar="native|nes-py", help="use this emulator instead of the one it was trained on"
    )
    parser.add_argument(
        "--rom", type=expanded, metavar="FILE", help="cartridge file, iNES (default: the one in gym-super-mario-bros)"
    )
    _add_run_dir(parser)


def _evaluation_options(options: argparse.Namespace) -> list[str]:
    """Arguments that `eval` and `play` pass on to the engine. Raises `ConfigError`."""
    chosen = [f"--epsilon={options.epsilon}", f"--noop-max={options.noop_max}", f"--seed={options.seed}"]
    for name in ("stage", "emulator"):
        value = getattr(options, name)
        if value is not None:
            make_config({name: value})  # validates
            chosen.append(f"--{name}={value}")
    if options.rom is not None:
        chosen.append(f"--rom={options.rom.resolve()}")  # the engine checks the file
    return chosen


def _check_policy(policy: Path, options: argparse.Namespace) -> str:
    """The game of a policy. Raises `UserError` for Mario's options if it is another one."""
    from engine.runs.checkpoints import policy_metadata

    game = policy_metadata(policy)["game"]
    for name in ("stage", "emulator", "rom"):
        if game != "mario" and getattr(options, name) is not None:
            raise UserError(f"--{name} can't be combined with a policy for {game}")
    return str(game)


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=_folder, metavar="DIR", help="only runs in this folder (default: all your runs)"
    )


def _folder(text: str) -> str:
    """Path of a folder that exists or can be created. Raises `UserError` if it is a file."""
    folder = expanded(text)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--run-dir must be a folder, got the file {text!r}")
    return str(folder)


def _existing(run_dir: str | None) -> str | None:
    """The folder, if it exists. Raises `UserError` if not: a command that starts nothing does not create it."""
    if run_dir is not None and not Path(run_dir).is_dir():
        raise UserError(f"--run-dir must be an existing folder, got {run_dir!r}")
    return run_dir


def _add_read_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--read-only", action="store_true", help="start, change and delete nothing")


def _whole(flag: str, low: int, high: int | None = None):  # type: ignore[no-untyped-def]
    def parse(text: str) -> int:
        value = read_number(text)
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if whole and low <= int(value) and (high is None or int(value) <= high):
            return int(value)
        raise UserError(f"{flag} {must_be_within(low, high, text, whole=True)}")

    return parse


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(f"--epsilon {must_be_within(0, 1, text, whole=False)}")
    return value


def _need_terminal(instead: str) -> None:
    if os.environ.get("TEXTUAL_DRIVER", "").startswith("textual.drivers.web_driver"):
        return  # in a browser
    # Textual draws on stderr; a redirected stdout means that nobody is watching.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) or os.environ.get("TERM") == "dumb":
        raise UserError(f"the dashboard needs a terminal; use: {instead}")
