"""Policy files made from those of the package, with other metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from engine.runs import policies
from engine.runs.checkpoints import POLICY_FORMAT, policy_metadata


def altered(name: str, into: Path, **changes: Any) -> Path:
    """A copy of a policy of the package whose metadata say something else."""
    source = policies.path_of(name)
    assert source is not None
    path = into / f"{name}-altered.safetensors"
    said = json.dumps({**policy_metadata(source), **changes})
    save_file(load_file(source), path, {"format": POLICY_FORMAT, "policy": said})
    return path
