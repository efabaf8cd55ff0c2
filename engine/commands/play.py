"""The process behind `mario-tui play`: one game, played by a policy or by a person.

`python -m engine.commands.play [POLICY] ...` writes messages (`PlayReport`) to its standard output: pictures of the
game, its state whenever that changes, an `Episode` for each one that ends, and at its own end what it has filmed. Its
standard input carries the person's commands (`PlayCommand`); when it closes, the game ends.

Time is the game's own, counted in ticks. The speed decides how fast they follow each other, so a video plays at normal
speed whatever the speed was, without the pauses.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from engine.commands.controls import Controls
from engine.commands.evaluate import take_stdout
from engine.commands.play_mario import mario_of_person, mario_of_policy
from engine.commands.recorder import PICTURES_PER_S, Recording, Video
from engine.config.conditions import Conditions
from engine.config.reading import make_config
from engine.emulators.protocol import SCREEN_SHAPE
from engine.envs.episode import EpisodeRecord
from engine.envs.factory import describe_task
from engine.errors import UserError
from engine.protocol.failures import describe
from engine.protocol.messages import Frame, Log, Thought
from engine.protocol.outcome import Outcome
from engine.protocol.play import Begin, Playing, PlayReport
from engine.runs import checkpoints
from engine.runtime.parent import continued_with_parent, killed_with_parent

_FINISH_S = 30.0
"""Time to finish the video after standard input has closed."""
_SHOW_EVERY_S = 0.9 / PICTURES_PER_S
_SEEDS = 2**32


class Game(Protocol):
    """A game that is played tick by tick, with an episode that has begun."""

    ticks_per_s: float
    ticks_per_picture: int
    """Ticks between two pictures of a video."""
    stage: str
    """Mario's stage option; empty in other games."""
    outcome: Outcome
    """Of its episodes."""
    actions: list[str]
    """Names of the actions in `thought`."""

    @property
    def steps(self) -> int:
        """Environment steps of the episode, including one under way."""

    @property
    def may_pause(self) -> bool:
        """Whether no environment step is under way."""

    @property
    def idle(self) -> bool:
        """Whether the next environment step waits for the person."""

    def begin(self, episode: int, seed: int, stage: str | None) -> None:
        """Begin an episode, in another stage if one is given. Raises `UserError`, and goes on, if it can't be played.

        Several stages or boards follow one another: the number of the episode, from 1, decides. The same number and
        seed give the same episode, if the same actions are taken.
        """

    def tick(self) -> EpisodeRecord | None:
        """Play on by one tick. Returns the episode if it ended; then `begin` follows."""

    def picture(self) -> NDArray[np.uint8]:
        """The screen, RGB uint8 [240, 256, 3]."""

    def info(self) -> dict[str, int]:
        """Values to show beside the picture."""

    def thought(self) -> Thought | None:
        """What a policy is about to do, if that is shown."""


class Session:
    """Plays a game under the person's controls, and shows and films it."""

    def __init__(
        self,
        game: Game,
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
            rgb, info, thought = game.picture().tobytes(), game.info(), game.thought()
            self._send(Frame(index=self._ticks, height=height, width=width, rgb=rgb, info=info, thought=thought))


def main() -> int:
    """See the module's docstring. Returns the exit status."""
    options = _options()
    send = take_stdout()
    torch.set_num_threads(1)  # more would wait for each other: there is one game
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the front end, which closes standard input
    if options.record is None:
        killed_with_parent()
    else:  # the video has to be finished
        continued_with_parent()
    controls = Controls(math.inf if options.unpaced else 1.0, _FINISH_S)
    recording: Recording | None = None
    try:
        try:
            recording = None if options.record is None else Recording(options.record)
            session = Session(
                _game(options, controls),
                controls,
                send,
                seed=options.seed,
                epsilon=options.epsilon,
                video=None if recording is None else recording.video,
            )
            session.play(options.episodes)
        finally:
            if recording is not None:
                filmed = recording.finish()
        if recording is not None:
            send(filmed)
    except BrokenPipeError:
        pass  # the reader has gone
    except Exception as error:
        send(describe(error))
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engine.commands.play")
    parser.add_argument("policy", type=Path, nargs="?")
    parser.add_argument("--epsilon", type=float, default=0.0)
    parser.add_argument("--noop-min", type=int, default=0)
    parser.add_argument("--noop-max", type=int, default=0)
    parser.add_argument("--sticky-actions", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--game", default="mario")
    parser.add_argument("--board")
    parser.add_argument("--stage")
    parser.add_argument("--emulator")
    parser.add_argument("--rom", type=Path)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--unpaced", action="store_true")
    return parser.parse_args()


def _game(options: argparse.Namespace, controls: Controls) -> Game:
    metadata = {} if options.policy is None else checkpoints.policy_metadata(options.policy)
    game = metadata.get("game", options.game)
    mario = {"stage": options.stage, "emulator": options.emulator, "rom": options.rom}
    if game != "mario":
        from engine.commands.play_board import BoardGame

        if options.policy is None:
            metadata = describe_task(make_config({"game": game, **({"board": options.board} if options.board else {})}))
        return BoardGame(metadata, options.policy, controls.presses, epsilon=options.epsilon)
    if options.policy is None:
        return mario_of_person(lambda: controls.buttons, **mario)
    conditions = Conditions(
        noop_min=options.noop_min,
        noop_max=options.noop_max,
        epsilon=options.epsilon,
        sticky_actions=options.sticky_actions,
    )
    return mario_of_policy(options.policy, metadata, conditions, **mario)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the thread that reads commands is still waiting
