"""What must hold for a run's options together, and for those whose values are not a choice or a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.fields import AUTO, BOARD_GAMES, REWARDS, ConfigError, must_be_one_of
from engine.config.joypad import why_invalid
from engine.config.stages import WHOLE_GAME, stages_of
from engine.errors import UserError

if TYPE_CHECKING:
    from engine.config.run_config import RunConfig

_BOARD_LIMITS = {"snake": ((3, 30), (3, 30)), "tetris": ((4, 12), (4, 26))}
"""Smallest and largest width, then height, in cells."""
SLOWEST_TARGET = 10_000
"""Longest time constant of the target network, in updates: the copy interval of Mnih et al. 2015."""
SPARE_STEPS = 8
"""Steps that the replay holds of each lane besides an n-step window."""


def check_together(config: RunConfig) -> None:
    """Raise `ConfigError` for the first option that can't hold together with the others."""
    _check_device(config.device)
    _check_ray(config.ray)
    if config.reward not in REWARDS[config.game]:
        raise ConfigError("reward", must_be_one_of(REWARDS[config.game], config.reward))
    if config.game in BOARD_GAMES:
        _check_board(config.game, config.board)
    if reason := why_invalid(config.actions):
        raise ConfigError("actions", reason)
    try:
        stages = stages_of(config.stage)
    except UserError as error:
        raise ConfigError("stage", str(error)) from None
    if config.curriculum and config.game == "mario" and len(stages) == 1:
        raise ConfigError("curriculum", f"needs several stages, such as --stage 1-1,1-2, got {config.stage}")
    if config.start_states and (config.emulator != "native" or config.stage == WHOLE_GAME):
        reason = "must be 0 with --emulator nes-py, whose states are slow to load, and with --stage game"
        raise ConfigError("start_states", f"{reason}, got {config.start_states:g}")
    if config.swim_strokes and config.frame_skip < 2:
        raise ConfigError("frame_skip", f"must be at least 2 with --swim-strokes, got {config.frame_skip}")
    if config.guide and config.stage == WHOLE_GAME:
        raise ConfigError("guide", f"must be 0 with --stage game, got {config.guide:g}")
    if config.guide and (config.start_states or config.sticky_actions):
        raise ConfigError("guide", f"must be 0 with --start-states and --sticky-actions, got {config.guide:g}")
    if config.advantage_learning and config.game == "tetris":
        raise ConfigError(
            "advantage_learning",
            f"must be 0 with --game tetris, whose illegal actions have no values, got {config.advantage_learning:g}",
        )
    conditions = config.eval_conditions
    if conditions.noop_min > conditions.noop_max:
        limit = "--noop-max" if config.eval_noop_max is None else "--eval-noop-max"
        raise ConfigError(
            "eval_noop_min", f"must be at most {limit} ({conditions.noop_max}), got {conditions.noop_min}"
        )
    lanes = config.processes * config.parallel_envs
    least = lanes * (config.n_step + SPARE_STEPS)
    if config.buffer_size < least:
        raise ConfigError(
            "buffer_size",
            f"must be at least {least:,} for {lanes:,} lanes and n-step {config.n_step}, got {config.buffer_size:,}",
        )
    if config.burnin > config.buffer_size:
        raise ConfigError("burnin", f"must be at most --buffer-size ({config.buffer_size:,}), got {config.burnin:,}")
    if config.batch_size > config.largest_batch:
        share = "" if config.largest_batch == config.buffer_size else f" / {config.processes} processes"
        raise ConfigError(
            "batch_size",
            f"must be auto, or at most {config.largest_batch:,} (--buffer-size {config.buffer_size:,}{share}), "
            f"got {config.batch_size:,}",
        )
    if config.batch_size != AUTO and config.accumulate > config.batch_size:
        raise ConfigError(
            "accumulate", f"must be at most --batch-size ({config.batch_size:,}), got {config.accumulate:,}"
        )
    _check_target(config)


def _check_target(config: RunConfig) -> None:
    """Refuse a target network that hardly moves, or that always equals the online one: an option was forgotten."""
    if config.tau == 1 and config.sync_every == 1:
        raise ConfigError(
            "tau", "must be below 1 with --sync-every 1: a copy after every update leaves no target network"
        )
    if config.tau < 1 and config.sync_every > SLOWEST_TARGET * config.tau:
        raise ConfigError(
            "tau",
            f"must be at least {min(config.sync_every / SLOWEST_TARGET, 1):g} with --sync-every "
            f"{config.sync_every:,}, got {config.tau:g}: the target network would hardly move",
        )


def _check_board(game: str, board: str | None) -> None:
    sides = (board or "").split("x")
    limits = _BOARD_LIMITS[game]
    if len(sides) != 2 or not all(
        side.isdecimal() and low <= int(side) <= high for side, (low, high) in zip(sides, limits, strict=True)
    ):
        width, height = (f"{low} to {high}" for low, high in limits)
        raise ConfigError("board", f"must be WIDTHxHEIGHT, width {width} and height {height}, got {board!r}")


def _check_ray(address: str) -> None:
    if address in ("none", "local", "auto"):
        return
    if address.startswith("ray://"):
        raise ConfigError("ray", "can't use Ray's client (ray://), which has no place for a learner; give HOST:PORT")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16 and not set(host) & set("/@ ")):
        raise ConfigError("ray", must_be_one_of(("none", "local", "auto", "HOST:PORT"), address))


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if device in ("auto", "cpu", "mps", "cuda") or (name == "cuda" and index.isdecimal()):
        return
    raise ConfigError("device", must_be_one_of(("auto", "cpu", "mps", "cuda", "cuda:N"), device))
