"""A crew of threads: all of them work, errors reach the caller, and they end with the crew."""

from __future__ import annotations

import gc
import threading

import pytest

from engine.runtime.threads import Crew


def test_every_thread_does_its_part_each_time() -> None:
    crew, found = Crew(3, "helpers"), list[tuple[int, str]]()
    for _ in range(50):
        found.clear()
        crew(lambda number: found.append((number, threading.current_thread().name)))
        names = [threading.current_thread().name, "helpers_1", "helpers_2", "helpers_3"]
        assert sorted(found) == list(enumerate(names))


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_is_raised_after_all_have_worked(failing: int) -> None:
    crew, done = Crew(2, "helpers"), set[int]()

    def work(number: int) -> None:
        done.add(number)
        if number == failing:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crew(work)
    assert done == {0, 1, 2}
    crew(done.discard)  # and they go on
    assert not done


def test_the_threads_end_with_the_crew_and_keep_nothing_alive() -> None:
    crew = Crew(2, "ending")
    crew(lambda number: None)
    helpers = [thread for thread in threading.enumerate() if thread.name.startswith("ending_")]
    assert len(helpers) == 2
    del crew
    gc.collect()
    for thread in helpers:
        thread.join(60)
        assert not thread.is_alive()
