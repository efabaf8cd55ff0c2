"""Policy files made from those of the package, with other metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from engine.runs import policies
from engine.runs.checkpoints import POLICY_FILE, POLICY_FORMAT, policy_metadata


def shipped(name: str) -> Path:
    """A policy of the package."""
    path = policies.path_of(name)
    assert path is not None
    return path


def altered(name: str, into: Path, **changes: Any) -> Path:
    """A copy of a policy of the package whose metadata say something else."""
    source = shipped(name)
    path = into / f"{name}-altered.safetensors"
    said = json.dumps({**policy_metadata(source), **changes})
    save_file(load_file(source), path, {"format": POLICY_FORMAT, "policy": said})
    return path


def weights(checkpoint: Path) -> dict[str, Any]:
    """The weights of the policy in a checkpoint."""
    return load_file(checkpoint / POLICY_FILE)
