"""`mario-tui export`: the scalars of a run, or the network of a policy, for other programs; a policy for the Hub."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.config.capabilities import CommandOption
from engine.config.features import feature, place_of_feature
from engine.config.fields import flag
from engine.config.game import games, options_with
from engine.errors import UserError
from engine.protocol.messages import Failed
from engine.protocol.results import Exported, ExportOrder
from engine.runtime.files import expanded
from engine.runtime.processes import exits_on_signals
from engine.runtime.text import install_command, printable
from mario_tui.commands.attach import run_of, viewer_of
from mario_tui.commands.options import Parser, add_game_options, add_run_dir, existing, given_options, played_options
from mario_tui.engine_command import EngineCommand, failed
from mario_tui.terminal.console import progress_bar

_FORMATS = ("csv", "jsonl", "parquet", "onnx")
_OF_HUB = ("license", "film", "public")
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


def export_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui export",
        description="Scalars of a run, or of TensorBoard event files, as a table. It has one row per point: run, tag, "
        "step, wall_time (Unix time), value. With --format onnx: the network of a policy, as an ONNX model. With --to: "
        "the policy itself, with a card, to the Hugging Face Hub.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        default="latest",
        help="a run's name or path, latest (the default), an event file, or a folder of event files; for ONNX and "
        "the Hub also a policy file, a checkpoint folder, or an included policy (mario-1-1)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="a .csv, .jsonl, .parquet or .onnx file; -: standard output (default: RUN.csv in the current folder)",
    )
    parser.add_argument("--format", choices=_FORMATS, help="format (default: by the suffix of FILE, or csv)")
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        metavar="GLOB",
        help="only tags that match, such as 'charts/*'; may be given several times",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    parser.add_argument("--to", metavar="hf://USER/NAME", help="put the policy into this repository of the Hub")
    parser.add_argument("--license", metavar="ID", help="its licence, such as mit; asked for in a terminal")
    parser.add_argument("--film", type=Path, metavar="FILE", help="a GIF or MP4 of `play --record` for its card")
    parser.add_argument("--public", action="store_true", help="a repository that everybody sees (default: private)")
    add_game_options(parser, _code_options())
    add_run_dir(parser)
    return parser


def _code_options() -> dict[str, CommandOption]:
    """Options that name code, which a policy that is not the user's own does not choose."""
    imports = {name for game in games() for name in options_with("import", game)}
    return {name: how for name, how in played_options().items() if name in imports}


def run(arguments: list[str]) -> int:
    options = export_parser().parse_args(arguments)
    run_dir = existing(options.run_dir)
    if options.to is not None:
        return _put_on_hub(options, run_dir)
    if name := next((name for name in _OF_HUB if getattr(options, name)), None):
        raise UserError(f"--{name} needs --to hf://USER/NAME")
    output = None if options.output in (None, "-") else expanded(options.output)
    format = options.format or ("csv" if output is None else output.suffix.removeprefix("."))
    if format not in _FORMATS:
        raise UserError(
            f"--output must end in .csv, .jsonl, .parquet or .onnx, or have a --format, got {options.output!r}"
        )
    if format == "onnx":
        return _export_policy(options, run_dir, output)
    for name in _code_options():
        if getattr(options, name, None) is not None:
            raise UserError(f"{flag(name)} needs --format onnx")
    path = Path(options.run)
    if viewer_of(path) is None:
        path = run_of(options.run, run_dir).path
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    if options.output is None:
        output = Path(f"{folder.name}.{format}")
    _check_output(output, options.force)
    from mario_tui.extras.export.scalars import Points, export

    return export(Points(path, folder.name, options.tag), output, format)


def _export_policy(options: argparse.Namespace, run_dir: str | None, output: Path | None) -> int:
    from engine.runs.lookup import find_policy, origin_of
    from mario_tui.commands.options import check_policy

    if options.tag or options.output == "-":
        raise UserError(f"{'--tag' if options.tag else '--output -'} can't be combined with --format onnx")
    policy = find_policy(options.run, run_dir)
    game = check_policy(policy, options)
    code = given_options(vars(options), _code_options(), game)
    if output is None:
        output = Path(origin_of(policy).name.removesuffix(".safetensors").replace(" ", "-") + ".onnx")
    _check_output(output, options.force)
    return export_onnx(policy, output, code)


def _put_on_hub(options: argparse.Namespace, run_dir: str | None) -> int:
    from engine.runs.lookup import HUB, find_policy

    if other := next((name for name in ("output", "format", "tag") if getattr(options, name)), None):
        raise UserError(f"--{other} can't be combined with --to")
    if not options.to.startswith(HUB):
        raise UserError(f"--to must be {HUB}USER/NAME, got {options.to!r}")
    if options.film is not None and (options.film.suffix not in (".gif", ".mp4") or not options.film.is_file()):
        raise UserError(f"--film must be a .gif or .mp4 file, got {str(options.film)!r}")
    put = feature("uploads to the Hub", "--to")
    policy, licence = find_policy(options.run, run_dir), options.license
    if licence is None and sys.stdin.isatty():
        licence = input("licence of the policy, such as mit or cc-by-4.0: ").strip()
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", licence or ""):
        raise UserError(f"--license must be an identifier of the Hub, such as mit or cc-by-4.0, got {licence!r}")
    address = put(policy, options.to, licence=licence, public=options.public, film=options.film)
    print(address)
    return 0


def _check_output(output: Path | None, force: bool) -> None:
    """Raise `UserError` if a file can't be written there. Pipes and devices can be; there is nothing to overwrite."""
    if output is None:
        return
    if output.is_dir():
        raise UserError(f"--output must be a file, got the folder {output}")
    if output.is_file() and not force:
        raise UserError(f"--output: {output} exists; --force overwrites it")


@exits_on_signals()
def export_onnx(policy: Path, output: Path, code: dict[str, Any]) -> int:
    """Write the network of a policy as an ONNX model. `code`: options that name code of the policy's game. Returns
    the exit status."""
    module = place_of_feature("export of ONNX models", "--format onnx")
    if not all(find_spec(name) for name in _NEEDED):
        raise UserError(f"--format onnx needs ONNX; install it with: {install_command('onnx')}")
    if output.exists() and not output.is_file():
        raise UserError(f"--output must be a file, got {output}")
    order = ExportOrder(policy=str(policy), output=str(output.resolve()), own=code)
    command = EngineCommand(module, order.argument())
    with command, progress_bar(f"exporting {printable(output.name)}", None):  # half a minute for Snake's
        result = command.result(Exported)
    if isinstance(result, Failed):
        return failed("the export", result)
    print(_told(result, output))
    return 0


def _told(r: Exported, output: Path) -> str:
    return printable(f"wrote {output}: {r.size / 2**20:.1f} MiB, opset {r.opset}") + (
        f"\n{r.agreeing:,} of {r.observations:,} actions agree with the policy; "
        f"largest difference of a Q-value: {r.largest_difference:.1e}"
    )
