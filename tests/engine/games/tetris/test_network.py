"""The values of placements are those of the boards that stepping leads to."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.agents.values import values_of_actions
from engine.errors import UserError
from engine.games.tetris.network import AfterstateQNetwork, first_equal
from engine.games.tetris.rules import MIRRORED, TetrisLanes, gains

GAMMA = 0.5


class Checksum(nn.Module):
    """A value that differs between boards: a sum of random weights of the cells of both planes."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.last = nn.Linear(1, 1)
        self.weights = torch.rand(2, height, width, generator=torch.Generator().manual_seed(0))

    def forward(self, planes: Tensor, piece: Tensor | None) -> Tensor:
        value = (planes * self.weights).flatten(1).sum(1)
        return value if piece is None else value + 3 * piece


def network_for(height: int, width: int, reward: str = "lines", next_piece: bool = False) -> AfterstateQNetwork:
    network = AfterstateQNetwork((4 + next_piece, height, width))
    network.set_rewards(list(gains(reward, width)), GAMMA)
    network.value = Checksum(height, width)  # type: ignore[assignment]
    return network


@pytest.mark.parametrize(
    ("height", "width", "reward", "next_piece"),
    [
        pytest.param(20, 10, "cells", False, marks=pytest.mark.long),
        pytest.param(20, 10, "cells", True, marks=pytest.mark.long),
        (10, 5, "lines", True),
        (6, 4, "jumanji", False),
    ],
)
def test_every_placement_has_its_reward_and_the_value_of_the_board_it_leaves(
    height: int, width: int, reward: str, next_piece: bool
) -> None:
    env = TetrisLanes(256, height=height, width=width, reward=reward, next_piece=next_piece, seed=3)
    network, chooser = network_for(height, width, reward, next_piece), torch.Generator().manual_seed(1)
    frames = env.reset()
    compared = torch.zeros(7, 4 * width)
    for _ in range(60):
        q = network(frames[:, None])
        actions = torch.multinomial(env.masks.float(), 1, generator=chooser)
        (_, mirrored), _ = values_of_actions(network, frames[:, None], actions[:, 0])
        pieces = env._piece[:, 0].clone()
        following = torch.tensor([env.next_piece(lane) for lane in range(256)]) if next_piece else None
        step = env.step(actions[:, 0])
        expected = step.rewards + GAMMA * network.value(step.final_frames[:, :2] / 255, following)
        # The observation after a lost game is that of the same board; only an illegal placement would be another one
        assert torch.allclose(q.gather(1, actions)[:, 0], expected, atol=1e-3)
        following = None if following is None else torch.tensor(MIRRORED)[following]
        expected = step.rewards + GAMMA * network.value(step.final_frames[:, :2].flip(-1) / 255, following)
        assert torch.allclose(mirrored[:, 0], expected, atol=1e-3)
        compared[pieces, actions[:, 0]] += 1
        frames = step.frames
    legal = sum(network_legal(height, width))
    assert (compared > 0).sum() == legal


def network_legal(height: int, width: int) -> list[int]:
    """How many placements of each piece an empty board allows."""
    env = TetrisLanes(256, height=height, width=width, seed=0)
    env.reset()
    found = {int(piece): int(mask.sum()) for piece, mask in zip(env._piece[:, 0], env.masks, strict=True)}
    assert len(found) == 7
    return list(found.values())


def test_values_of_one_action_each_equal_those_of_all() -> None:
    env = TetrisLanes(64, height=12, width=6, seed=5)
    frames, network = env.reset(), network_for(12, 6)
    for _ in range(20):
        actions = torch.multinomial(env.masks.float(), 1)
        (one, _), _ = values_of_actions(network, frames[:, None], actions[:, 0])
        assert torch.allclose(one[:, 0], network(frames[:, None]).gather(1, actions)[:, 0])
        frames = env.step(actions[:, 0]).frames


def test_illegal_placements_are_worth_nothing() -> None:
    env = TetrisLanes(64, height=8, width=5, seed=5)
    frames, network = env.reset(), network_for(8, 5)
    for _ in range(10):
        assert (network(frames[:, None])[~env.masks] == 0).all()
        frames = env.step(env.masks.float().argmax(1)).frames


def test_turns_of_a_square_are_computed_once() -> None:
    first = first_equal(10)
    assert [len(set(first[piece].tolist())) for piece in range(7)] == [20, 20, 20, 10, 40, 40, 40]


def test_rewards_are_saved_with_the_weights() -> None:
    network = AfterstateQNetwork((4, 14, 7))
    network.set_rewards([0.1, 0.8, 2.9, 6.4, 11.3], 0.9)
    again = AfterstateQNetwork((4, 14, 7))
    again.load_state_dict(network.state_dict())
    frames = TetrisLanes(8, seed=0).reset()[:, None]
    assert torch.equal(again(frames), network(frames)) and again.gamma.item() == pytest.approx(0.9)


def test_boards_begin_with_what_they_cost() -> None:
    """Before anything is learned, a placement is worth its reward less the costs of the board that it leaves."""
    costs = [0.5, 0.25, 0.125]
    network, plain = network_for(10, 5), network_for(10, 5)
    network.set_rewards(list(gains("lines", 5)), GAMMA, costs)
    plain_env, shaped_env = (TetrisLanes(64, height=10, width=5, seed=3) for _ in range(2))
    shaped_env.set_shaping(costs, gamma=0.0)  # the reward loses all costs at each step
    frames, chooser = plain_env.reset(), torch.Generator().manual_seed(1)
    shaped_env.reset()
    for _ in range(40):
        actions = torch.multinomial(plain_env.masks.float(), 1, generator=chooser)
        difference = (network(frames[:, None]) - plain(frames[:, None])).gather(1, actions)[:, 0]
        mirrored = network.of_actions(frames[:, None], actions[:, 0]) - plain.of_actions(frames[:, None], actions[:, 0])
        step, shaped = plain_env.step(actions[:, 0]), shaped_env.step(actions[:, 0])
        expected = shaped.rewards - step.rewards
        assert torch.allclose(difference, expected, atol=1e-4) and (expected < -1).any()
        assert torch.allclose(mirrored, expected.expand(2, -1), atol=1e-4)
        frames = step.frames
    played, trained = AfterstateQNetwork((4, 10, 5)), AfterstateQNetwork((4, 10, 5))
    trained.set_rewards(list(gains("lines", 5)), GAMMA, costs)
    played.load_state_dict(trained.state_dict())
    assert torch.equal(played(frames[:, None]), trained(frames[:, None]))


def test_values_that_count_on_costs_are_not_used_without_them() -> None:
    costs, rewards = [0.5, 0.25, 0.125], list(gains("lines", 5))
    theirs, same, without = (AfterstateQNetwork((4, 10, 5)) for _ in range(3))
    theirs.set_rewards(rewards, 0.9, costs)
    same.set_rewards(rewards, 0.5, costs)
    without.set_rewards(rewards, 0.9)
    same.load_state_dict(theirs.state_dict())
    with pytest.raises(UserError, match="--curriculum"):
        without.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(without.state_dict())  # a curriculum may begin with what was learned without one


def test_weights_do_not_bring_the_rewards_of_their_run() -> None:
    """Q-values of the same boards, from weights that were learned with other rewards."""
    theirs, ours = AfterstateQNetwork((4, 14, 7)), AfterstateQNetwork((4, 14, 7))
    theirs.set_rewards([0.1, 0.8, 2.9, 6.4, 11.3], 0.9)
    ours.set_rewards([0.2, 1.6, 5.8, 12.8, 22.6], 0.5)
    ours.load_state_dict(theirs.state_dict())
    frames = TetrisLanes(8, seed=0).reset()[:, None]
    expected = copy.deepcopy(theirs)
    expected.set_rewards([0.2, 1.6, 5.8, 12.8, 22.6], 0.5)
    assert torch.equal(ours(frames), expected(frames)) and not torch.equal(ours(frames), theirs(frames))
    weights = {name: tensor for name, tensor in theirs.state_dict().items() if name not in ("gains", "gamma")}
    ours.load_state_dict(weights)  # nor have they to bring any


def test_what_a_piece_can_do_its_mirror_image_can_do_on_the_mirrored_board() -> None:
    height, width, boards = 12, 6, 20
    network = AfterstateQNetwork((4, height, width))
    filled = torch.rand((boards, height, width), generator=torch.Generator().manual_seed(0)) < 0.6
    filled[:, :4] = False

    def results(filled: Tensor, piece: int) -> list[set[tuple[bytes, int]]]:
        """What every placement leads to: the filled cells, and the lines that are cleared."""
        placed = torch.arange(piece * 4 * width, (piece + 1) * 4 * width)
        placed = placed[(network._cell_columns[placed] < width).all(1)]
        columns = torch.nn.functional.pad((filled * network._bits[:, None]).sum(1, dtype=torch.int32), (0, 3))
        games = torch.arange(boards).repeat_interleave(len(placed))
        planes, lines = network.place(columns | (-1 << height), games, placed.repeat(boards))
        return [
            {(board.numpy().tobytes(), int(number)) for board, number in zip(*pair, strict=True)}
            for pair in zip(planes[:, 0].view(boards, len(placed), -1), lines.view(boards, -1), strict=True)
        ]

    def flipped(results: set[tuple[bytes, int]]) -> set[tuple[bytes, int]]:
        boards = [(np.frombuffer(cells, np.float32).reshape(height, width), lines) for cells, lines in results]
        return {(board[:, ::-1].tobytes(), lines) for board, lines in boards}

    for piece, mirrored in enumerate(MIRRORED):
        for ours, theirs in zip(results(filled, piece), results(filled.flip(-1), mirrored), strict=True):
            assert flipped(ours) == theirs


@pytest.mark.parametrize(("height", "width"), [(20, 10), (26, 12), (4, 4)])
def test_the_compiled_form_draws_the_boards_of_the_tensor_form(height: int, width: int) -> None:
    random = torch.Generator().manual_seed(0)
    network = AfterstateQNetwork((4, height, width))
    filled = torch.rand((400, height, width), generator=random) < torch.rand((400, height, 1), generator=random)
    filled[::2, height // 2 :, 1:] = True  # lines that most pieces complete
    bits = (filled * (1 << torch.arange(height))[:, None]).sum(1, dtype=torch.int32)
    columns = torch.nn.functional.pad(bits, (0, 3)) | (-1 << height)
    games = torch.randint(0, 400, (2000,), generator=random)
    placed = torch.randint(0, 7 * 4 * width, (2000,), generator=random)
    inside = (network._cell_columns[placed] < width).all(1)
    planes, lines = network.place(columns, games[inside], placed[inside])
    expected, expected_lines = network.place_on_device(columns, games[inside], placed[inside])
    assert torch.equal(planes, expected.float()) and torch.equal(lines, expected_lines)
    assert set(lines.tolist()) >= {0, 1, 2}


def test_boards_that_cannot_occur_have_values_too() -> None:
    """The start-up benchmark times random observations."""
    random = torch.randint(0, 256, (32, 1, 4, 12, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    network = AfterstateQNetwork((4, 12, 6))
    for frames in (random, torch.full_like(random, 255)):
        assert network(frames).isfinite().all()
