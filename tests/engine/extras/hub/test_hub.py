"""Policies that go to the Hub and come from it, against a local server that speaks its protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, constants

from engine.errors import UserError
from engine.extras.hub.download import Address, pinned
from engine.extras.hub.upload import card
from engine.runs import policies
from engine.runs.registry import create_run
from engine.runs.sweep import Sweep
from tests.support.hub import TOKEN, Hub, hub
from tests.support.program import refusal, run_program

SNAKE = "snake-12x12"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub of this test's, for this process and for those that it starts, whose user is logged in."""
    with hub() as started:
        for name, value in {
            "HF_ENDPOINT": started.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "ENDPOINT", started.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", started.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield started


def shipped(name: str) -> bytes:
    path = policies.path_of(name)
    assert path is not None
    return path.read_bytes()


@pytest.mark.process
def test_a_policy_goes_to_the_hub_and_comes_back(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = run_program("export", SNAKE, "--to", "hf://somebody/snake", "--license", "mit", cwd=tmp_path)
    address = put.stdout.strip()
    ((commit, files),) = server.repositories["somebody/snake"]
    assert address == f"hf://somebody/snake@{commit}" and server.visibility == {"somebody/snake": "private"}
    assert files["policy.safetensors"] == shipped(SNAKE)
    head = ModelCard(files["README.md"].decode()).data.to_dict()
    assert (head["license"], head["library_name"]) == ("mit", "mario-tui")
    known = next(each for each in policies.cards() if each.name == SNAKE)
    metrics = head["model-index"][0]["results"][0]["metrics"]
    assert metrics[1] == {
        "type": "mean_score", "name": "mean_score, greedy", "value": known.rates[0].mean_score
    }  # fmt: skip

    found = json.loads(run_program("eval", "hf://somebody/snake", "--episodes", "1", "--json", cwd=tmp_path).stdout)
    assert found["trained_env_steps"] == known.env_steps
    monkeypatch.setenv("HF_TOKEN", "")
    assert refusal("eval", "hf://somebody/snake", cwd=tmp_path).endswith(
        "hf://somebody/snake: there is no such repository, or it is private; if it is, log in with: hf auth login (or "
        "set HF_TOKEN)"
    )
    server.commit("somebody/snake", {"policy.safetensors": b"newer"})
    server.shutdown()
    assert pinned(address) == address  # of the older commit, which is here: nobody is asked
    assert server.downloads == ["somebody/snake/policy.safetensors"]


@pytest.mark.process
def test_all_runs_of_a_sweep_begin_with_one_download(server: Hub, tmp_path: Path) -> None:
    commit = server.commit("somebody/snake", {"policy.safetensors": shipped(SNAKE), "README.md": b""})
    run_program(
        "sweep", "--game", "snake:12x12", "--initial-policy", "hf://somebody/snake", "--steps", "64", "--burnin", "32",
        "--parallel-envs", "2", "--eval-every", "0", "--seeds", "2", "--name", "two", cwd=tmp_path,
    )  # fmt: skip
    server.commit("somebody/snake", {"policy.safetensors": b"newer"})
    run_program("sweep", "wait", "two", cwd=tmp_path)
    sweep = Sweep(tmp_path / "checkpoints" / "two")
    for number in range(2):
        assert sweep.run(number).config().initial_policy == f"hf://somebody/snake@{commit}"
        assert sweep.run(number).record().state == "finished"
    assert server.downloads == ["somebody/snake/policy.safetensors"]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("hf://somebody", "must be hf://user/name or hf://user/name@revision"),
        ("hf://somebody/..", "must be hf://user/name or hf://user/name@revision"),
        ("hf://somebody/nothing", "there is no such repository, or it is private"),
        ("hf://somebody/gated", "its owner grants access on its page"),
        ("hf://somebody/good@other", "has no revision other"),
        ("hf://somebody/words", "must have a policy.safetensors, but has no .safetensors file"),
        ("hf://somebody/many", "must have a policy.safetensors, but has a.safetensors, b.safetensors"),
        ("hf://somebody/large", "large.safetensors must have at most 268,435,456 bytes, got 1,000,000,000"),
    ],
)
def test_what_cannot_be_had_is_told_in_one_line(server: Hub, address: str, reason: str, tmp_path: Path) -> None:
    server.commit("somebody/gated", {"policy.safetensors": b""})
    server.visibility["somebody/gated"] = "gated"
    server.commit("somebody/good", {"policy.safetensors": shipped(SNAKE)})
    server.commit("somebody/words", {"README.md": b"words"})
    server.commit("somebody/many", {"a.safetensors": b"", "b.safetensors": b""})
    server.commit("somebody/large", {"large.safetensors": b""})
    server.sizes["large.safetensors"] = 10**9
    with pytest.raises(UserError) as told:
        pinned(address)
    assert reason in str(told.value) and "\n" not in str(told.value)
    assert reason in refusal("eval", address, cwd=tmp_path)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_policy_of_the_hub_is_checked_as_a_stranger_s(server: Hub, tmp_path: Path) -> None:
    server.commit("somebody/evil", {"policy.safetensors": b"\x80\x04."})
    assert "policy" in refusal("eval", "hf://somebody/evil", cwd=tmp_path)
    assert "--initial-policy" in refusal(
        "--game", "snake:12x12", "--initial-policy", "hf://somebody/evil", "--no-ui", cwd=tmp_path
    )


def test_a_hub_that_is_not_there_is_told_in_one_line(server: Hub, tmp_path: Path) -> None:
    server.shutdown()
    server.server_close()
    assert "hf://somebody/snake: the Hub can't be reached" in refusal("eval", "hf://somebody/snake", cwd=tmp_path)


def test_a_card_names_no_place_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.config.reading import make_config

    monkeypatch.chdir(tmp_path)
    first = policies.path_of(SNAKE)
    assert first is not None
    (mine := tmp_path / "secret.safetensors").write_bytes(first.read_bytes())
    run = create_run(make_config({
        "game": "snake", "board": "12x12", "run_dir": str(tmp_path / "private"), "n_step": 2,
        "initial_policy": str(mine),
    }))  # fmt: skip
    (run.path / "policy_best.safetensors").write_bytes(first.read_bytes())
    text = card(run.path / "policy_best.safetensors", Address.of("hf://somebody/snake"), "mit")
    assert "\nmario-tui --game snake --n-step 2\n" in text
    assert not any(secret in text for secret in (str(tmp_path), "private", "secret", run.name))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--to", "somebody/snake"), "--to must be hf://USER/NAME, got 'somebody/snake'"),
        (("--to", "hf://somebody/snake"), "--license must be an identifier of the Hub"),
        (("--to", "hf://somebody/snake@main", "--license", "mit"), "without a revision"),
        (("--to", "hf://somebody/snake", "--output", "x.csv"), "--output can't be combined with --to"),
        (("--to", "hf://somebody/snake", "--film", "missing.gif"), "--film must be a .gif or .mp4 file"),
        (("--public",), "--public needs --to hf://USER/NAME"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    assert reason in refusal("export", SNAKE, *arguments, cwd=tmp_path)
