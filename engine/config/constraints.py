"""What must hold for a run's options together, and for those whose values are not a choice or a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.fields import AUTO, ConfigError, must_be_one_of

if TYPE_CHECKING:
    from engine.config.run_config import RunConfig

SLOWEST_TARGET = 10_000
"""Longest time constant of the target network, in updates: the copy interval of Mnih et al. 2015."""
SPARE_STEPS = 8
"""Steps that the replay holds of each lane besides an n-step window."""


def check_together(config: RunConfig) -> None:
    """Raise `ConfigError` for the first option that can't hold together with the others."""
    _check_device(config.device)
    check_ray(config.ray)
    config.game_info.check(config)
    if config.advantage_learning and config.game_info.spec(config).masked:
        raise ConfigError(
            "advantage_learning",
            f"must be 0 if actions can be illegal, because their Q-values are not learned, got "
            f"{config.advantage_learning:g}",
        )
    if config.final_gamma is not None and config.game_info.keeps_gamma(config):
        raise ConfigError(
            "final_gamma", f"must be none with --curriculum, whose rewards contain --gamma, got {config.final_gamma:g}"
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
        divided = "" if config.largest_batch == config.buffer_size else f" / {config.processes} processes"
        raise ConfigError(
            "batch_size",
            f"must be auto, or at most {config.largest_batch:,} (--buffer-size {config.buffer_size:,}{divided}), "
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


def check_ray(address: str, words: tuple[str, ...] = ("none", "local", "auto")) -> None:
    """Raise `ConfigError` for what is neither one of the words nor the address of a cluster."""
    if address in words:
        return
    if address.startswith("ray://"):
        raise ConfigError("ray", "can't use Ray's client (ray://), which has no place for a learner; give HOST:PORT")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16 and not set(host) & set("/@ ")):
        raise ConfigError("ray", must_be_one_of((*words, "HOST:PORT"), address))


def _check_device(device: str) -> None:
    name, _, index = device.partition(":")
    if device in ("auto", "cpu", "mps", "cuda") or (name == "cuda" and index.isdecimal()):
        return
    raise ConfigError("device", must_be_one_of(("auto", "cpu", "mps", "cuda", "cuda:N"), device))
