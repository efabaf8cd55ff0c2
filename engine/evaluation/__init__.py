"""Playing episodes with a trained policy, and the statistics of them."""
