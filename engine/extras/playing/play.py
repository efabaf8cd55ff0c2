"""The process behind `mario-tui play`: one game, played by a policy or by a person, and filmed.

`python -m engine.extras.playing.play ORDER` writes messages (`PlayReport`) to its standard output: pictures of the
game, its state whenever that changes, an `Episode` for each one that ends, and at its own end what it has filmed. Its
standard input carries the person's commands (`PlayCommand`); when it closes, the game ends.

Time is the game's own, counted in ticks. The speed decides how fast they follow each other, so a video plays at normal
speed whatever the speed was, without the pauses. Pictures of a video go to a file beside the wanted one as they come,
so a long one needs no memory. The file gets its name once it is complete; until then an existing file stays as it is.
"""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.commands.answers import chosen_policy, order_of, send_warnings, take_stdout
from engine.config.capabilities import Playable
from engine.config.game import game_of
from engine.envs.played_game import PICTURES_PER_S, PlayedGame
from engine.errors import UserError
from engine.extras.playing.stepped_game import game_to_show
from engine.protocol.commands import Pause, Resume
from engine.protocol.framing import MAX_COMMAND_BYTES, decode_play_command, failure_of, read_message
from engine.protocol.messages import SCREEN_SHAPE, Frame, Log
from engine.protocol.results import Begin, Filmed, PlayCommand, Playing, PlayOrder, PlayReport, Press, Speed, Step
from engine.runtime.files import new_file, partial_file
from engine.runtime.processes import continued_with_parent, disregard, end_with_stdin, killed_with_parent, take_children
from engine.runtime.text import install_command
from engine.runtime.threads import CLOSE_S, call_within

_MAX_PENDING = 64
"""Presses and single steps that are kept until the game takes them; older ones are dropped."""
_MAX_DELAY_S = 0.1
"""A game that is later than this does not catch up: the machine is too slow for the speed."""


class Controls:
    """The commands that a thread reads from standard input.

    Args:
        speed: multiple of normal speed; infinity to never wait.
        finish_s: seconds that the process has to exit after standard input has closed.
    """

    def __init__(self, speed: float, finish_s: float) -> None:
        self.paused, self.speed = False, speed
        self.gone = False
        """Whether standard input has closed: there is no person any more."""
        self._held = 0
        self._step: Step | None = None
        self._presses = deque[int](maxlen=_MAX_PENDING)
        self._steps = deque[Step](maxlen=_MAX_PENDING)
        self._begin: Begin | None = None
        self._due = time.monotonic()
        self._changed = threading.Condition()
        end_with_stdin(self._read, self._close, timeout_s=finish_s)

    @property
    def buttons(self) -> int:
        """The buttons that the person holds."""
        return self._held if self._step is None else self._step.buttons

    def presses(self) -> list[int]:
        """Buttons pressed since the last call, in order."""
        return [self._presses.popleft() for _ in range(len(self._presses))]

    def take_begin(self) -> Begin | None:
        """The newest request for an episode since the last call."""
        with self._changed:
            begin, self._begin = self._begin, None
            return begin

    def wait_while_paused(self, before: Callable[[], None]) -> bool:
        """Wait until the game may go on. Returns whether for a single environment step only.

        It may also go on for `take_begin` and when the person has gone. `before` is called before each wait.
        """
        with self._changed:
            self._step = None
            while self.paused and not (self._steps or self._begin or self.gone):
                before()
                self._changed.wait()
                self._due = time.monotonic()
            if self.paused and self._steps:
                self._step = self._steps.popleft()
            return self._step is not None

    def pace(self, seconds: float) -> None:
        """Wait until `seconds` at normal speed have passed since the last call. A pause ends the wait."""
        with self._changed:
            now = time.monotonic()
            self._due = max(self._due + seconds / self.speed, now - _MAX_DELAY_S)
            self._changed.wait_for(lambda: self.paused or self.gone, max(0.0, self._due - now))

    def _read(self) -> None:
        # Apart from `sys.stdin`, whose lock a forked child of an environment would wait for.
        stream = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        try:
            while True:
                self._obey(read_message(stream, decode_play_command, MAX_COMMAND_BYTES))
        except EOFError:
            pass
        except ValueError as error:
            print(f"invalid command: {error}", file=sys.stderr)

    def _obey(self, command: PlayCommand) -> None:
        with self._changed:
            match command:
                case Pause():
                    self.paused = True
                case Resume():
                    self.paused = False
                    self._steps.clear()
                    self._presses.clear()  # during the pause, they were for single steps
                case Step():
                    self._steps.append(command)
                case Speed():
                    self.speed = command.times
                case Press():
                    self._held = command.buttons
                    if command.buttons:
                        self._presses.append(command.buttons)
                case Begin():
                    self._begin = command
            self._changed.notify()

    def _close(self) -> None:
        with self._changed:
            self.gone = True
            self._changed.notify()


class Video(Protocol):
    """A video that is being written. It plays `PICTURES_PER_S` pictures per second."""

    pictures: int
    """Number of pictures so far."""

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append a picture, RGB uint8 [height, width, 3]."""

    def close(self) -> None:
        """Finish the file."""


class Recording:
    """A video, and the files that it is written to.

    Raises `UserError` if the suffix is not .gif or .mp4, PyAV is needed and missing, or the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix not in (".gif", ".mp4"):
            raise UserError(f"--record must be a file that ends in .gif or .mp4, got {path}")
        if path.suffix == ".mp4" and importlib.util.find_spec("av") is None:
            raise UserError(f"--record: .mp4 needs PyAV; use .gif, or install it with: {install_command('video')}")
        if path.is_dir():
            raise UserError(f"--record must be a file, got the folder {path}")
        if path.exists() and not path.is_file():
            raise UserError(f"--record must be a file, got the pipe or device {path}")
        self._path, self._partial = path, partial_file(path)
        try:
            new_file(self._partial).close()  # before others write to it by its name, which may have been a link
            self.video: Video = (_Gif if path.suffix == ".gif" else _Mp4)(self._partial)
        except OSError as error:
            raise UserError(f"--record: {path}: can't be written ({error.strerror})") from None

    def finish(self) -> Filmed:
        """Finish the video and describe it. Without a picture, there is no file."""
        self.video.close()
        pictures, size = self.video.pictures, 0
        if pictures:
            size = self._partial.stat().st_size
            self._partial.replace(self._path)
        else:
            self._partial.unlink()
        return Filmed(path=str(self._path), pictures=pictures, seconds=pictures / PICTURES_PER_S, size_bytes=size)


class _Gif:
    """GIF with a palette of 64 colours per picture; NES pictures have so few colours that it is exact. Only the part
    that differs from the picture before is stored."""

    def __init__(self, path: Path) -> None:
        self.pictures = 0
        self._file = path.open("wb")
        self._shown: NDArray[np.uint8] | None = None
        self._image: Any = None  # not written yet, because its duration is unknown
        self._corner = (0, 0)
        self._since = 0  # number of the picture from which it is shown

    def add(self, picture: NDArray[np.uint8]) -> None:
        from PIL import Image

        if self._shown is None:
            height, width, _ = picture.shape
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0))
            self._file.write(b"!\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00")  # repeat for ever
            changed = np.ones((height, width), np.bool_)
        else:
            changed = (picture != self._shown).any(2)
        if changed.any():
            self._write_image()
            rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
            part = picture[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            self._image = Image.fromarray(part).quantize(64)
            self._corner, self._since = (int(columns[0]), int(rows[0])), self.pictures
            self._shown = picture.copy()
        self.pictures += 1

    def close(self) -> None:
        self._write_image()
        self._file.write(b";")
        self._file.close()

    def _write_image(self) -> None:
        """Write the newest image, which is shown until now."""
        from PIL.GifImagePlugin import getdata

        if self._image is None:
            return
        # GIF counts in hundredths of a second: a third of the pictures stay for four of them, the others for three.
        begin, end = (round(100 * picture / PICTURES_PER_S) for picture in (self._since, self.pictures))
        for block in getdata(self._image, self._corner, duration=10 * (end - begin), include_color_table=True):
            self._file.write(block)


class _Mp4:
    """H.264 in twice the native size, which video players blur less."""

    def __init__(self, path: Path) -> None:
        import av

        self.pictures = 0
        self._av = av
        self._container: Any = av.open(str(path), "w")
        self._stream: Any = self._container.add_stream("libx264", rate=PICTURES_PER_S)
        self._stream.width, self._stream.height, self._stream.pix_fmt = 512, 480, "yuv420p"

    def add(self, picture: NDArray[np.uint8]) -> None:
        doubled = np.ascontiguousarray(picture.repeat(2, axis=0).repeat(2, axis=1))
        self._container.mux(self._stream.encode(self._av.VideoFrame.from_ndarray(doubled, format="rgb24")))
        self.pictures += 1

    def close(self) -> None:
        self._container.mux(self._stream.encode())
        self._container.close()


_FINISH_S = 30.0
"""Time to finish the video after standard input has closed."""
_SHOW_EVERY_S = 0.9 / PICTURES_PER_S
_SEEDS = 2**32


class Session:
    """Plays a game under the person's controls, and shows and films it."""

    def __init__(
        self,
        game: PlayedGame,
        controls: Controls,
        send: Callable[[PlayReport], None],
        *,
        seed: int,
        epsilon: float,
        video: Video | None,
    ) -> None:
        self._game, self._controls, self._send = game, controls, send
        self._seed, self._epsilon, self._video = seed, epsilon, video
        self._episode, self._played, self._ticks = 0, 0, 0
        self._told: Playing | None = None
        self._shown, self._shown_at = -1, -math.inf

    def play(self, episodes: int | None) -> None:
        """Play until the person has gone or `episodes` episodes have ended."""
        game, controls = self._game, self._controls
        self._begin(Begin(episode=1))
        single, over, steps, ended = False, False, 0, 0
        while True:
            if over or (game.may_pause and not single):
                single, steps = controls.wait_while_paused(self._show), game.steps
                if controls.gone:
                    return
                begin = controls.take_begin() or (Begin(episode=self._episode + 1) if over else None)
                if begin is not None:
                    single, over = False, not self._begin(begin) and over
                    continue
            episode = game.tick()
            self._ticked()
            if episode is not None:
                ended, over = ended + 1, True
                self._played += episode.length
                self._send(
                    episode.message(game.outcome, env_steps=self._played, episode=self._episode, epsilon=self._epsilon)
                )
                if ended == episodes:
                    return
            single = single and not (game.idle or (game.may_pause and game.steps > steps))
            controls.pace(1 / game.ticks_per_s)

    def _begin(self, begin: Begin) -> bool:
        """Begin an episode. Returns whether that was possible; if not, the game goes on."""
        try:
            self._game.begin(begin.episode, (self._seed + begin.episode - 1) % _SEEDS, begin.stage)
        except UserError as error:
            if not self._episode:
                raise
            self._send(Log(at=time.time(), level="warning", text=str(error)))
            return False
        self._episode = begin.episode
        self._ticked()
        return True

    def _ticked(self) -> None:
        """Film and show the game, if it is time for a picture."""
        self._ticks += 1
        if self._video is not None and self._ticks % self._game.ticks_per_picture == 0:
            self._video.add(self._game.picture())
        # A pause begins, and a single step ends, before the game waits again: then it is shown.
        if not self._controls.paused and time.monotonic() >= self._shown_at + _SHOW_EVERY_S:
            self._show()

    def _show(self) -> None:
        """Send the game's state and picture, if they have changed."""
        game, controls = self._game, self._controls
        state = Playing(
            paused=controls.paused,
            speed=controls.speed,
            stage=game.stage,
            place=game.place,
            episode=self._episode,
            seed=(self._seed + self._episode - 1) % _SEEDS,
            steps=game.steps,
            filmed=None if self._video is None else self._video.pictures,
            outcome=game.outcome,
            actions=game.actions,
        )
        if state != self._told:
            self._told = state
            self._send(state)
        if self._ticks != self._shown:
            self._shown, self._shown_at = self._ticks, time.monotonic()
            height, width, _ = SCREEN_SHAPE
            rgb, facts, thought = game.picture().tobytes(), game.facts(), game.thought()
            self._send(Frame(index=self._ticks, height=height, width=width, rgb=rgb, facts=facts, thought=thought))


def main() -> int:
    """See the module's docstring. Returns the exit status."""
    options = order_of(PlayOrder)
    send = take_stdout()
    send_warnings(send)
    take_children(marked=True)
    torch.set_num_threads(1)  # more would wait for each other: there is one game
    disregard(signal.SIGINT)  # Ctrl-C is for the front end, which closes standard input
    if options.record is None:
        killed_with_parent()
    else:  # the video has to be finished
        continued_with_parent()
    controls = Controls(math.inf if options.unpaced else 1.0, _FINISH_S)
    recording: Recording | None = None
    try:
        try:
            recording = None if options.record is None else Recording(Path(options.record))
            game = _game(options, controls)
            session = Session(
                game,
                controls,
                send,
                seed=options.seed,
                epsilon=options.conditions.epsilon,
                video=None if recording is None else recording.video,
            )
            session.play(options.episodes)
            call_within(CLOSE_S, game.close)
        finally:
            if recording is not None:
                filmed = recording.finish()
        if recording is not None:
            send(filmed)
    except BrokenPipeError:
        pass  # the reader has gone
    except Exception as error:
        send(failure_of(error))
        return 1
    return 0


def _game(options: PlayOrder, controls: Controls) -> PlayedGame:
    if options.policy is None:
        game = game_of(options.game)
        if not isinstance(game, Playable):
            raise UserError(f"{game.name} can't be played by a person")
        return game.game_of_person(controls, **options.own)
    policy = Path(options.policy)
    metadata, _ = chosen_policy(policy, options.own)
    return game_to_show(options, policy, metadata)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the thread that reads commands is still waiting
