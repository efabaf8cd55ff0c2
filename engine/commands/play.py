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

import torch

from engine.commands.answers import chosen_policy, take_stdout
from engine.commands.controls import Controls
from engine.commands.recorder import Recording, Video
from engine.config.command_line import own_values
from engine.config.conditions import Conditions
from engine.config.games import game_of, import_plugins
from engine.config.run_config import RunConfig
from engine.emulators.protocol import SCREEN_SHAPE
from engine.envs.played_game import PICTURES_PER_S, PlayedGame
from engine.errors import UserError
from engine.evaluation.stepped_game import game_of_policy
from engine.protocol.failures import describe
from engine.protocol.messages import Frame, Log
from engine.protocol.play import Begin, Playing, PlayReport
from engine.runtime.parent import continued_with_parent, killed_with_parent

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
    options, others = _options()
    send = take_stdout()
    import_plugins()
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
                _game(options, others, controls),
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


def _options() -> tuple[argparse.Namespace, list[str]]:
    """The options of all games, and the other arguments: a game's own, as `--name=value`. The policy comes first."""
    first = sys.argv[1:2]
    policy = ["--policy", *first] if first and not first[0].startswith("--") else first
    parser = argparse.ArgumentParser(prog="engine.commands.play", allow_abbrev=False)
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--epsilon", type=float, default=0.0)
    parser.add_argument("--noop-min", type=int, default=0)
    parser.add_argument("--noop-max", type=int, default=0)
    parser.add_argument("--sticky-actions", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--game", default=RunConfig.game)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--unpaced", action="store_true")
    return parser.parse_known_args([*policy, *sys.argv[2:]])


def _game(options: argparse.Namespace, others: list[str], controls: Controls) -> PlayedGame:
    if options.policy is None:
        game = game_of(options.game)
        return game.game_of_person(controls, **own_values(others, game.name, game.person_options))
    metadata, game, own = chosen_policy(options.policy, others)
    conditions = Conditions(
        noop_min=options.noop_min,
        noop_max=options.noop_max,
        epsilon=options.epsilon,
        sticky_actions=options.sticky_actions,
    )
    played = game.game_of_policy(options.policy, metadata, conditions, **own)
    return game_of_policy(options.policy, metadata, conditions.epsilon) if played is None else played


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the thread that reads commands is still waiting
