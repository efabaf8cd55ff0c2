"""Which subfolders of event files are seeds of one setting, by their names: programs that write event files note that
nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEEDS = (
    re.compile(r"(?P<before>.*?seed[-_= ]?)(?P<seed>\d+)(?P<after>.*?)(?:__\d{9,})?", re.IGNORECASE),  # seed_3, seed=3
    re.compile(r"(?P<before>.+__)(?P<seed>\d+)(?P<after>)__\d{9,}"),  # CleanRL: environment__program__seed__time
    re.compile(r"(?P<before>(?:.*/)?(?:[A-Z][A-Z0-9]+_|run_)?)(?P<seed>\d+)(?P<after>)"),  # Stable-Baselines3: PPO_1; 1
)


def setting_of(subfolder: str) -> tuple[str, int | None]:
    """The name of the setting, with `*` for the seed, and the seed. A name without one is a setting of its own.

    >>> setting_of("lr=0.1/seed_3")
    ('lr=0.1/seed_*', 3)
    >>> setting_of("CartPole-v1__dqn__7__1690000000")
    ('CartPole-v1__dqn__*', 7)
    >>> setting_of("lr=0.1")
    ('lr=0.1', None)
    """
    for pattern in _SEEDS:
        if found := pattern.fullmatch(subfolder):
            return f"{found['before']}*{found['after']}", int(found["seed"])
    return subfolder, None


def by_setting(subfolders: Iterable[str]) -> dict[str, list[str]]:
    """The subfolders of each setting. One that is alone keeps its name."""
    found = dict[str, list[str]]()
    for each in subfolders:
        found.setdefault(setting_of(each)[0], []).append(each)
    return {name if len(each) > 1 else each[0]: each for name, each in found.items()}
