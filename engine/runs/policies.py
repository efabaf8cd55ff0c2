"""The trained policies that come with the package, with their cards, and what the metadata of a policy file may say.

The package has all cards and the policies that most people want; a distribution of its own, `mario-tui-policies`, has
the other policies. Any other policy file may be foreign, and what it says decides how large a network is built: so it
must name a task that a run can have, and the shapes must be those of the task. Does not import torch.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import msgspec

from engine.config.capabilities import JoinsPolicies, learned_apart
from engine.config.fields import ConfigError, must_be_one_of
from engine.config.game import GAMES, Game, game_of, options_with, own_options
from engine.config.reading import config_of_policy
from engine.config.run_config import HEAD_OPTIONS, RunConfig, check_head
from engine.errors import UserError
from engine.protocol.outcome import Conditions
from engine.protocol.results import Count, FinalResult, Score, Seconds
from engine.runtime.formats import read_json
from engine.runtime.text import install_command, printable

_MAX_BYTES = 2**20


class Rate(Conditions, frozen=True, kw_only=True):
    """An evaluation of a policy, and its conditions."""

    console: str  # native or nes-py for Mario, empty for other games
    episodes: int
    clears: int
    mean_score: float
    clears_by_stage: dict[str, int] = {}  # of a policy for several stages, each of which had equally many episodes

    def is_under(self, conditions: Conditions) -> bool:
        return all(getattr(self, name) == getattr(conditions, name) for name in Conditions.__struct_fields__)


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    result: FinalResult | None = None  # of the run that trained it


def folder() -> Path:
    """The folder of the policies and cards, in the installed package or in a checkout."""
    inside = Path(__file__).parents[1] / "shipped"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "checkpoints" / "policies"


def _folders() -> Iterator[Path]:
    """Return where policies are: with the package, in the folder beside it of a checkout, in `mario-tui-policies`."""
    own = folder()
    yield own
    yield own.parent / "more-policies"
    spec = find_spec("mario_tui_policies")
    yield from map(Path, spec.submodule_search_locations or ()) if spec is not None else ()


def cards(where: Path | None = None) -> list[Card]:
    """The cards of all policies in a folder (default: the package's), sorted by name. Raises `UserError` if one can't
    be read."""
    found = sorted((where or folder()).glob("*.json"), key=lambda path: path.stem)
    return [_card(path) for path in found]


def _card(path: Path) -> Card:
    try:
        return read_json(path, Card, _MAX_BYTES, links=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UserError(f"{path}: can't be read ({reason or printable(str(error))})") from None


def has_card(name: str) -> bool:
    """Return whether there is a policy of this name, installed or not."""
    path = folder() / f"{name}.json"
    return path.parent == folder() and path.is_file()


def path_of(name: str) -> Path | None:
    """The file of a policy by its name, such as `mario-1-1`; None if it is not installed, or there is none."""
    paths = (where / f"{name}.safetensors" for where in _folders()) if has_card(name) else ()
    return next((path for path in paths if path.is_file()), None)


def how_to_install(name: str) -> str:
    return f"{name} comes with: {install_command('policies')}"


def by_task(game: str) -> list[str]:
    """Names of a game's installed policies for a single task, those with the most clears on their cards in random
    phases first, in which they will begin, and then that for the most tasks, which plays the others."""

    def clears(card: Card) -> float:
        fitting = [rate for rate in card.rates if rate.random_phase] or card.rates
        return statistics.fmean(rate.clears / rate.episodes for rate in fitting)

    known = [card for card in cards() if card.game == game and path_of(card.name) is not None]
    single = [card for card in known if "," not in card.stage]
    single.sort(key=clears, reverse=True)
    widest = max(known, key=lambda card: card.stage.count(","))
    return [*(card.name for card in single), widest.name]


_MOST_PARTS = 32
"""Boards from whose policies one may have been distilled."""
_Side = Annotated[int, msgspec.Meta(ge=1, le=2**12)]


class Metadata(msgspec.Struct):
    """Fields of every policy."""

    game: str
    network: str
    stack: _Side
    frame_shape: Annotated[list[_Side], msgspec.Meta(min_length=1, max_length=3)]
    outputs: _Side
    version: str = ""
    env_steps: Count = 0
    updates: Count = 0
    seed: Count = 0
    minutes: Seconds = 0.0
    score: Annotated[list[Score], msgspec.Meta(max_length=8)] = []
    evaluation: Conditions | None = None
    teachers: list[str] = []
    options: dict[str, bool | int | float | str | None] = {}
    actions: Annotated[list[str], msgspec.Meta(min_length=1, max_length=256)] | None = None
    board: str | None = None
    quantiles: Annotated[int, msgspec.Meta(ge=2, le=512)] | None = None
    noisy: bool = False


def checked_metadata(said: Any) -> dict[str, Any]:
    """The metadata of a policy, with its task as a run's options say it. Raises `ValueError` saying what is
    wrong."""
    policy = msgspec.convert(said, Metadata)
    if policy.game not in GAMES:
        raise ValueError(f"game {must_be_one_of(GAMES, policy.game)}")
    game = game_of(policy.game)
    network = policy.network
    if network not in game.networks and not ("network" in options_with("import", game.name) and ":" in network):
        raise ValueError(f"network {must_be_one_of(game.networks, network)}")
    head = {name: getattr(policy, name) for name in HEAD_OPTIONS}
    may_lack = {name for name, spec in own_options(game.name).items() if spec.default is None}
    missing = [name for name in options_with("policy", game.name) if said.get(name) is None and name not in may_lack]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    try:
        check_head(game, network, head)
        configs = _configs(game, said)
        specs = [config.spec for config in configs]
        spec = game.spec_for_all(specs) if isinstance(game, JoinsPolicies) else specs[0]
    except ConfigError as error:
        raise ValueError(f"{error.field} {error.reason}") from None
    shapes = {"frame_shape": list(spec.frame_shape), "stack": spec.stack, "outputs": spec.actions}
    for name, wanted in shapes.items():
        if getattr(policy, name) != wanted:
            raise ValueError(f"{name} must be {wanted} for its task, got {getattr(policy, name)}")
    as_listed = {name: said[name] for name in (game.tasks, "actions") if name in said}
    options = {name: configs[0].value(name) for name in options_with("policy", game.name)}
    return said | options | as_listed | head | {"normalized": spec.normalized, "numbers": spec.numbers}


def _configs(game: Game, said: Mapping[str, Any]) -> list[RunConfig]:
    """The options of runs that learn the parts of the policy's task. Raises `ConfigError` if no run can have them."""
    tasks = said[game.tasks]
    if not isinstance(tasks, str) or len(learned := learned_apart(game, tasks)) > _MOST_PARTS:
        raise ConfigError(game.tasks, f"must be text that names at most {_MOST_PARTS}, got {tasks!r}")
    if len(set(learned)) < len(learned):
        raise ConfigError(game.tasks, f"must name each once, got {tasks!r}")
    return [config_of_policy({**said, game.tasks: each}) for each in learned]
