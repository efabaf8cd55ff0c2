"""Random numbers of the modules `random` and `numpy.random`."""

# ruff: noqa: NPY002

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from engine.runtime.stored_arrays import (
    global_random_state,
    load_global_random_state,
    seed_global_random,
    seeded_global_random,
)

Drawn = tuple[float, ...]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Other tests go on as if these had drawn nothing."""
    with seeded_global_random(0):
        yield


def draws() -> Drawn:
    return (random.random(), random.gauss(), np.random.random(), float(np.random.standard_normal()))


@pytest.mark.parametrize("before", [0, 1, 2])
def test_random_numbers_go_on_from_a_state(before: int) -> None:
    for _ in range(before):  # normal numbers come in pairs
        draws()
    state = global_random_state()
    expected = [draws() for _ in range(3)]
    seed_global_random(1)
    load_global_random_state(state)
    assert [draws() for _ in range(3)] == expected


def test_a_block_with_a_seed_of_its_own_changes_nothing_after_it() -> None:
    state, found = global_random_state(), list[Drawn]()
    for _ in range(2):
        with seeded_global_random(7):
            found.append(draws())
    after = draws()
    load_global_random_state(state)
    assert found[0] == found[1] != after == draws()


def test_checkpoints_of_earlier_versions_have_no_state() -> None:
    before = global_random_state()
    load_global_random_state({})
    assert all(np.array_equal(array, before[name]) for name, array in global_random_state().items())


@pytest.mark.parametrize("name", ["globals.random", "globals.numpy"])
def test_what_can_not_be_a_state_is_refused(name: str) -> None:
    state = global_random_state()
    beyond = state[name].copy()
    beyond[-1] = 625
    for wrong in (beyond, state[name][:-1], state[name].astype(np.int64)):
        with pytest.raises(ValueError, match=name):
            load_global_random_state({**state, name: wrong})
