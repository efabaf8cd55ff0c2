"""What the screen of `mario-tui play` and the game that the engine plays for it tell each other."""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine.protocol.commands import Pause, Resume
from engine.protocol.message import Message
from engine.protocol.messages import Episode, Failed, Frame, Log
from engine.protocol.outcome import Outcome

Buttons = Annotated[int, msgspec.Meta(ge=0, lt=2**24)]
"""Bits of `engine.config.game.PersonKeys`."""


class Press(Message, frozen=True):
    """The buttons that the person holds from now on."""

    buttons: Buttons


class Speed(Message, frozen=True):
    """Play at a multiple of normal speed."""

    times: Annotated[float, msgspec.Meta(ge=1 / 8, le=8)]


class Step(Message, frozen=True):
    """While paused: play one environment step, in which a person holds these buttons."""

    buttons: Buttons = 0


class Begin(Message, frozen=True):
    """Begin an episode, in another of the game's stages if one is given."""

    episode: Annotated[int, msgspec.Meta(ge=1, le=2**32)]
    stage: Annotated[str, msgspec.Meta(max_length=40)] | None = None


PlayCommand = Pause | Resume | Step | Speed | Press | Begin


class Playing(Message, frozen=True):
    """State of the game of `mario-tui play`."""

    paused: bool
    speed: float  # 1 is normal
    stage: str  # the option's value, such as 1-2 or random; empty in games without stages
    episode: int  # number of the current one, from 1
    seed: int  # of that episode: `--seed` plays it again
    steps: int  # environment steps of that episode
    filmed: int | None  # pictures in the video so far; None without a video
    outcome: Outcome = Outcome()  # of the game's episodes
    place: str = ""  # the stage on the screen: one of the game's, also where `stage` names several
    actions: list[str] = []  # names of the actions in the frames' thoughts


class Filmed(Message, frozen=True):
    """The video is complete."""

    path: str
    pictures: int
    seconds: float  # that it plays
    size_bytes: int


PlayReport = Frame | Playing | Episode | Log | Filmed | Failed
