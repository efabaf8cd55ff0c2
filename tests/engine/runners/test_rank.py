"""The device of each rank."""

from __future__ import annotations

import pytest
import torch

from engine.errors import UserError
from engine.runners.start import device_of_rank


@pytest.mark.parametrize(
    ("asked", "resolved", "expected"),
    [
        ("auto", "cpu", ["auto", "auto"]),
        ("auto", "mps", ["cpu", "cpu"]),  # gloo has no MPS
        ("auto", "cuda", ["cuda:0", "cuda:1"]),
        ("cuda", "cuda", ["cuda:0", "cuda:1"]),
        ("cuda:2", "cuda:2", ["cuda:2", "cuda:3"]),
    ],
)
def test_every_rank_has_a_device_of_its_own(
    asked: str, resolved: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert [device_of_rank(asked, torch.device(resolved), index, 2) for index in range(2)] == expected


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("mps", "--device: mps: PyTorch can't average gradients there; --runner ddp accepts: auto, cpu, cuda"),
        ("cuda:3", "--num-processes: 2 ranks need a GPU each, and this machine has 1 from cuda:3 on; accepted: 1 to 1"),
    ],
)
def test_ranks_without_a_device_are_refused(asked: str, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    with pytest.raises(UserError) as refused:
        device_of_rank(asked, torch.device(asked), 0, 2)
    assert str(refused.value).startswith(complaint)
