"""`mario-tui distill`: one network that plays what several policies play."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from engine.config.conditions import Conditions
from engine.config.fields import must_be_within
from engine.config.stages import STAGES
from engine.errors import UserError
from engine.games.mario.actions import why_invalid
from engine.games.mario.options import MarioOptions
from mario_tui.commands.options import Parser, add_run_dir, existing, whole
from mario_tui.launch import expanded

_SUFFIX = ".safetensors"
_SHORTEST_MIN, _LONGEST_MIN = 0.01, 100_000.0


def distill_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mario-tui distill",
        description="Teach one network what several policies play. They are the teachers: each labels what the student "
        "sees in its stages (Mario) or on its board (Snake). A stage of Mario can be given instead of a policy: then "
        "a search in the emulator finds a way to its flag, and what to do where the student fails.",
        epilog="Ctrl-C ends it; the best student so far is kept.",
    )
    parser.add_argument(
        "checkpoint",
        nargs="+",
        metavar="POLICY|STAGE",
        help="a policy file, a checkpoint folder, a run's name or path, latest, an included policy (mario-1-1), or a "
        "stage (1-3), which is taught by a search",
    )
    parser.add_argument(
        "--into", type=expanded, default=Path(f"distilled{_SUFFIX}"), metavar="FILE",
        help=f"policy file to write (default: distilled{_SUFFIX})",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    parser.add_argument(
        "--network", choices=("small", "nature"),
        help="Mario's network, as in training; small takes 0.7 times as long per update, but needs more of them "
        "(default: nature)",
    )  # fmt: skip
    parser.add_argument(
        "--actions", type=_actions, metavar="SET",
        help="actions of Mario's stages without a policy, as in training: right-only, simple, complex, or a list "
        f"(default: {MarioOptions.actions})",
    )  # fmt: skip
    parser.add_argument(
        "--noop-max", type=whole("--noop-max", 0, 255), metavar="N",
        help="maximum number of no-op frames at the start of Mario's training episodes; evaluations keep "
        f"{Conditions().noop_max} (default: {Conditions().noop_max})",
    )  # fmt: skip
    parser.add_argument(
        "--initial-policy", metavar="POLICY", help="begin with the weights of this policy (default: random weights)"
    )
    parser.add_argument(
        "--steps", type=whole("--steps", 1, 10**12), default=500_000, metavar="N",
        help="environment steps, of all stages together (default: 500,000)",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=_minutes, metavar="M",
        help="also stop after this time, of which a search for ways to the flag gets half; the last evaluation "
        "follows (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-every", type=whole("--eval-every", 1, 10**12), default=50_000, metavar="N",
        help="environment steps between greedy evaluations; the best student is kept (default: 50,000)",
    )  # fmt: skip
    parser.add_argument(
        "--eval-episodes", type=whole("--eval-episodes", 1, 1000), default=10, metavar="N",
        help="episodes per evaluation and stage or board (default: 10)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole("--seed", 0, 2**32 - 1), default=0, metavar="N", help="random seed (default: 0)"
    )
    parser.add_argument(
        "--rom", type=expanded, metavar="FILE", help="cartridge file, iNES (default: the one in gym-super-mario-bros)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines: each evaluation, then a summary")
    add_run_dir(parser)
    return parser


def run(arguments: list[str]) -> int:
    options = distill_parser().parse_args(arguments)
    from engine.runs.checkpoints import find_policy, policy_metadata

    teachers = [
        name if name in STAGES else str(find_policy(name, existing(options.run_dir))) for name in options.checkpoint
    ]
    game = "mario" if teachers[0] in STAGES else policy_metadata(Path(teachers[0]))["game"]
    for name in ("network", "actions", "noop_max", "rom"):
        if game != "mario" and getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} can't be combined with policies for {game}")
    if options.actions is not None and not any(name in STAGES for name in teachers):
        raise UserError("--actions needs a stage; policies keep their own")
    into = _target(options.into, force=options.force)
    for_engine = [*teachers, f"--into={into}"]
    for name in ("network", "actions", "noop_max", "steps", "minutes", "eval_every", "eval_episodes", "seed"):
        if getattr(options, name) is not None:
            for_engine.append(f"--{name.replace('_', '-')}={getattr(options, name)}")
    if options.initial_policy is not None:
        for_engine.append(f"--initial-policy={find_policy(options.initial_policy, existing(options.run_dir))}")
    if options.rom is not None:
        for_engine.append(f"--rom={options.rom.resolve()}")
    from mario_tui.distill import distill

    return distill(for_engine, game, options.steps, options.minutes, as_json=options.json)


def _target(path: Path, *, force: bool) -> Path:
    """Where the policy is written. Raises `UserError` if it can't be, before anything is learned."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--into must end in {_SUFFIX}, got {str(path)!r}")
    folder = path.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"--into must be in a folder that can be written to, got {str(path)!r}")
    if path.is_dir() or (path.exists() and not force):
        raise UserError(f"--into: {path} exists already; --force overwrites it")
    return path.absolute()


def _actions(text: str) -> str:
    if reason := why_invalid(text):
        raise UserError(f"--actions {reason}")
    return text


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _SHORTEST_MIN <= value <= _LONGEST_MIN:
        raise UserError(f"--minutes {must_be_within(_SHORTEST_MIN, _LONGEST_MIN, text, whole=False)}")
    return value
