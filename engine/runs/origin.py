"""Where a policy file comes from, as far as its place and its metadata tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.config.games import game_of
from engine.protocol.results import PolicyKind
from engine.runs import policies
from engine.runs.checkpoints import BEST_POLICY_FILE, POLICY_FILE, policy_metadata
from engine.runs.run import run_folder

_MOST = 2**53


@dataclass(frozen=True)
class Origin:
    """What is not known is None, or empty."""

    name: str
    """Short name: that of a policy that comes with the package, a run and what of it, or the file's name."""
    kind: PolicyKind
    run: str | None
    """The run in whose folder the file is."""
    trained_on: str
    """What the game's option `tasks` was: Mario's stages, or the size of a board."""
    env_steps: int | None
    updates: int | None


def origin_of(policy: Path) -> Origin:
    """Where a policy file comes from. Raises `CheckpointError` if it is not a policy of mario-tui."""
    metadata = policy_metadata(policy)
    game = game_of(metadata["game"])
    trained_on = metadata.get(game.tasks)
    run = run_folder(policy)
    name, kind = _named(policy, run)
    return Origin(
        name=name,
        kind=kind,
        run=None if run is None else run.name,
        trained_on=game.task_label(trained_on) if isinstance(trained_on, str) else "",
        env_steps=_count(metadata.get("env_steps")),
        updates=_count(metadata.get("updates")),
    )


def _named(policy: Path, run: Path | None) -> tuple[str, PolicyKind]:
    if run is not None:
        if policy.parent != run:
            kind: PolicyKind = "checkpoint" if policy.name == POLICY_FILE else "saved"
            return f"{run.name} {policy.parent.name}", kind
        if policy.name == BEST_POLICY_FILE:
            return f"{run.name} best", "best"
        return f"{run.name} {policy.stem}", "saved"
    shipped = policies.path_of(policy.stem)
    if shipped is not None and shipped.resolve() == policy.resolve():
        return policy.stem, "included"
    return policy.name, "file"


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None
