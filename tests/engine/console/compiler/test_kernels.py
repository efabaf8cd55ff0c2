"""Compiled functions compute what they compute in Python, within what is documented in function_writer.py."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from engine.console.compiler.kernels import (
    Array2,
    bind_last,
    claim,
    helper,
    kernel,
    parse_types,
    prefetch,
    routine,
    routine_at,
)

ROOT = Path(__file__).resolve().parents[4]
NUMBERS = (-(2**62), -17, -8, -1, 0, 1, 3, 8, 255, 2**40 + 5)
TABLE = np.array([[3, 1, 4], [1, 5, 9]], np.int64)
LIMIT = 5


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARIO_TUI_CODE", str(tmp_path))
    return tmp_path


def arithmetic(a: int, b: int) -> int:
    total = a + b - a * 3 ^ (a & b) | ~a
    total += (a << 2) + (b >> 1)
    total *= -b
    return total


def quotient(a: int, b: int) -> int:
    return a // b


def rest(a: int, b: int) -> int:
    return a % b


def comparisons(a: int, b: int) -> int:
    found = (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)
    return found + 64 * (-8 <= a < b) + 128 * (a in (3, 8, b))


def values_of_and_and_or(a: int, b: int) -> int:
    return (a and b) + 3 * (a or b) + 5 * (not a) + (7 if (a and not b) or a == 8 else b)


def extremes(a: int, b: int) -> int:
    return min(a, b, 4) - max(a, b) + int(min(a, 2) == 2)


def branches(a: int, b: int) -> int:
    if a > b:
        b -= 1
    elif a == b or (a == 3 and not b):
        a = 2
    else:
        a += 10
    return a if b else -a


def loops(a: int, b: int) -> int:
    total = 0
    for i in range(min(a & 15, 9)):
        if i == b:
            continue
        for j in range(i, -1, -1):
            total += i * j
            if j == LIMIT:
                break
    for i in range(2, 20, 3):
        total ^= i
    while True:
        total -= 7
        if total < 0:
            break
    while total & 3 and total < 100:
        total += 1
    return total


def always_bound(a: int, b: int) -> int:
    """Names that have a value on every way that leads to their use, and a value returned on every one."""
    if a > b:
        found = a % 16
    elif a == 3:
        return b
    else:
        found = b % 8
    while True:
        tried = found + 7
        if tried > 20:
            break
        found = tried
    for i in range(2):
        tried += i
    if tried:
        return tried
    else:  # noqa: RET505
        while True:
            found += 1
            if found % 5 == 0:
                return found


@pytest.mark.parametrize(
    "function", [arithmetic, comparisons, values_of_and_and_or, extremes, branches, loops, quotient, rest, always_bound]
)
def test_integers(function: Callable[[int, int], int]) -> None:
    compiled = kernel("int64, int64")(function)
    for a, b in itertools.product(NUMBERS, NUMBERS):
        if b or function not in (quotient, rest):
            expected = (function(a, b) + 2**63) % 2**64 - 2**63  # int64 wraps around
            assert compiled(a, b) == expected, (a, b)


def test_bytes_are_numbers_when_read_and_keep_the_low_bits_when_written() -> None:
    @kernel("uint8[1], uint16[1], int32[1], bool[1]")
    def compiled(small, wide, signed, flags):  # type: ignore[no-untyped-def]
        small[1] = small[0] + 1
        wide[1] = small[0] + wide[0]
        signed[1] = signed[0] * 2
        small[2] -= 1
        return flags[0] + signed[0]

    small, wide, signed = np.array([255, 7, 0], np.uint8), np.array([300, 0], np.uint16), np.array([-5, 0], np.int32)
    assert compiled(small, wide, signed, np.array([True])) == -4
    assert small.tolist() == [255, 0, 255] and wide.tolist() == [300, 555] and signed.tolist() == [-5, -10]


def test_parts_of_arrays() -> None:
    def parts(matrix, out):  # type: ignore[no-untyped-def]
        row = matrix[1]
        tail, middle = row[2:], matrix[0, 1:3]
        out[0], out[1], out[2] = row.size, tail.size, middle.size
        out[3], out[4] = tail[0], middle[1]
        out[5], out[6], out[7] = matrix.shape[0], matrix.shape[1], matrix.size
        out[8] = matrix.reshape(-1)[5]
        matrix[1, 0] = TABLE[1, 2]
        for i in range(row.size):
            row[i] *= 10

    matrices = [np.arange(8, dtype=np.int64).reshape(2, 4) for _ in range(2)]
    outs = [np.zeros(9, np.int64) for _ in range(2)]
    parts(matrices[0], outs[0])
    kernel("int64[2], int64[1]")(parts)(matrices[1], outs[1])
    assert outs[0].tolist() == outs[1].tolist()
    assert matrices[0].tolist() == matrices[1].tolist()


def test_bytes_as_other_numbers_and_local_arrays() -> None:
    @kernel("uint16[1], int64")
    def compiled(pixels, count):  # type: ignore[no-untyped-def]
        words = pixels.view(np.int64)
        sums = np.zeros(count, np.int64)
        again = np.empty(3, np.uint8)
        again[0] = words.size
        for i in range(count):
            sums[i] += words[i]
        return sums[1] - sums[0] + again[0]

    assert compiled(np.array([1, 0, 0, 0, 7, 1, 0, 0], np.uint16), 2) == 7 + 65536 - 1 + 2


def test_floats() -> None:
    @kernel("int64, int64")
    def compiled(a, b):  # type: ignore[no-untyped-def]
        scale = 1.0 / b
        shifted = a // 2 + 0.5
        return int(shifted * scale * 1000 - a)

    assert compiled(11, 3) == int((5 + 0.5) / 3 * 1000 - 11)


@helper
def _mean_and_least(numbers):  # type: ignore[no-untyped-def]
    least, total = numbers[0], np.float32(0)
    for i in range(len(numbers)):
        least, total = min(least, numbers[i]), total + numbers[i]
    return total / np.float32(len(numbers)), least, -least if least < 0 else np.float32(abs(-7) * 0.5)


def _floats(narrow, wide, out, factor):  # type: ignore[no-untyped-def]
    mean, least, size = _mean_and_least(narrow)
    out[0], out[1], out[2] = mean, least, size
    out[3] = wide[0] * narrow[1]  # in float64, and kept in float32
    out[4] = narrow[0] * narrow[1] - factor
    out[5] = max(narrow[2], np.float32(0.1)) + 3
    wide[1] = -(narrow[0] + narrow[1])
    wide[2] = np.float64(7) / len(narrow)
    return 4 * (narrow[0] >= wide[0]) + 2 * (mean != least) + np.int64(wide[2])


def test_floats_are_computed_in_the_precision_of_numpys() -> None:
    narrow, wide, factor = np.array([0.1, 0.7, -3e-9], np.float32), np.array([0.1, 0, 0]), np.float64(1 / 3)
    copies, outs = (wide.copy(), wide.copy()), np.zeros((2, 6), np.float32)
    expected = _floats(narrow, copies[0], outs[0], factor)
    assert (
        kernel("float32[1], float64[1], float32[1], float64")(_floats)(narrow, copies[1], outs[1], factor) == expected
    )
    assert outs[0].tolist() == outs[1].tolist() and copies[0].tolist() == copies[1].tolist()


def test_a_float_is_no_integer() -> None:
    def stored(numbers, out):  # type: ignore[no-untyped-def]
        out[0] = numbers[0]

    with pytest.raises(TypeError, match="what is not an integer"):
        kernel("float32[1], int64[1]")(stored)(np.zeros(1, np.float32), np.zeros(1, np.int64))


class _Options(NamedTuple):
    table: Array2[np.int16]
    share: float
    strict: bool


@kernel("_Options, (int64, _Options)")
def _of_options(options: Any, more: Any) -> Any:
    return options.table[1, 0] * 100 + int(more[1].share * 10) + options.strict + more[1].table.shape[1] * 1000


def test_parts_of_named_tuples() -> None:
    options = _Options(np.array([[1], [-2]], np.int16), 0.5, True)
    assert _of_options(options, (1, _Options(np.zeros((1, 4), np.int16), 0.75, False))) == -200 + 7 + 1 + 4000


def test_records_as_rows_of_numbers_that_are_wanted_soon() -> None:
    @kernel("uint8[2]")
    def compiled(records):  # type: ignore[no-untyped-def]
        prefetch(records.reshape(-1), 16)
        whole, single = records.view(np.int64), records.view(np.float32)
        return whole[1, 0] + int(single[1, 3] * 2) + whole.shape[1]

    records = np.zeros((2, 16), np.uint8)
    records.view(np.int64)[1, 0], records.view(np.float32)[1, 3] = 40, 1.5
    assert compiled(records) == 40 + 3 + 2


@helper
def _add_up(pair, factor):  # type: ignore[no-untyped-def]
    numbers, more = pair
    numbers[0] += more * factor
    return numbers[0] * 2


@helper
def _clear(numbers):  # type: ignore[no-untyped-def]
    if numbers[0] == 0:
        return
    numbers[0] = 0


@kernel("(int64[1], int64), int64")
def _outer(pair, factor):  # type: ignore[no-untyped-def]
    found = _add_up(pair, factor) + _add_up((pair[0], 1), 1)
    _clear(pair[0][1:])
    return found


@kernel("int64[1]")
def _outermost(numbers):  # type: ignore[no-untyped-def]
    return _outer((numbers, np.int64(1)), 2)


def test_functions_call_each_other() -> None:
    numbers = np.array([10, 11], np.int64)
    assert _outer((numbers, 3), 4) == 2 * 22 + 2 * 23
    assert numbers.tolist() == [23, 0]
    assert _outermost(numbers) == 2 * 25 + 2 * 26


_STORE = "int64[1], int64"
_store_at = routine_at(_STORE)


@routine(_STORE)
def _store(numbers, value):  # type: ignore[no-untyped-def]
    numbers[0] = value


@kernel("int64, int64[2]")
def _store_rows(address, rows):  # type: ignore[no-untyped-def]
    store = _store_at(address)
    for i in range(rows.shape[0]):
        store(rows[i], i + 1)


def test_a_routine_is_called_by_its_address() -> None:
    rows = np.zeros((3, 2), np.int64)
    assert _store_rows(_store(), rows) == 0
    assert rows.tolist() == [[1, 0], [2, 0], [3, 0]]


@kernel("int64, (int64[1], int64), int64[2]")
def _digits(first: Any, numbers: Any, table: Any) -> Any:
    return 1000 * first + 100 * numbers[0][1] + 10 * numbers[1] + table[1, 2]


def test_last_arguments_can_be_fixed() -> None:
    numbers = np.array([0, 2])
    bound = bind_last(_digits, (numbers, 3), TABLE.copy())  # only the kernel still knows the copy
    assert (bound(1), bound(4)) == (1239, 4239)
    numbers[1] = 5  # an array is fixed, not its contents
    assert bound(1) == bind_last(_digits)(1, (numbers, 3), TABLE) == 1539
    with pytest.raises(TypeError, match="expected 1 arguments, got 0"):
        bound()
    with pytest.raises(TypeError, match="expected an array"):
        bind_last(_digits, numbers.astype(np.int32))
    other = copy.deepcopy(bound)
    numbers[1] = 0
    assert (bound(1), other(1)) == (1039, 1539)


@kernel("int64[1], uint8[1]")
def _take(taken: Any, found: Any) -> None:
    for _ in range(found.size + 1):
        number = claim(taken)
        if number >= found.size:
            break
        found[number] += 1


def test_threads_that_share_numbers_get_each_once() -> None:
    for _ in range(20):
        taken, found = np.zeros(1, np.int64), np.zeros(200_000, np.uint8)
        threads = [threading.Thread(target=_take, args=(taken, found)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found == 1).all() and taken[0] == found.size + len(threads)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, np.int32), np.zeros((2, 2), np.int64), np.zeros(8, np.int64)[::2], [1, 2],
        np.zeros(33, np.uint8)[1:].view(np.int64), np.zeros(4, np.dtype(np.int64).newbyteorder()),
    ],
)  # fmt: skip
def test_other_arrays_are_refused(array: Any) -> None:
    with pytest.raises(TypeError, match=r"expected (an array int64\[1\], got |a contiguous array)"):
        _outermost(array)


def test_other_arguments_are_refused() -> None:
    outermost: Any = _outermost
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        outermost(np.zeros(2, np.int64), 3)
    of_integers: Any = kernel("int64, int64")(arithmetic)
    with pytest.raises(TypeError):
        of_integers(1.5, 2)
    with pytest.raises(ValueError, match="unknown type complex64"):
        parse_types("int64, complex64[1]")


def _with_a_list(a, b):  # type: ignore[no-untyped-def]
    return [a, b]


def _with_not_in(a, b):  # type: ignore[no-untyped-def]
    return a not in (b, 1)


def _with_a_keyword(a, b):  # type: ignore[no-untyped-def]
    return min(a, b, key=abs)


def _with_an_unknown_loop(a, b):  # type: ignore[no-untyped-def]
    for _ in (a, b):
        a += 1


def _with_two_kinds(a, b):  # type: ignore[no-untyped-def]
    a = 0.5
    return a + b


def _with_nothing(a, b):  # type: ignore[no-untyped-def]
    return a + _with_a_default(b)


@helper
def _with_a_default(b):  # type: ignore[no-untyped-def]
    if b == 0:
        return


def _with_a_name_of_one_branch(a, b):  # type: ignore[no-untyped-def]
    if a:
        found = b
    return found


def _with_a_name_of_a_loop(a, b):  # type: ignore[no-untyped-def]
    while a < b:
        a = last = a + 1
    return last


def _with_the_counter_of_an_empty_loop(a, b):  # type: ignore[no-untyped-def]
    for i in range(a):
        b += i
    return i


def _with_a_name_of_one_break(a, b):  # type: ignore[no-untyped-def]
    while True:
        a += 1
        if a > b:
            break
        found = a
        if a > 8:
            break
    return found


def _with_an_unknown_name(a, b):  # type: ignore[no-untyped-def]
    return a + nowhere + b  # type: ignore[name-defined]  # noqa: F821


def _with_a_missing_return(a, b):  # type: ignore[no-untyped-def]  # noqa: RET503
    if a > b:
        return a


def _with_an_empty_return(a, b):  # type: ignore[no-untyped-def]
    if a > b:
        return  # noqa: RET502
    return a


def _with_a_keyword_only_parameter(a, *, b):  # type: ignore[no-untyped-def]
    return a + b


def _with_positional_only_parameters(a, b, /):  # type: ignore[no-untyped-def]
    return a + b


def _with_more_parameters(a, b, *more):  # type: ignore[no-untyped-def]
    return a + b


def _with_a_call_of_itself(a, b):  # type: ignore[no-untyped-def]
    return _with_a_call_of_itself(a, b)


def _with_an_outer_name() -> Callable[..., Any]:
    NUMBERS = 3

    def inner(a, b):  # type: ignore[no-untyped-def]
        return a + b + NUMBERS

    return inner


def _with_an_unmarked_function(a, b):  # type: ignore[no-untyped-def]
    return unmarked(a) + b


def unmarked(a):  # type: ignore[no-untyped-def]
    return a


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_with_a_name_of_one_branch, "a name that may have no value here: found"),
        (_with_a_name_of_a_loop, "a name that may have no value here: last"),
        (_with_the_counter_of_an_empty_loop, "a name that may have no value here: i"),
        (_with_a_name_of_one_break, "a name that may have no value here: found"),
        (_with_an_unknown_name, "an unknown name: nowhere"),
        (_with_a_missing_return, "a value that is returned only on some ways through: def _with_a_missing_return"),
        (_with_an_empty_return, "a value that is returned only on some ways through: def _with_an_empty_return"),
        (_with_a_keyword_only_parameter, "other parameters than plain ones: a, *, b"),
        (_with_positional_only_parameters, "other parameters than plain ones: a, b, /"),
        (_with_more_parameters, "other parameters than plain ones: a, b, *more"),
        (_with_an_outer_name(), "the name NUMBERS of an outer function, in: def inner(a, b):"),
        (_with_an_unmarked_function, "a call of what is not marked as a helper: unmarked(a)"),
        (_with_a_list, "this expression: [a, b]"),
        (_with_a_keyword, "arguments with names: min(a, b, key=abs)"),
        (_with_not_in, "this comparison: a not in (b, 1)"),
        (_with_an_unknown_loop, "this statement: for _ in (a, b)"),
        (_with_two_kinds, "values of two kinds with the name a: a"),
        (_with_nothing, "what is not a number: a + _with_a_default(b)"),
    ],
)
def test_an_error_names_the_line(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(TypeError) as raised:
        kernel("int64, int64")(function)(1, 2)
    assert __file__ in str(raised.value) and reason in str(raised.value)
    line = int(str(raised.value).split(":")[1])
    lines, first = inspect.getsourcelines(function)
    assert first <= line < first + len(lines)


def test_a_function_that_calls_itself_is_refused() -> None:
    compiled = kernel("int64, int64")(_with_a_call_of_itself)
    with pytest.raises(TypeError, match="_with_a_call_of_itself"):
        compiled(1, 2)


def test_threads_compile_it_once(cache: Path) -> None:
    compiled = kernel("int64, int64")(arithmetic)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(compiled(3, 4))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [arithmetic(3, 4)] * 4
    assert len(list(cache.iterdir())) == 1


def test_a_new_process_loads_it_from_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel("int64, int64")(arithmetic)(3, 4)
    monkeypatch.setattr("engine.console.compiler.kernels.Module", None)  # nothing is written again
    assert kernel("int64, int64")(arithmetic)(3, 4) == arithmetic(3, 4)
    with pytest.raises(TypeError):
        kernel("int64, int64")(comparisons)(3, 4)


HELPERS = """
from engine.console.compiler.kernels import helper
@helper
def minus_one(x):
    return x - STEP
@helper
def plus_one(x):
    return x + STEP
STEP = 1
"""
KERNELS = """
from engine.console.compiler.kernels import kernel
import helpers
@kernel("int64")
def increased(x):
    return helpers.plus_one(x)
"""
SHOW = "import kernels; print(kernels.increased.__wrapped__(41), kernels.increased(41))"


def both_results(folder: Path, code: str = SHOW) -> list[str]:
    """What Python and the compiled kernel compute in a new process."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.process
def test_an_edit_after_the_import_changes_neither_this_process_nor_later_ones(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "kernels.py").write_text(KERNELS)
    insert = "import kernels; from pathlib import Path; path = Path(kernels.helpers.__file__); "
    insert += r"path.write_text('\n# a comment' * 3 + path.read_text()); "
    assert both_results(tmp_path, insert + SHOW) == ["42", "42"]
    (tmp_path / "helpers.py").write_text(HELPERS)
    assert both_results(tmp_path) == ["42", "42"]


@pytest.mark.process
def test_a_changed_function_or_constant_of_another_file_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    for helpers, expected in (
        (HELPERS, "42"),
        (HELPERS.replace("STEP = 1", "STEP = 5"), "46"),
        (HELPERS.replace("x + STEP", "x + 2 * STEP"), "43"),
        (HELPERS.replace("STEP = 1", "from steps import STEP"), "48"),
    ):
        (tmp_path / "steps.py").write_text("STEP = 7\n")
        (tmp_path / "helpers.py").write_text(helpers)
        assert both_results(tmp_path) == [expected, expected]
    (tmp_path / "steps.py").write_text("STEP = 9\n")
    assert both_results(tmp_path) == ["50", "50"]


@pytest.mark.process
def test_an_edit_during_the_import_is_noticed(tmp_path: Path) -> None:
    edits = "\nfrom pathlib import Path\npath = Path(__file__)\npath.write_text('\\n' + path.read_text())\n"
    (tmp_path / "helpers.py").write_text(edits + HELPERS)
    (tmp_path / "kernels.py").write_text(KERNELS)
    with pytest.raises(subprocess.CalledProcessError) as raised:
        both_results(tmp_path)
    assert "plus_one was edited while it was imported" in raised.value.stderr
