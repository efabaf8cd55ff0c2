"""Short training runs of other implementations of DQN on our Gymnasium environments."""
