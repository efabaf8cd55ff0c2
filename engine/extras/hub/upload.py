"""Puts a policy on the Hugging Face Hub: the file as it is, and a card (README.md) made from what is known of it.

The card names no path, address, tag or note of this machine: only the policy's metadata, what it was judged by, and
the command line that made it without options that hold such.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.config.command_line import command_line
from engine.config.game import game_of, options_with
from engine.errors import UserError
from engine.extras.hub.download import POLICY, SCHEME, Address, asking
from engine.runs import policies
from engine.runs.checkpoints import check_policy
from engine.runs.lookup import origin_of
from engine.runs.marks import run_folder
from engine.runs.run import Run

_PLACES = "run_dir", "rom", "ray"
"""Options that hold folders or addresses."""


def put(policy: Path, to: str, *, licence: str, public: bool, film: Path | None = None) -> str:
    """Create the repository if there is none, and commit the policy and its card there.

    Args:
        policy: a policy file.
        to: `hf://user/name`.
        licence: an identifier of the Hub, such as `mit`.
        public: whether everybody sees a repository that is created.
        film: shown on the card.

    Returns the address with the commit. Raises `UserError`.
    """
    address = Address.of(to)
    if address.revision is not None:
        raise UserError(f"--to must be hf://user/name, without a revision, got {to}")
    text = card(policy, address, licence, film)
    with asking(address):
        from huggingface_hub import CommitOperationAdd, HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        hub = HfApi()
        hub.create_repo(address.repository, visibility="public" if public else "private", exist_ok=True)
        files: dict[str, Any] = {POLICY: str(policy), "README.md": text.encode()}
        if film is not None:
            files[_film_name(film)] = str(film)
        operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=file) for name, file in files.items()]
        done = hub.create_commit(address.repository, operations, commit_message=f"A policy for {_task(policy)}")
        return str(Address(address.repository, done.oid))


def card(policy: Path, address: Address, licence: str, film: Path | None = None) -> str:
    """The text of README.md, whose head has the results as `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    said, origin = check_policy(policy), origin_of(policy)
    results = list(_results(policy))
    data = ModelCardData(
        license=licence,
        library_name="mario-tui",
        tags=["reinforcement-learning", "mario-tui", "dqn", said["game"]],
        model_name=address.repository.partition("/")[2],
        eval_results=[
            EvalResult(
                task_type="reinforcement-learning",
                dataset_type=said["game"],
                dataset_name=_task(policy),
                metric_type=metric,
                metric_name=f"{metric}, {conditions}",
                metric_value=value,
            )
            for metric, conditions, value, _ in results
        ],
    )
    lines = ["---", data.to_yaml(), "---", f"# {_task(policy)}", ""]
    lines += [f"A policy of mario-tui with the network `{said['network']}`."]
    if film is not None:
        lines += ["", f"![how it plays]({_film_name(film)})"]
    lines += ["", "```", f"mario-tui play {address}", f"mario-tui eval {address} --episodes 100"]
    lines += [f"mario-tui --initial-policy {address}", "```"]
    if results:
        lines += ["", "| conditions | measure | value | episodes |", "|---|---|---|---|"]
        lines += [
            f"| {conditions} | {metric} | {value:.4g} | {count} |" for metric, conditions, value, count in results
        ]
    lines += ["", f"Trained for {origin.env_steps or 0:,} environment steps, {origin.updates or 0:,} updates."]
    if command := _command(policy):
        lines += ["The command line, without folders and addresses:", "", "```", command, "```"]
    return "\n".join(lines) + "\n"


def _film_name(film: Path) -> str:
    return f"film{film.suffix}"


def _task(policy: Path) -> str:
    origin, said = origin_of(policy), check_policy(policy)
    return f"{game_of(said['game']).name} {origin.trained_on}".strip()


def _own_card(policy: Path) -> policies.Card | None:
    """That of a policy which comes with the package."""
    if origin_of(policy).kind != "included":
        return None
    return next((each for each in policies.cards() if each.name == policy.stem), None)


def _run_of(policy: Path) -> Run | None:
    folder = run_folder(policy)
    return None if folder is None else Run(folder)


def _results(policy: Path) -> Iterator[tuple[str, str, float, int]]:
    """Measure, conditions, value and number of episodes of what the policy was judged by."""
    if (known := _own_card(policy)) is not None:
        for rate in known.rates:
            parts = {
                f"{rate.noop_min} to {rate.noop_max} no-ops": rate.noop_max > 0,
                "any phase": rate.random_phase,
                f"halfway starts {rate.halfway_starts:g}": rate.halfway_starts > 0,
                f"epsilon {rate.epsilon:g}": rate.epsilon > 0,
                f"sticky actions {rate.sticky_actions:g}": rate.sticky_actions > 0,
                f"on {rate.console}": rate.console not in ("", "native"),
            }
            conditions = ", ".join(part for part, holds in parts.items() if holds) or "greedy"
            yield "clear_rate", conditions, rate.clears / rate.episodes, rate.episodes
            yield "mean_score", conditions, rate.mean_score, rate.episodes
    elif (run := _run_of(policy)) is not None:
        record = run.record()
        if (result := record.result) is not None and result.episodes:
            if result.clear_rate is not None:
                yield "clear_rate", "final evaluation", result.clear_rate.mean, result.episodes
            if result.mean_return is not None:
                yield "mean_reward", "final evaluation", result.mean_return.mean, result.episodes
        elif (best := record.best) is not None:
            yield "mean_reward", "best evaluation", best.mean_return, best.episodes


def _command(policy: Path) -> str:
    """The command line that made it; empty if that is not known."""
    if (known := _own_card(policy)) is not None:
        return known.command
    run = _run_of(policy)
    if run is None:
        return ""
    config, hidden = run.config(), {*_PLACES, *options_with("import", run.config().game)}
    if config.initial_policy is not None and not is_public(config.initial_policy):
        hidden.add("initial_policy")
    return command_line(config, without=hidden)


def is_public(initial_policy: str) -> bool:
    """Return whether others can find it: on the Hub or in the package."""
    return initial_policy.startswith(SCHEME) or policies.has_card(initial_policy)
