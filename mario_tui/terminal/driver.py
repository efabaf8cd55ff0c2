"""The terminal that an application has: reads and writes it, gives it to the shell (Ctrl-Z) or another program and
takes it back, and notices its end.

All threads that do this begin and end here, so an application ends whatever becomes of its terminal: also if that
closes while another program has it, or if nobody reads it any more.

Terminals also send what nobody typed and nobody here has asked: replies to questions of programs that ran before, mouse
reports of another kind, bytes of another encoding. Only what is certainly input is passed on. A sequence may arrive in
parts, so its beginning is held. The grammar is that of ECMA-48, with the exceptions that terminals make.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import psutil
from textual.app import App
from textual.constants import ESCAPE_DELAY
from textual.events import Paste
from textual.message import Message

from engine.runtime.processes import Handler, handling
from mario_tui.terminal.internals import KeyParser, OwnDriver, is_key_sequence
from mario_tui.terminal.output import is_full

_REST_S = 3.0
"""Time after which the rest of a sequence is not awaited any more."""
_LONGEST = 32
"""Characters of the longest sequence that Textual looks at."""
_CSI = rb"(?:\x1b\[|\x9b)"
_STRING = (
    rb"(?:(?:\x1b\](?=[\dlL])|\x1bP(?=[\d;>!$+|=])|\x1b_(?=[A-Za-z]))[^\x00-\x1f\x7f]*"
    rb"|(?:\x9d(?=[\dlL])|\x90(?=[\d;>!$+|=])|\x9f(?=[A-Za-z]))[^\x00-\x1f\x7f\x9c]*)"
)
"""OSC, DCS and APC up to their end. The first character tells them from a key that is pressed together with Alt. In a
string that begins with one byte, 9C ends it; in others it may be part of a character."""
_CHARACTER = rb"(?:[\x00-\x1a\x1c-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
_CUT_CHARACTER = rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})"
_ITEM = re.compile(
    rb"(?P<text>%(character)s+)"
    rb"|(?P<mouse>%(csi)sM...)"  # an old report, which may hold any bytes
    rb"|(?P<sequence>\x1b\[\[[A-E]|\x1b\[\d+\$|\x1bO[A-Za-z]|%(csi)s[0-?]*[ -/]*[@-~])"  # first Linux, then rxvt
    rb"|(?P<string>%(string)s(?:\x07|\x1b\\|\x9c)?)"  # another control character cuts it off
    rb"|(?P<key>\x1b%(character)s?|.)" % {b"character": _CHARACTER, b"csi": _CSI, b"string": _STRING},
    re.DOTALL,
)
_BEGINNING = re.compile(
    rb"%(csi)s(?:M.{0,2}|(?!\d+\$)[0-?]*[ -/]*|\[)|%(string)s\x1b?"
    rb"|\x1b[]P_O]?|[\x9d\x90\x9f]|\x1b?%(cut)s" % {b"cut": _CUT_CHARACTER, b"csi": _CSI, b"string": _STRING},
    re.DOTALL,
)
_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_KITTY = re.compile(r"(\x1b\[\d*)(?:[:\d]*)(?:(;\d*)(?::(\d*))?(;[\d:]*)?)?([u~A-Z])")
"""Code (then those of other layouts), modifiers, kind of event, text, and final character."""
_REPORT = re.compile(r"\x1b\[(?:[IO]|<\d+;\d+;\d+[Mm]|\?2026;\d\$y)")
"""Focus, mouse, and the reply to the question that the driver asks."""
_POSITION = re.compile(r"\x1b\[\d+;\d+R")
"""Of the cursor. It is also F3 with a modifier key, which therefore does not work."""


class KeyInput:
    """What is typed, pasted and done with the mouse, as Textual's messages."""

    def __init__(self, on_reply: Callable[[str], object]) -> None:
        """`on_reply` is called with each sequence that is no input."""
        self._on_reply = on_reply
        self._parser = KeyParser()
        self._held = b""

    @property
    def wait_s(self) -> float | None:
        """Seconds after the last bytes at which `release` is to be called; None: not at all."""
        if not self._held or self._held.startswith(_PASTE):  # the rest of pasted text must never be taken for keys
            return None
        is_key = len(self._held) == 1 or self._held[0] >= 0xC2 or (self._held[0] == 0x1B and len(self._held) == 2)
        return ESCAPE_DELAY if is_key else _REST_S

    def messages(self, data: bytes) -> Iterator[Message]:
        """The messages of what has arrived."""
        data, position = self._held + data, 0
        self._held = b""
        while position < len(data):
            is_paste = data.startswith(_PASTE, position)
            end = data.find(_PASTE_END, position) if is_paste else -1
            if (is_paste and end < 0) or _BEGINNING.fullmatch(data, position):
                self._held = data[position:]
                return
            if is_paste:
                yield Paste(_text(data[position + len(_PASTE) : end]).replace("\0", ""))
                position = end + len(_PASTE_END)
            else:
                found = _ITEM.match(data, position)
                assert found is not None  # the last alternative takes any byte
                yield from self._of(found)
                position = found.end()

    def release(self) -> Iterator[Message]:
        """The messages of what was held, now that its rest has not come."""
        held, is_key = self._held, self.wait_s == ESCAPE_DELAY
        self._held = b""
        if is_key:
            yield from self._parser.messages(_text(held))

    def _of(self, found: re.Match[bytes]) -> Iterator[Message]:
        if found.lastgroup in ("text", "key"):
            yield from self._parser.messages(_text(found[0]))
            return
        sequence = _text(found[0].replace(b"\x9b", b"\x1b[", 1))
        if found.lastgroup == "sequence" and (known := _input_of(sequence)):
            yield from self._parser.messages(known)
        else:
            self._on_reply(sequence)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _input_of(sequence: str) -> str:
    """A sequence as Textual understands it; empty if it is no input."""
    if len(sequence) > _LONGEST or _POSITION.fullmatch(sequence):
        return ""
    if _REPORT.fullmatch(sequence):
        return sequence
    if found := _KITTY.fullmatch(sequence):  # Textual knows neither kinds of events nor other layouts
        code, modifiers, kind, text, final = found.groups(default="")
        sequence = "" if kind == "3" else code + modifiers + text + final
    return sequence if is_key_sequence(sequence) else ""


_POLL_S = 0.1
_LAST_OUTPUT_S = 2.0
"""Time that the terminal has to take the last output of a program that was told by a signal to end."""
_READ_BYTES = 4096


class TerminalLost(Message):
    """The terminal has closed. The signal for it reaches only the first process of the session, such as a `make` that
    waits for this one."""


class TerminalDriver(OwnDriver):
    """Textual's driver whose threads never outlive the terminal, and whose input is not trusted."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTSTP, signal.SIGCONT)}
        super().__init__(*arguments, **more)
        for number, handler in handlers.items():  # those of Textual write to the terminal, whatever is going on
            signal.signal(number, handler)
        self._ending_at: float | None = None

    @property
    def has_terminal(self) -> bool:
        """Return whether the application has the terminal, not another program or the shell."""
        return self.writer is not None

    def end_soon(self) -> None:
        """The application was told to end: it waits for nothing any more, and takes the terminal from nobody. Called by
        signal handlers."""
        self._ending_at = time.monotonic() + _LAST_OUTPUT_S
        if self.writer is not None:
            self.writer.give_up_at = self._ending_at
        # It may be in the background, where changing the terminal would stop it.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.signal(signal.SIGTTIN, signal.SIG_IGN)

    @property
    def is_read(self) -> bool:
        """Return whether what is printed after the application's end reaches somebody, or at least does not wait for
        ever."""
        return self._ending_at is None or not is_full(self.fileno)

    def start_application_mode(self) -> None:
        """Take the terminal; in the background that fails, until the shell resumes the process there."""
        if self._ending_at is None:
            super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        if self.has_terminal:
            super().stop_application_mode()

    def disable_input(self) -> None:
        if self.has_terminal:
            super().disable_input()

    def run_input_thread(self) -> None:
        """Called by Textual in a thread of its own, which ends with `exit_event` or with the terminal."""
        keys = KeyInput(self.on_reply)
        read_at = 0.0
        while not self.exit_event.is_set():
            wait_s = keys.wait_s
            left_s = _POLL_S if wait_s is None else read_at + wait_s - time.monotonic()
            if select.select([self.fileno], [], [], min(_POLL_S, max(0.0, left_s)))[0]:
                try:
                    data = os.read(self.fileno, _READ_BYTES)
                except OSError:
                    data = b""
                if not data:
                    self.send_message(TerminalLost())
                    return
                read_at = time.monotonic()
                found = keys.messages(data)
            elif wait_s is not None and left_s <= _POLL_S:
                found = keys.release()
            else:
                continue
            for message in found:
                self.process_message(message)

    def on_reply(self, sequence: str) -> None:
        """The terminal has sent something that is no input. Called in the input thread."""


def has_shell() -> bool:
    """Return whether a shell could resume this process: the group of this process has a parent in the same session.
    Otherwise it is orphaned, as in a terminal window that was opened for this program alone."""
    group, session = os.getpgrp(), os.getsid(0)
    process: psutil.Process | None = psutil.Process()
    try:
        while process is not None and os.getpgid(process.pid) == group:
            process = process.parent()
        return process is not None and os.getsid(process.pid) == session
    except (OSError, psutil.Error):
        return False


def suspend(app: App[Any]) -> None:
    """Stop the whole group in the foreground until the shell resumes it. Called in the main thread.

    Textual stops only its own process, so a `make` that waits for it would keep the terminal. And it restores the
    terminal in a signal handler, which may run after the shell has printed its prompt.
    """
    with handling({signal.SIGTSTP: signal.SIG_DFL}), app.suspend():
        os.killpg(os.getpgrp(), signal.SIGTSTP)  # returns when the shell has resumed the group


def run_in_front(app: App[Any], command: Sequence[str]) -> None:
    """Let another program have the terminal until it ends; if it fails, until Enter was pressed, so that its message
    can be read.

    Called in the main thread. SIGTERM and SIGHUP also reach this program, which handles them once the other has ended.
    Raises `SuspendNotSupported` if this program has no terminal, as in a browser.
    """
    received = list[int]()
    process: subprocess.Popen[bytes] | None = None
    own = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if process is not None:
            process.send_signal(number)
        if callable(handler := own[signal.Signals(number)]):
            handler(number, frame)

    # Ctrl-C is for the other program; what suspends it, suspends this one.
    others: dict[signal.Signals, Handler] = {signal.SIGINT: lambda *_: None, signal.SIGTSTP: signal.SIG_DFL}
    with handling({**dict.fromkeys(own, pass_on), **others}), app.suspend():
        process = subprocess.Popen(command)
        for number in received:
            process.send_signal(number)
        if process.wait() and not received:
            print("press Enter to go back", file=sys.stderr, flush=True)
            while not received and not select.select([sys.stdin], [], [], _POLL_S)[0]:
                pass
            if not received:
                sys.stdin.readline()
