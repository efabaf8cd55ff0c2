"""The process of `mario-tui play`: what each command does is seen in the pictures and states that follow."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.config.capabilities import LEFT, RIGHT, START, UP
from engine.envs.factory import lanes_of_policy
from engine.errors import UserError
from engine.evaluation.policy import greedy_act, load_policy, play_episodes
from engine.extras.playing.mario import MarioGame, MarioPerson, MarioPolicy, MarioRelay
from engine.extras.playing.mario import of_policy as mario_of_policy
from engine.extras.playing.stepped_game import game_of_policy
from engine.games.mario.actions import STAGES
from engine.games.mario.factory import task_of_policy
from engine.games.mario.lanes import MarioLanes
from engine.games.mario.rules import LIVES
from engine.games.mario.task import MarioTask
from engine.protocol.commands import Pause, Resume
from engine.protocol.framing import decode_answer, pack, read_message
from engine.protocol.messages import Episode, Frame
from engine.protocol.outcome import Conditions
from engine.protocol.results import Begin, Filmed, PlayCommand, Playing, PlayOrder, PlayReport, Press, Speed, Step
from engine.runs.checkpoints import policy_metadata
from engine.runs.policies import by_task
from tests.support.policy_files import altered, shipped
from tests.support.program import PATIENCE_S, wait_until

AT_ONCE = Conditions(noop_max=0)
MARIO = str(shipped("mario-1-1"))
SNAKE = str(shipped("snake-12x12"))
TETRIS = str(shipped("tetris-7x14"))


class Player:
    """The game's process, with the newest picture and state that it has sent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.state: Playing | None = None
        self.frame: Frame | None = None
        self.others: list[PlayReport] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(EOFError):
            while True:
                report = read_message(self.process.stdout, decode_answer)
                match report:
                    case Playing():
                        self.state = report
                    case Frame():
                        self.frame = report
                    case _:
                        self.others.append(report)

    def send(self, *commands: PlayCommand) -> None:
        self.write(b"".join(pack(command) for command in commands))

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def wait(self, **wanted: Any) -> tuple[Playing, Frame]:
        """The state with these values, and its picture: the state comes first."""

        def reached() -> bool:
            state = self.state
            return state is not None and all(getattr(state, name) == value for name, value in wanted.items())

        wait_until(reached, f"{wanted}, got {self.state}", by=self.reader)
        assert self.state is not None
        return self.state, wait_until(lambda: self.frame, "a picture", by=self.reader)

    def pause(self) -> tuple[Playing, Frame]:
        self.send(Pause())
        self.wait(paused=True)
        return self.settle()

    def settle(self) -> tuple[Playing, Frame]:
        """While paused: wait until the picture has arrived as well. The game answers another speed after that."""
        assert self.state is not None
        speed = 2.0 if self.state.speed != 2.0 else 4.0
        self.send(Speed(times=speed))
        return self.wait(speed=speed)

    def step(self, buttons: int = 0) -> tuple[Playing, Frame]:
        """Play a single step while paused."""
        assert self.frame is not None
        before = self.frame.index
        self.send(Step(buttons=buttons))
        wait_until(lambda: self.frame is not None and self.frame.index > before, "a step", by=self.reader)
        return self.settle()

    def begin(self, episode: int, stage: str | None = None) -> tuple[Playing, Frame]:
        """Begin an episode while paused, after at least one step."""
        self.send(Begin(episode=episode, stage=stage))
        self.wait(steps=0)
        return self.settle()

    def finish(self) -> int:
        """Close its standard input and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.reader.join()
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def playing(order: PlayOrder, cwd: Path) -> Iterator[Player]:
    command = [sys.executable, "-m", "engine.extras.playing.play", order.argument()]
    process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    player = Player(process)
    try:
        yield player
    finally:
        process.kill()
        player.finish()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def stage_of(frame: Frame) -> str:
    return str(frame.facts["world"])


@pytest.mark.process
def test_a_policys_game_obeys_every_command(tmp_path: Path) -> None:
    with playing(PlayOrder(policy=MARIO, conditions=Conditions(noop_max=30)), tmp_path) as game:
        wait_until(lambda: game.frame is not None and game.frame.index > 20, "a game that goes on", by=game.reader)
        paused, still = game.pause()
        for count in (1, 2, 3):
            state, frame = game.step()
            assert state.steps == paused.steps + count
            assert frame.index == still.index + 4 * count  # as many frames as the policy holds its buttons

        state, first = game.begin(1)
        assert (state.episode, state.seed) == (1, 0)
        _, after = game.step()
        _, again = game.begin(1)
        assert again.index == after.index + 1 and again.rgb == first.rgb  # the same number of no-ops
        assert game.step()[1].rgb == after.rgb

        state, fifth = game.begin(5)
        assert state.seed == 4
        with_that_seed = mario_of_policy(Path(MARIO), policy_metadata(Path(MARIO)), Conditions())
        with_that_seed.begin(5, 4, None)
        assert fifth.rgb == with_that_seed.picture().tobytes() != first.rgb

        game.step()
        state, frame = game.begin(2, "4-2")
        assert (state.stage, stage_of(frame)) == ("4-2", "4-2")
        assert stage_of(game.step()[1]) == "4-2"

        game.begin(2, "1-1")
        game.send(Speed(times=8), Resume())
        wait_until(lambda: game.others, "the end of an episode", by=game.reader)
        state, _ = game.wait(episode=3, stage="1-1", speed=8, paused=False)
        assert state.seed == 2
        assert game.finish() == 0
        (episode,) = game.others
        assert isinstance(episode, Episode)
        assert (episode.episode, episode.task, episode.success) == (2, "1-1", True)


@pytest.mark.long
@pytest.mark.parametrize("swim_strokes", [True, False])
def test_frame_by_frame_a_policy_swims_as_in_an_evaluation(swim_strokes: bool, tmp_path: Path) -> None:
    policy = altered("mario-1-1", tmp_path, stage="2-2", swim_strokes=swim_strokes)
    metadata = policy_metadata(policy)
    (evaluated,) = play_episodes(lanes_of_policy(metadata, 1, threads=1, seed=0), greedy_act(load_policy(policy)), 1)
    game = mario_of_policy(policy, metadata, Conditions(noop_max=0))
    game.begin(1, 0, None)
    while (played := game.tick()) is None:
        pass
    assert (tuple(played.results), played.length) == (evaluated.results, evaluated.length)
    assert played.results[0] > 100


def test_in_a_relay_a_policy_plays_its_stage_as_it_does_alone() -> None:
    """In its own colours and strokes, which are not those of the policy for the other stages."""
    water, others = shipped("mario-2-2"), shipped("mario-nineteen-stages")
    alone = mario_of_policy(water, policy_metadata(water), AT_ONCE)
    relay = mario_of_policy(others, policy_metadata(others), AT_ONCE, stage="2-2", others=[shipped("mario-1-1"), water])
    for game in (alone, relay):
        game.begin(1, 3, None)
    for _ in range(400):
        assert alone.tick() is relay.tick() is None
        assert np.array_equal(alone.picture(), relay.picture())


class Watched(MarioRelay):
    """Keeps what each policy saw first."""

    def __init__(self, policies: Sequence[MarioPolicy], noop_min: int = 0, noop_max: int = 0) -> None:
        super().__init__(policies, Conditions(noop_min=noop_min, noop_max=noop_max))
        self.first: list[tuple[str, Any]] = []
        self.order: list[int] = []

    def enter(self, stage: str) -> None:
        self._stage = stage
        super().enter(stage)

    def choose(self, obs: Any) -> None:
        super().choose(obs)
        if self._stage and self._acts:
            self.first.append((self._stage, obs.copy()))
            self.order.append(self._policies.index(self._now))
            self._stage = ""


@pytest.mark.parametrize("noops", [0, 20])
def test_in_a_relay_every_attempt_at_a_stage_begins_with_a_full_stack_of_its_frames(noops: int) -> None:
    files = [shipped(name) for name in ("mario-1-1", "mario-nineteen-stages")]
    task = task_of_policy(policy_metadata(files[0]), stage="game", conditions=AT_ONCE, frame_by_frame=True)
    watched = Watched([MarioPolicy(path, policy_metadata(path), 0.0, 0.0) for path in files], noops, noops)
    game = MarioGame(lambda stage: MarioLanes(task, 1, restart=False), "game", watched)
    game.begin(1, 0, None)
    while not (watched.first and watched.first[-1][0] == "1-2"):
        assert game.tick() is None
    assert [stage for stage, _ in watched.first] == ["1-1", "1-2"]
    for _, obs in watched.first:
        assert obs.any() and (obs == obs[:, :1]).all()
    assert not np.array_equal(watched.first[0][1], watched.first[1][1])
    game.close()


def test_a_policy_for_several_stages_begins_halfway_where_a_stage_has_a_middle() -> None:
    several = shipped("mario-six-stages")
    game = mario_of_policy(several, policy_metadata(several), Conditions(noop_max=0, halfway_starts=1.0))
    begun = []
    for episode in (1, 2, 3):
        game.begin(episode, 0, None)
        begun.append((game.place, int(game.facts()["x"]) > 1000))
    assert begun == [("1-1", True), ("1-2", True), ("1-4", False)]
    game.close()
    for stage in ("1-4", "game"):
        with pytest.raises(UserError, match=r"^--halfway-starts must be 0 with --stage game and .*, got 1$"):
            mario_of_policy(several, policy_metadata(several), Conditions(halfway_starts=1.0), stage=stage)


def test_in_a_relay_the_first_policy_that_knows_a_stage_plays_each_life_of_it() -> None:
    files = [shipped(name) for name in ("mario-1-2", "mario-1-1", "mario-1-1-noise", "mario-nineteen-stages")]
    task = task_of_policy(policy_metadata(files[0]), stage="game", conditions=AT_ONCE, frame_by_frame=True)
    at_random = Watched([MarioPolicy(path, policy_metadata(path), 1.0, 0.0) for path in files])
    game = MarioGame(lambda stage: MarioLanes(task, 1, restart=False), "game", at_random)
    for attempts in (2, 3):  # a game has another life, and there is another game
        game.begin(1, 0, None)
        game._lanes.emulator.ram[0, LIVES] += 1  # one that is won does not begin the stage again
        for _ in range(20):
            assert game.tick() is None
        assert len(at_random.first) == len(at_random.order) == (1 if attempts == 2 else 3)
        while len(at_random.first) < attempts:
            assert game.tick() is None
    assert [stage for stage, _ in at_random.first] == ["1-1"] * 3
    assert at_random.order == [1, 1, 1]
    game.close()


def test_in_a_relay_each_attempt_begins_after_whole_steps_without_buttons() -> None:
    """Also where the last one ended within a step: its rest would move Mario by less than any step of training."""
    files = [shipped(name) for name in ("mario-1-1", "mario-nineteen-stages")]
    task = task_of_policy(policy_metadata(files[0]), stage="game", conditions=AT_ONCE, frame_by_frame=True)
    relay = Watched([MarioPolicy(path, policy_metadata(path), 0.0, 0.0) for path in files], 5, 30)
    game = MarioGame(lambda stage: MarioLanes(task, 1, restart=False), "game", relay)

    def first_press() -> int:
        """The tick in which a button is pressed first."""
        while relay.buttons() == 0:
            assert game.tick() is None
        return game._ticks - 1

    presses = []
    for seed in range(25):
        game.begin(1, seed, None)
        game.tick()
        presses.append(first_press())
    assert set(presses) == {4, 8, 12, 16, 20, 24, 28}
    while game._ticks % relay.hold != 2:
        game.tick()
    game._lanes.emulator.ram[0, LIVES] -= 1
    game.tick()
    assert relay.buttons() == 0 and first_press() % relay.hold == 0
    game.close()


@pytest.mark.long
def test_the_policies_of_the_package_play_the_whole_game_stage_by_stage() -> None:
    *others, rest = (shipped(name) for name in by_task("mario"))
    game = mario_of_policy(rest, policy_metadata(rest), Conditions(), stage="game", others=others)
    game.begin(1, 0, None)
    while (played := game.tick()) is None:
        pass
    cleared = played.cleared_tasks(game.outcome)
    assert cleared == list(STAGES[: played.task]) and len(cleared) >= 4


def test_sticky_actions_hold_the_previous_buttons_and_are_the_same_for_a_seed() -> None:
    obs, metadata = np.zeros((1, 4, 50, 60), np.uint8), policy_metadata(Path(MARIO))

    def played(sticky: float, seed: int) -> list[int]:
        player = MarioPolicy(Path(MARIO), metadata, epsilon=1.0, sticky=sticky)
        player.begin(seed)
        found = []
        for _ in range(400):
            player.choose(obs)
            found.append(player.buttons())
        return found

    assert played(0.5, 3) == played(0.5, 3) != played(0.5, 4)
    chosen = len(metadata["actions"])
    for sticky in (0.0, 0.5):
        repeats = np.mean([one == other for one, other in itertools.pairwise(played(sticky, 3))])
        expected = sticky + (1 - sticky) / chosen
        assert abs(repeats - expected) < 5 * (expected * (1 - expected) / 400) ** 0.5


@pytest.mark.long
@pytest.mark.process
def test_a_video_has_the_games_time_whatever_the_speed_was(tmp_path: Path) -> None:
    film = tmp_path / "film.gif"
    with playing(PlayOrder(game="mario", record=str(film)), tmp_path) as game:
        wait_until(lambda: game.frame, "a picture", by=game.reader)
        game.send(Speed(times=8))
        wait_until(lambda: game.frame is not None and game.frame.index > 200, "a while at high speed", by=game.reader)
        game.pause()
        for _ in range(5):
            state, frame = game.step()
        assert state.filmed == frame.index // 2  # pictures per frame of the game
        assert game.finish() == 0
        (filmed,) = game.others
        assert filmed == Filmed(
            path=str(film), pictures=state.filmed, seconds=state.filmed / 30, size_bytes=film.stat().st_size
        )
    played_ms = 0
    with Image.open(film) as pictures:
        for index in range(pictures.n_frames):  # type: ignore[attr-defined]
            pictures.seek(index)
            played_ms += pictures.info["duration"]
    assert played_ms / 1000 == pytest.approx(filmed.seconds, abs=0.01)


@pytest.mark.process
def test_without_a_picture_there_is_no_video(tmp_path: Path) -> None:
    with playing(PlayOrder(game="mario", record="film.gif", own={"rom": "none.nes"}), tmp_path) as game:
        assert game.process.wait(PATIENCE_S) == 1
    assert not (tmp_path / "film.gif").exists()


@pytest.mark.long
@pytest.mark.process
def test_a_person_steps_frame_by_frame_with_the_buttons_of_each_step(tmp_path: Path) -> None:
    with playing(PlayOrder(game="mario", own={"stage": "1-2"}), tmp_path) as game:
        wait_until(lambda: game.frame, "a picture", by=game.reader)
        _, frame = game.pause()
        game.send(Press(buttons=LEFT))  # held, but not in the steps
        for _ in range(20):
            before, (_, frame) = frame, game.step(RIGHT)
            assert frame.index == before.index + 1
        assert stage_of(frame) == "1-2" and int(frame.facts["x"]) > 42


@pytest.mark.parametrize("policy", [SNAKE, pytest.param(TETRIS, marks=pytest.mark.long)])
@pytest.mark.process
def test_boards_pause_step_and_restart(policy: str, tmp_path: Path) -> None:
    with playing(PlayOrder(policy=policy), tmp_path) as game:
        wait_until(lambda: game.state is not None and game.state.steps > 0, "a step", by=game.reader)
        paused, _ = game.pause()
        for count in (1, 2):
            assert game.step()[0].steps == paused.steps + count
        _, first = game.begin(1)
        game.step()
        assert game.begin(1)[1].rgb == first.rgb


@pytest.mark.long
@pytest.mark.process
def test_a_step_of_a_snake_that_waits_for_its_first_key_changes_nothing(tmp_path: Path) -> None:
    with playing(PlayOrder(game="snake"), tmp_path) as game:
        wait_until(lambda: game.frame, "a picture", by=game.reader)
        game.pause()
        assert game.step()[0].steps == 0
        game.send(Press(buttons=UP))
        assert game.step()[0].steps == 1


@pytest.mark.process
def test_buttons_of_a_pause_are_for_single_steps_only(tmp_path: Path) -> None:
    with playing(PlayOrder(game="tetris"), tmp_path) as game:
        wait_until(lambda: game.frame, "a picture", by=game.reader)
        _, frame = game.pause()
        game.send(Press(buttons=START), Resume())
        wait_until(
            lambda: game.frame is not None and game.frame.index > frame.index + 2,
            "a game that goes on",
            by=game.reader,
        )
        assert game.pause()[0].steps == 0  # the piece was not dropped
        game.send(Press(buttons=START))
        assert game.step()[0].steps == 1


@pytest.mark.process
def test_an_invalid_command_ends_the_game_and_is_named(tmp_path: Path) -> None:
    with playing(PlayOrder(game="snake"), tmp_path) as game:
        wait_until(lambda: game.frame, "a picture", by=game.reader)
        game.write((2**32 - 1).to_bytes(4, "big"))
        wait_until(lambda: game.process.poll() is not None, "its end")
        assert game.process.stderr is not None
        assert b"invalid command: message must be at most 65536 bytes, got 4294967295" in game.process.stderr.read()


def test_stages_and_boards_follow_one_another(tmp_path: Path) -> None:
    def lanes(stage: str) -> MarioLanes:
        return MarioLanes(MarioTask(stage=stage, frame_skip=1, noop_max=0, stall_steps=0), 1, restart=False)

    game = MarioGame(lanes, "1-1, 1-2,4-1", MarioPerson(lambda: RIGHT))
    for episode, stage in ((1, "1-1"), (2, "1-2"), (2, "1-2"), (3, "4-1"), (4, "1-1")):
        game.begin(episode, 0, None)
        assert game.stage == game.place == game.facts()["world"] == stage
    for episode in (5, 6):
        game.begin(episode, 0, "4-1" if episode == 5 else None)  # the chosen stage stays
        assert game.stage == "4-1"

    several = altered("snake-12x12", tmp_path, board="5x4,12x12")
    boards = game_of_policy(several, policy_metadata(several), epsilon=0)
    pictures: list[Any] = []
    for episode in (1, 2, 3):
        boards.begin(episode, 0, None)
        while boards.tick() is None and boards.steps < 3:
            pass
        pictures.append((boards.picture() > 0).any(2))
    heights, widths = ([int(picture.any(axis).sum()) for picture in pictures] for axis in (1, 0))
    assert heights[1] == widths[1] and heights[0] / widths[0] == pytest.approx(4 / 5, abs=0.01)
    assert (heights[2], widths[2]) == (heights[0], widths[0])


@pytest.mark.long
def test_a_game_goes_on_if_another_stage_cannot_be_played() -> None:
    def lanes(stage: str) -> MarioLanes:
        if stage != "1-1":
            raise UserError("not on this cartridge")
        return MarioLanes(MarioTask(stage=stage, frame_skip=1, noop_max=0, stall_steps=0), 1, restart=False)

    game = MarioGame(lanes, "1-1", MarioPerson(lambda: RIGHT))
    game.begin(1, 0, None)
    for _ in range(30):
        game.tick()
    with pytest.raises(UserError):
        game.begin(1, 0, "8-4")
    before = int(game.facts()["x"])
    game.tick()
    assert game.stage == "1-1" and int(game.facts()["x"]) > before
