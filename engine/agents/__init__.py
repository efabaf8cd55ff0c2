"""Q-networks, and the Double-DQN agent that acts and learns with them."""

from engine.agents.double_dqn import DoubleDQN, Losses
from engine.agents.networks import DuelingQNetwork, make_network

__all__ = ["DoubleDQN", "DuelingQNetwork", "Losses", "make_network"]
