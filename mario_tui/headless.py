"""A run without the dashboard: a client of its host with a progress bar, plain lines or JSON lines.

Output goes to stdout, errors go to stderr. Ctrl-C or SIGTERM writes a checkpoint and a summary and exits with 0; a
second Ctrl-C ends the run at once, even if the host does not respond. SIGHUP is ignored.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from engine.config.torchrun import torchrun_rank
from engine.errors import UserError
from engine.host.client import HostClient, HostGone, HostProcess, InvalidMessage
from engine.protocol.commands import Stop
from engine.protocol.json_lines import Gap
from engine.protocol.messages import Event, Failed, Finished, Hello, Log
from engine.runs.recording import read_recording
from engine.runtime.text import printable
from mario_tui.data.exit_status import exit_status
from mario_tui.data.missed import Received
from mario_tui.headless_output import KINDS, Display, JSONLines, PlainLines, ProgressBar, say
from mario_tui.launch import Plan, busy_warning
from mario_tui.terminal.output import NO_SPACE, discard_output, discard_unwritable

_RECONNECT_EVERY_S = 0.1
_WATCH_EVERY_S = 0.5
_KILL_AFTER_S = 10.0
"""A host that was told to end at once, or that never answered, is killed after this time."""


def train_headless(plan: Plan, log_format: str) -> int:
    """Start the run and follow it to its end in format "rich", "plain" or "json". Returns the exit status."""
    stopper = _Stopper()
    host = plan.start(foreground=True)
    stopper.set_host(host)
    if warning := busy_warning(host.run):
        print(printable(f"mario-tui: warning: {warning}"), file=sys.stderr)
    displays: dict[str, Callable[[], Display]] = {"rich": ProgressBar, "plain": PlainLines, "json": JSONLines}
    display = displays[log_format]()
    end: Finished | Failed | None = None
    lost = False
    told = ""
    """What the host has sent that is no message."""

    shows = threading.Lock()

    def show(event: Event | Gap) -> None:
        nonlocal lost
        try:
            with shows:
                display.show(event)
        except BrokenPipeError:  # the reader closed the pipe: `| head`, or `| tee` on Ctrl-C
            discard_output(sys.stdout)
            stopper.stop("its output pipe was closed")
        except OSError as error:  # the run continues
            if error.errno not in NO_SPACE:  # the terminal was closed
                discard_output(sys.stdout, sys.stderr)
            elif not lost:
                lost = True
                say(f"mario-tui: warning: output is lost: {error.strerror}")

    received: Received | None = None

    def take(event: Event) -> None:
        nonlocal end, received
        news: Sequence[Event | Gap] = (event,)
        if not isinstance(event, Hello):
            assert received is not None
            received.add(event)
        elif received is None:
            received = Received(event)
            news = event, *(past for past in event.events if isinstance(past, Finished | Failed))
        else:
            missing, known = received.catch_up(event)
            gap = Gap({KINDS.get(kind, kind.lower()): count for kind, count in missing.items()})
            news = [gap, *known] if missing else known
        for each in news:
            show(each)
            end = each if isinstance(each, Finished | Failed) else end

    try:
        for client in _connections(host):
            try:
                with client:
                    stopper.set_client(client)
                    threading.Thread(target=_watch, args=(client, show), daemon=True, name="silence").start()
                    for event in client.events():
                        take(event)
                        if end is not None:
                            break
            except InvalidMessage as error:
                if str(error) != told:
                    told = str(error)
                    say(f"mario-tui: warning: {told}")
            if end is not None:
                break
        if end is None and _has_told_its_end(host):  # this client was too slow to receive it
            with contextlib.suppress(UserError):
                take(read_recording(host.run.history_path)[0])
    except UserError as error:  # the host did not start
        print(f"mario-tui: {error}", file=sys.stderr)
        stopper.kill_host_later()
        return 1
    finally:
        with contextlib.suppress(OSError):
            display.close()
        discard_unwritable(sys.stdout)
        host.process.stdin and host.process.stdin.close()
        host.process.wait()
    return exit_status(host.run, end)


def _connections(host: HostProcess) -> Iterator[HostClient]:
    """Connections to the host: another one whenever one has ended and the host lives on."""
    yield host.connect()
    while not host.ended:
        with contextlib.suppress(UserError):
            yield HostClient(host.run)
        time.sleep(_RECONNECT_EVERY_S)


def _watch(client: HostClient, show: Callable[[Event], None]) -> None:
    """In a thread: tell when the host does not respond, and when it does again."""
    since = 0.0
    while not client.closed:
        silent_s = client.silent_s
        if silent_s and not since:
            since = time.monotonic() - silent_s
            show(Log(at=time.time(), level="warning", text=f"the host is not responding for {silent_s} s"))
        elif not silent_s and since:
            text = f"the host responds again, after {time.monotonic() - since:.0f} s"
            since = 0.0
            show(Log(at=time.time(), level="warning", text=text))
        time.sleep(_WATCH_EVERY_S)


def _has_told_its_end(host: HostProcess) -> bool:
    """Whether the host that has exited wrote into the run's record and recording how the run ended."""
    record = host.run.record()
    return record.pid == host.process.pid and record.state in ("finished", "failed")


class _Stopper:
    """Turns signals into Stop commands, and keeps those that arrive before there is a connection.

    After the second Ctrl-C the host is killed unless it ends in time, even if it is suspended. The third kills it at
    once. SIGTERM is never more than a request to stop in order: a service manager sends it to every process of a run.
    """

    def __init__(self) -> None:
        self._host: HostProcess | None = None
        self._client: HostClient | None = None
        self._pending: list[Stop] = []
        self._requested = False
        self._interrupts = 0
        for wanted in (signal.SIGINT, signal.SIGTERM):
            signal.signal(wanted, self._received)
        # torchrun passes on that its terminal was closed, and then ends.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if torchrun_rank() is None else self._received)

    def set_host(self, host: HostProcess) -> None:
        self._host = host
        if self._interrupts > 1:
            self.kill_host_later()

    def kill_host_later(self) -> None:
        """Kill the host, and with it every process it has started, if it is still alive in a few seconds."""
        if self._host is not None:
            timer = threading.Timer(_KILL_AFTER_S, self._host.process.kill)
            timer.daemon = True
            timer.start()

    def set_client(self, client: HostClient) -> None:
        self._client = client
        self._send()

    def stop(self, reason: str) -> None:
        """Stop the run, unless a stop was already requested."""
        if not self._requested:
            self._request(reason)

    def _received(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += signum == signal.SIGINT
        at_once = signum == signal.SIGINT and self._interrupts > 1
        self._request(f"received {signal.Signals(signum).name}", at_once)
        if at_once and self._interrupts == 2:
            self.kill_host_later()
        elif at_once and self._host is not None:
            self._host.process.kill()

    def _request(self, reason: str, at_once: bool = False) -> None:
        self._requested = True
        self._pending.append(Stop(reason=reason, at_once=at_once))
        self._send()

    def _send(self) -> None:
        while self._client is not None:
            try:
                stop = self._pending.pop(0)
                self._client.send(stop)
            except IndexError:  # none is left: another signal may come at any time, and send them
                return
            except HostGone:
                self._pending.insert(0, stop)  # for the next connection, if there is one
                return
