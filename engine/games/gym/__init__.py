"""Any Gymnasium environment with discrete actions as a game: `--game gym:CartPole-v1`."""
