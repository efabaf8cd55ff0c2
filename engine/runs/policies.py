"""The trained policies that come with the package, and their cards. Does not import torch.

The package has all cards and the policies that most people want; a distribution of its own, `mario-tui-policies`, has
the other policies.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from engine.config.conditions import Conditions
from engine.errors import UserError
from engine.runtime.extras import install_command


class Rate(Conditions, frozen=True, kw_only=True):
    """An evaluation of a policy, and its conditions."""

    console: str  # native or nes-py for Mario, empty for other games
    episodes: int
    clears: int
    mean_score: float
    clears_by_stage: dict[str, int] = {}  # of a policy for several stages, each of which had equally many episodes

    def is_under(self, conditions: Conditions) -> bool:
        return all(getattr(self, name) == getattr(conditions, name) for name in Conditions.__struct_fields__)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy was trained and how well it plays; stored as `<policy>.json` beside it."""

    name: str
    game: str
    stage: str  # stage or board
    command: str  # the command that trained it
    seed: int
    env_steps: int
    minutes: float  # training time, including evaluations
    machine: str  # on which it was judged; the run may have used fewer cores
    version: str  # of mario-tui
    torch: str
    dtype: str  # of the weights in the file
    rates: list[Rate]

    def rate(self, console: str, conditions: Conditions) -> Rate | None:
        """The rate on a console under these conditions; None if the card has none."""
        return next((rate for rate in self.rates if rate.console == console and rate.is_under(conditions)), None)


def folder() -> Path:
    """The folder of the policies and cards, in the installed package or in a checkout."""
    inside = Path(__file__).parents[1] / "shipped"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "checkpoints" / "policies"


def _folders() -> Iterator[Path]:
    """Where policies are: with the package, in the folder beside it of a checkout, in `mario-tui-policies`."""
    own = folder()
    yield own
    yield own.parent / "more-policies"
    spec = find_spec("mario_tui_policies")
    yield from map(Path, spec.submodule_search_locations or ()) if spec is not None else ()


def cards(where: Path | None = None) -> list[Card]:
    """The cards of all policies in a folder (default: the package's), sorted by name."""
    found = sorted((where or folder()).glob("*.json"), key=lambda path: path.stem)
    return [msgspec.json.decode(path.read_bytes(), type=Card) for path in found]


def has_card(name: str) -> bool:
    """Whether there is a policy of this name, installed or not."""
    path = folder() / f"{name}.json"
    return path.parent == folder() and path.is_file()


def path_of(name: str) -> Path | None:
    """The file of a policy by its name, such as `mario-1-1`; None if it is not installed, or there is none."""
    paths = (where / f"{name}.safetensors" for where in _folders()) if has_card(name) else ()
    return next((path for path in paths if path.is_file()), None)


def how_to_install(name: str) -> str:
    return f"{name} comes with: {install_command('policies')}"


def of_task(game: str, where: str | None) -> Path:
    """The policy for a game and its stage or board (None: any); one for this alone is preferred to one for several, and
    of equals the first by name. Raises `UserError` with the names of all policies, or how to install it."""
    known = cards()
    suited = [card for card in known if card.game == game and where in (None, card.stage, *card.stage.split(","))]
    if where is not None:
        suited.sort(key=lambda card: card.stage.count(","))
    paths = (path_of(card.name) for card in suited)
    if (path := next(filter(None, paths), None)) is not None:
        return path
    if suited:
        raise UserError(f"CHECKPOINT: {how_to_install(suited[0].name)}")
    names = ", ".join(card.name for card in known) or "none yet"
    asked = game if where is None else f"{game} {where}"
    raise UserError(f"CHECKPOINT: no policy comes with the package for {asked}; accepted: {names}")


def write_card(card: Card, where: Path) -> None:
    text = json.dumps(msgspec.to_builtins(card), indent=1) + "\n"
    (where / f"{card.name}.json").write_text(text, encoding="utf-8")
