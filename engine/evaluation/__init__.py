"""Playing episodes with a trained policy, and their statistics."""
