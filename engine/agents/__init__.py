"""Q-networks, the Double-DQN agent that acts and learns with them, and its schedules."""

from engine.agents.double_dqn import DoubleDQN, Losses
from engine.agents.networks import DuelingQNetwork

__all__ = ["DoubleDQN", "DuelingQNetwork", "Losses"]
