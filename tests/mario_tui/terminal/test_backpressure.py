"""How a slow terminal is told from a busy machine."""

from __future__ import annotations

import os
import pty
import tty

import pytest

from mario_tui.terminal.output import is_full

pytestmark = pytest.mark.process


def test_only_a_terminal_that_nobody_reads_takes_no_more() -> None:
    reader, terminal = pty.openpty()
    try:
        tty.setraw(terminal)
        os.set_blocking(terminal, False)
        assert not is_full(terminal)
        written = 0
        while not is_full(terminal):
            written += os.write(terminal, bytes(1024))
        read = 0
        while read < written:
            read += len(os.read(reader, written))
        assert not is_full(terminal)
    finally:
        os.close(reader)
        os.close(terminal)
    assert not is_full(terminal)
