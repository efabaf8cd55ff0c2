"""What commands of the engine have in common: the policy that they are given, and how they answer the front end, with
packed messages on their standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.config.command_line import own_values
from engine.config.game import Game
from engine.config.games import game_of
from engine.protocol.failures import describe
from engine.protocol.framing import pack
from engine.protocol.message import Message
from engine.runs.checkpoints import policy_metadata
from engine.runs.trust import check_code

Send = Callable[[Message], None]


def take_stdout() -> Send:
    """A function that writes messages to standard output. Redirects all other output to stderr, so that libraries can't
    print between the messages."""
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(report: Message) -> None:
        stream.write(pack(report))
        stream.flush()

    return send


def answered(work: Callable[[], None], send: Send) -> int:
    """Do the work, which sends its results, and send why if it fails. Returns the exit status."""
    try:
        work()
    except BrokenPipeError:
        os._exit(0)  # the reader has gone; flushing at exit would fail again
    except Exception as error:
        send(describe(error))
        return 1
    return 0


def chosen_policy(path: Path, others: Sequence[str]) -> tuple[dict[str, Any], Game, dict[str, Any]]:
    """Metadata of a policy file, its game, and the options of the game in the arguments `others`. The code that they
    name may be imported. Raises `UserError`, also if the user has not chosen that code."""
    metadata = policy_metadata(path)
    game = game_of(metadata["game"])
    own = own_values(others, game.name, game.played_options)
    check_code(metadata, own, path, "the policy")
    return metadata, game, own
