"""The command line. What goes wrong before a run starts is one line on stderr and exit status 2."""

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
from engine.config.fields import flag, read_number
from engine.config.presets import PRESETS
from engine.config.run_config import GAMES, RUNNERS, make_config
from engine.errors import UserError
from engine.runs import policies
from engine.runs.registry import find_run, list_runs
from engine.runs.run import RECORD_FILE, Run, record_as_dict
from engine.runtime.text import printable, printable_stream
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
  mario-tui profile [...]         where a run's time goes, what limits it, what makes it faster
  mario-tui serve                 all this in a browser; --host ADDRESS, --port N

--read-only with attach, serve or alone (home): looks, and starts, changes or removes nothing

exit status: 0 finished or stopped in order, 1 the run failed, 2 wrong usage or configuration
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see: {self.prog} --help)")


def main() -> None:
    """Console entry point."""
    sys.stdout, sys.stderr = printable_stream(sys.stdout), printable_stream(sys.stderr)
    os.environ["PYTHON_COLORS"] = (
        "0"  # newer Pythons colour help and tracebacks, and would see their own codes written out
    )
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        print(f"mario-tui: error: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # whoever read our output has left, e.g. `mario-tui runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except OSError as error:
        if error.filename is None:
            raise
        print(printable(f"mario-tui: error: {error.filename}: {error.strerror}"), file=sys.stderr)
        status = 2
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Do what the arguments say; the exit status."""
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
    """Parser of everything that starts a run; its help is for `game` and `runner`."""
    parser = _Parser(
        prog="mario-tui",
        usage="mario-tui [COMMAND] [options]",
        description="Train Double-DQN agents from a terminal, and watch them learn.",
        epilog=_COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mario-tui {__version__}")
    parser.add_argument("--no-ui", action="store_true", help="train without the dashboard")
    parser.add_argument(
        "--log-format", choices=("rich", "plain", "json"), help="with --no-ui (default: rich on a terminal, else plain)"
    )
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="options from a file; given flags beat it")
    parser.add_argument("--resume", metavar="RUN|PATH|latest", help="go on from a run's newest or a given checkpoint")
    parser.add_argument(
        "--preset", metavar="NAME", help=f"options of a known setup, beneath file and flags: {', '.join(PRESETS)}"
    )
    _add_read_only(parser)
    add_arguments(parser, game, runner)
    return parser


def _train(arguments: list[str]) -> int:
    game, runner = _chosen(arguments, "--game", GAMES), _chosen(arguments, "--runner", RUNNERS)
    options = training_parser(game, runner).parse_args(arguments)
    values = given(options)
    if options.read_only:
        others = [name for name in ("no_ui", "config", "resume", "preset", "log_format") if getattr(options, name)]
        asked = next(name for name in (*others, *values) if name != "run_dir")
        raise UserError(
            f"--read-only is not accepted with {flag(asked)}, which starts a run; "
            "accepted: alone, or with attach or serve"
        )
    plan = make_plan(values, options.config, options.resume, options.preset)
    if options.log_format and not options.no_ui:
        raise UserError("--log-format: is for headless runs; accepted together with --no-ui")
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
    """What the arguments give an option; it decides what their help shows."""
    for before, argument in pairwise(["", *arguments]):
        name = argument if before == option else argument.removeprefix(f"{option}=")
        if name in accepted:
            return name
    return accepted[0]


def _home_parser() -> argparse.ArgumentParser:
    """What home understands; any other option is of a run that shall start."""
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
        description="The terminal UI in a browser. Whoever has the printed address, with its token, can do what you "
        "can. It is on this machine only unless --host says otherwise; from elsewhere: "
        "ssh -L 8000:localhost:8000 MACHINE.",
    )
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=_whole("--port", 0, 65_535), default=8000, metavar="N", help="0: any free one (default: 8000)"
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
        help="a run's name or path, latest (the default), or an event file or a folder of them",
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
    """The path if it is an event file, or a folder of them that is no run of ours."""
    if (path / RECORD_FILE).exists() or not path.exists():
        return None
    from mario_tui.data.event_files import event_files, is_event_file  # TensorBoard's part takes a moment

    found = bool(event_files(path)) if path.is_dir() else is_event_file(path)
    return path if found else None


def _run_of(name: str, run_dir: str | None) -> Run:
    """The run of that name; of a path that is there, what it lacks is said."""
    try:
        return find_run(name, run_dir)
    except UserError:
        path = Path(name)
        if path.is_dir():
            raise UserError(f"{name}: the folder holds neither a run nor event files") from None
        if path.is_file():
            raise UserError(f"{name}: not an event file of TensorBoard") from None
        raise


def _runs(arguments: list[str]) -> int:
    parser = _Parser(prog="mario-tui runs", description="List runs, newest first.")
    parser.add_argument("--json", action="store_true", help="one JSON array")
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
        if record.state == "damaged":
            print(printable(f"{record.name:<32} {record.state:<9} {run.path}: {record.reason}"))
            continue
        mean = "-" if record.mean_return is None else f"{record.mean_return:.0f}"
        line = f"{record.name:<32} {record.state:<9} {record.env_steps:>12,} {record.steps:>12,} {mean:>8}"
        print(printable(f"{line}  {folder}".rstrip()))
    return 0


def _eval(arguments: list[str]) -> int:
    parser = _Parser(prog="mario-tui eval", description="Clear rate and mean return of a policy.")
    _add_policy(parser)
    parser.add_argument("--episodes", type=_whole("--episodes", 1), default=20, metavar="N", help="default: 20")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a text")
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
    parser.add_argument("--game", choices=GAMES, help="without CHECKPOINT (default: mario)")
    parser.add_argument("--board", metavar="WxH", help="without CHECKPOINT: the size of Snake's or Tetris's board")
    parser.add_argument("--hold", type=_whole("--hold", 20, 2000), default=250, metavar="MS",
                        help="with --human: how long a key counts as held (default: 250)")  # fmt: skip
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="film it, .gif or .mp4; without a terminal one episode"
    )
    _add_policy(parser, optional=True)
    options = parser.parse_args(arguments)
    chosen = _evaluation_options(options)
    if options.record is not None:
        chosen.append(f"--record={options.record.resolve()}")
    if options.human and options.checkpoint is not None:
        raise UserError("CHECKPOINT: is not accepted with --human")
    for name in ("game", "board"):
        if options.checkpoint is not None and getattr(options, name) is not None:
            raise UserError(f"--{name}: is not accepted with CHECKPOINT, which says what it plays")
    game = options.game or GAMES[0]
    title = f"stage {options.stage or '1-1'}" if game == "mario" else game
    if options.human:
        task = {"game": game, "board": options.board, "stage": options.stage, "emulator": options.emulator}
        make_config({name: value for name, value in task.items() if value is not None})  # complains
        chosen.append(f"--game={game}")
        if options.board is not None:
            chosen.append(f"--board={options.board}")
    else:
        from engine.runs.checkpoints import find_policy

        if options.checkpoint is None:
            policy = policies.of_task(game, options.board or (options.stage if game == "mario" else None))
        else:
            policy = find_policy(options.checkpoint, _existing(options.run_dir))
        _check_policy(policy, options)
        chosen.insert(0, str(policy))
        title = policy.name
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
        description="Where the time of a run goes, what limits it, and which options make it faster.",
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
        help="a policy file, a checkpoint folder, a run's name or path, latest, or a policy of the package (mario-1-1)"
        + ("; without one, the package's for --game and --stage" if optional else ""),
    )
    parser.add_argument("--epsilon", type=_share, default=0.0, metavar="E", help="share of random actions (default: 0)")
    parser.add_argument(
        "--noop-max",
        type=_whole("--noop-max", 0, 255),
        default=30,
        metavar="N",
        help="random start frames (default: 30)",
    )
    parser.add_argument("--seed", type=_whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="default: 0")
    parser.add_argument("--stage", metavar="NAME", help="another stage than the one it was trained on")
    parser.add_argument("--emulator", metavar="native|nes-py", help="another console than the one it was trained on")
    parser.add_argument(
        "--rom", type=expanded, metavar="FILE", help="cartridge (default: the one in gym-super-mario-bros)"
    )
    _add_run_dir(parser)


def _evaluation_options(options: argparse.Namespace) -> list[str]:
    """What `eval` and `play` pass on to the engine, the names checked."""
    chosen = [f"--epsilon={options.epsilon}", f"--noop-max={options.noop_max}", f"--seed={options.seed}"]
    for name in ("stage", "emulator"):
        value = getattr(options, name)
        if value is not None:
            make_config({name: value})  # complains
            chosen.append(f"--{name}={value}")
    if options.rom is not None:
        chosen.append(f"--rom={options.rom.resolve()}")  # the engine looks inside and complains
    return chosen


def _check_policy(policy: Path, options: argparse.Namespace) -> None:
    """Raises `UserError` for options of Mario where a policy plays another game."""
    from engine.runs.checkpoints import policy_metadata

    game = policy_metadata(policy)["game"]
    for name in ("stage", "emulator", "rom"):
        if game != "mario" and getattr(options, name) is not None:
            raise UserError(f"--{name}: is not accepted with a policy for {game}")


def _add_run_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-dir", type=_folder, metavar="DIR", help="the runs in this folder alone (default: all of yours)"
    )


def _folder(text: str) -> str:
    """A folder that is there, or may be made."""
    folder = expanded(text)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--run-dir must be a folder, got the file {text!r}")
    return str(folder)


def _existing(run_dir: str | None) -> str | None:
    """Where nothing is started, a folder that is not there was mistyped."""
    if run_dir is not None and not Path(run_dir).is_dir():
        raise UserError(f"--run-dir must be an existing folder, got {run_dir!r}")
    return run_dir


def _add_read_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--read-only", action="store_true", help="look only: start, change and remove nothing")


def _whole(flag: str, low: int, high: int | None = None):  # type: ignore[no-untyped-def]
    def parse(text: str) -> int:
        value = read_number(text)
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if whole and low <= int(value) and (high is None or int(value) <= high):
            return int(value)
        accepted = f"{low} to {high}" if high is not None else f"{low} or more"
        raise UserError(f"{flag}: {text!r} is not accepted; accepted: a whole number, {accepted}")

    return parse


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(f"--epsilon: {text!r} is not accepted; accepted: a number from 0 to 1")
    return value


def _need_terminal(instead: str) -> None:
    if os.environ.get("TEXTUAL_DRIVER", "").startswith("textual.drivers.web_driver"):
        return  # in a browser
    # Textual draws on stderr; stdout tells whether a person looks at all.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) or os.environ.get("TERM") == "dumb":
        raise UserError(f"the dashboard needs a terminal; use: {instead}")
