"""The process behind `mario-tui play`: one game in real time, played by a policy or by a person.

`python -m engine.commands.play [POLICY] ...` writes a `Frame` for every second frame of the game, and an `Episode` for
each episode that ends, to its standard output. Its standard input carries the buttons that the person holds, one byte
per change; when it closes, the game ends.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.commands.evaluate import take_stdout
from engine.commands.recorder import PICTURES_PER_S, Video, open_video
from engine.config.joypad import action_buttons
from engine.config.run_config import make_config
from engine.envs.emulators.protocol import SCREEN_SHAPE
from engine.envs.episode import ended_episodes
from engine.envs.factory import describe_task, task_of_policy
from engine.envs.frame_stack import FrameStack
from engine.envs.mario import MarioLanes, MarioTask
from engine.envs.mario.rules import INFO_NAMES
from engine.evaluation.policy import load_policy
from engine.protocol.failures import describe
from engine.protocol.messages import EvaluationReport, Frame
from engine.runs import checkpoints
from engine.runtime.parent import continued_with_parent, end_with_stdin, killed_with_parent

_FRAMES_PER_S = 60.0988  # NTSC
_SHOW_EVERY = round(_FRAMES_PER_S / PICTURES_PER_S)

_FINISH_S = 30.0
"""Time to finish the video after standard input has closed."""

Act = Callable[[NDArray[np.uint8]], int]
"""Returns the joypad byte for an observation, uint8 [1, stack, height, width]."""


class _Person:
    """The buttons that the person holds: the last byte read from standard input."""

    def __init__(self) -> None:
        self.buttons = 0
        self.gone = False
        self._pressed = deque[int]()
        end_with_stdin(self._on_data, self._on_close, timeout_s=_FINISH_S)

    def _on_data(self, data: bytes) -> None:
        self.buttons = data[-1]
        self._pressed.extend(byte for byte in data if byte)

    def _on_close(self) -> None:
        self.gone = True

    def presses(self) -> list[int]:
        """The bytes other than 0 that were read since the last call."""
        return [self._pressed.popleft() for _ in range(len(self._pressed))]


def play(
    task: MarioTask,
    emulator: str,
    rom: Path | None,
    act: Act,
    person: _Person,
    send: Callable[[EvaluationReport], None],
    *,
    hold: int,
    epsilon: float,
    seed: int,
    episodes: int | None,
    video: Video | None,
) -> None:
    """Play until standard input closes or `episodes` episodes are over. `act` chooses the buttons for `hold` frames."""
    env = MarioLanes(task, 1, emulator=emulator, seed=seed, rom=rom)
    stack, buttons, finished = FrameStack(env.reset()), 0, 0
    height, width, _ = SCREEN_SHAPE
    started, frame = time.monotonic(), 0
    since_start = 0
    while not person.gone and finished != episodes:
        if since_start % hold == 0:
            buttons = act(stack.obs)
        step = env.step_buttons(np.array([buttons], np.uint8))
        frame += 1
        since_start += 1
        over = step.terminated | step.truncated
        if over[0] or since_start % hold == 0:
            stack.push(step.frames, over)
        if frame % _SHOW_EVERY == 0:
            screen = env.emulator.screen(0)
            info = dict(zip(INFO_NAMES, step.info[0].tolist(), strict=True))
            send(Frame(index=frame, height=height, width=width, rgb=screen.tobytes(), info=info))
            if video is not None:
                video.add(screen)
        if over[0]:
            finished, since_start = finished + 1, 0
            (episode,) = ended_episodes(step)
            # The environment is stepped frame by frame here, so its length is in frames.
            episode = dataclasses.replace(episode, length=-(-episode.length // hold))
            send(episode.message(env_steps=-(-frame // hold), episode=finished, epsilon=epsilon))
        time.sleep(max(0.0, started + frame / _FRAMES_PER_S - time.monotonic()))


def main() -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="engine.commands.play")
    parser.add_argument("policy", type=Path, nargs="?")
    parser.add_argument("--epsilon", type=float, default=0.0)
    parser.add_argument("--noop-max", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--game", default="mario")
    parser.add_argument("--board")
    parser.add_argument("--stage")
    parser.add_argument("--emulator")
    parser.add_argument("--rom", type=Path)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    send = take_stdout()
    video: Video | None = None
    if options.record is None:
        killed_with_parent()
    else:  # the video has to be finished
        continued_with_parent()
    person = _Person()
    try:
        video = None if options.record is None else open_video(options.record)
        metadata = {} if options.policy is None else checkpoints.policy_metadata(options.policy)
        game = metadata.get("game", options.game)
        if game == "mario":
            _play_mario(options, metadata, person, send, video)
        else:
            from engine.commands.play_board import play_board

            if options.policy is None:
                metadata = describe_task(
                    make_config({"game": game, **({"board": options.board} if options.board else {})})
                )
            play_board(
                metadata, options.policy, person, send,
                epsilon=options.epsilon, seed=options.seed, episodes=options.episodes, video=video,
            )  # fmt: skip
    except BrokenPipeError:
        pass  # the reader has gone
    except Exception as error:
        send(describe(error))
        return 1
    finally:
        if video is not None:
            video.close()
    os._exit(0)  # the thread that reads buttons is still waiting


def _play_mario(
    options: argparse.Namespace,
    metadata: Mapping[str, Any],
    person: _Person,
    send: Callable[[EvaluationReport], None],
    video: Video | None,
) -> None:
    if options.policy is None:
        # People can also play `random` and the whole game, and their episodes are never truncated.
        task = MarioTask(stage=options.stage or MarioTask.stage, frame_skip=1, noop_max=0, stall_steps=0)
        emulator, hold = options.emulator or "native", 1
        act: Act = lambda obs: person.buttons  # noqa: E731
    else:
        hold = metadata["frame_skip"]
        stage = options.stage or metadata["stage"]
        task = task_of_policy(metadata, stage=stage, noop_max=options.noop_max, frame_by_frame=True)
        emulator = options.emulator or metadata["emulator"]
        act = _policy_buttons(options.policy, metadata["actions"], options.epsilon, options.seed)
    play(
        task, emulator, options.rom, act, person, send,
        hold=hold, epsilon=options.epsilon, seed=options.seed, episodes=options.episodes, video=video,
    )  # fmt: skip


def _policy_buttons(path: Path, actions: list[str], epsilon: float, seed: int) -> Act:
    import torch

    network, random = load_policy(path), np.random.default_rng(seed)
    buttons = action_buttons(",".join(actions))

    @torch.no_grad()
    def act(obs: NDArray[np.uint8]) -> int:
        if random.random() < epsilon:
            return buttons[int(random.integers(len(buttons)))]
        return buttons[int(network(torch.from_numpy(obs)).argmax())]

    return act


if __name__ == "__main__":
    sys.exit(main())
