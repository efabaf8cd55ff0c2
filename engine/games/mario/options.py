"""The options of Super Mario Bros."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config.fields import option
from engine.config.game import GameOptions
from engine.games.mario.actions import ACTION_SETS, RANDOM_STAGES, STAGES, WHOLE_GAME

MOST_NOOPS = 255
"""No-op frames at the start of an episode."""
MOST_STORED = 0.9
"""Share of the episodes that begin at stored states rather than at a stage's own starts."""


@dataclass(frozen=True, kw_only=True)
class MarioOptions(GameOptions):
    """Options of Super Mario Bros. "table" in a comment: see `RunConfig`."""

    stage: str = option(
        "1-1",
        "run",
        "1-1 to 8-4; several (1-1,1-2): each episode plays one of them; random: any stage; game: the whole game with "
        "three lives",
        usual=(*STAGES, WHOLE_GAME, RANDOM_STAGES),
        roles=("task", "policy"),
    )
    emulator: str = option("native", "run", "NES emulator", choices=("native", "nes-py"), roles=("policy", "games"))
    rom: str | None = option(
        None, "run", "cartridge file (iNES); if unset, the one in gym-super-mario-bros", metavar="FILE", roles=("task",)
    )
    reward: str = option(
        "progress",
        "environment",
        "progress, or classic (as in gym-super-mario-bros 7.4)",
        choices=("progress", "classic"),
        metavar="NAME",
        roles=("task", "policy"),
    )
    curriculum: bool = option(
        False, "environment", "stages of --stage unlocked one at a time; not in evaluations", roles=("task",)
    )
    curriculum_rate: float = option(
        0.5, "environment", "clear rate on the newest stage that unlocks the next one", low=0.01, high=1.0
    )
    curriculum_episodes: int = option(
        50,
        "environment",
        "window, in episodes, for that clear rate (least-exploring quarter of the lanes)",
        low=1,
        high=10_000,
    )
    actions: str = option(
        "right-only",
        "environment",
        "right-only, simple, complex, or a list such as noop,right,right+A",
        usual=tuple(ACTION_SETS),
        roles=("task", "network", "policy"),
    )
    observation: str = option(
        "50x60-red",  # table
        "environment",
        "50x60-red: no status bar, a mark while A is held, mostly the red part of colors; 50x60: the same in gray; "
        "84x84: the whole screen in gray",
        choices=("50x60-red", "50x60", "84x84"),
        roles=("task", "network", "policy", "initial"),
    )
    swim_strokes: bool = option(
        False,
        "environment",
        "under water every step with A is a stroke: A is released in its first frame; held, A does nothing there",
        roles=("task", "policy", "initial"),
    )
    frame_skip: int = option(
        4, "environment", "frames per action (Mnih et al. 2015)", low=1, high=60, roles=("task", "policy", "initial")
    )
    sticky_actions: float = option(
        0.0,
        "environment",
        "probability of repeating the previous action in each frame (Machado et al. 2018: 0.25)",
        low=0.0,
        high=0.99,
    )
    sticky_frames: bool = option(
        False,
        "environment",
        "--sticky-actions repeats frames; off in earlier runs, which repeat whole steps",
        hidden=True,
    )
    noop_max: int = option(
        30,
        "environment",
        "maximum number of random no-op frames at the start of an episode (Mnih et al. 2015)",
        low=0,
        high=MOST_NOOPS,
        roles=("evaluation",),
    )
    random_phase: bool = option(
        False,
        "environment",
        "episodes begin in a random phase of the game's counters, with other random numbers, and with frames that end "
        "elsewhere in the picture, as stages do in the whole game; in evaluations too, not with nes-py",
        roles=("evaluation",),
    )
    halfway_starts: float = option(
        0.0,
        "environment",
        "share of episodes that begin in the middle of a stage, where a life of the whole game goes on after a death "
        "behind it; in evaluations too",
        low=0.0,
        high=1.0,
        roles=("evaluation",),
    )
    start_states: float = option(
        0.0,
        "environment",
        "share of episodes that begin at states which earlier ones reached, mostly before places where many ended; "
        "neither counted nor evaluated",
        low=0.0,
        high=0.5,
    )
    guide: float = option(
        0.0,
        "environment",
        "share of episodes that begin at states of a way to the flag, which a search in the emulator finds before the "
        "run begins; neither counted nor evaluated",
        low=0.0,
        high=MOST_STORED,
    )
    network: str = option(
        "small",
        "learning",
        "nature: Mnih et al. 2015; small: half the filters, 0.6 times the cost per update; impala-wide: Clark et "
        "al. 2024, for a GPU",
        choices=("nature", "small", "impala-wide"),
        roles=("network", "initial"),
    )
    eval_noop_min: int = option(
        0,
        "output",
        "minimum number of no-op frames at the start of an evaluation's episodes",
        low=0,
        high=MOST_NOOPS,
        roles=("evaluation",),
    )
    eval_noop_max: int | None = option(
        None,
        "output",
        "maximum number of no-op frames at the start of an evaluation's episodes; none: as --noop-max",
        low=0,
        high=MOST_NOOPS,
        roles=("evaluation",),
    )
    eval_epsilon: float = option(
        0.0, "output", "fraction of random actions in evaluations; 0: greedy", low=0.0, high=1.0, roles=("evaluation",)
    )
    eval_sticky_actions: float = option(
        0.0,
        "output",
        "probability of repeating the previous action in each frame of evaluations, whatever --sticky-actions is",
        low=0.0,
        high=0.99,
        roles=("evaluation",),
    )
