"""Plain models of the batched games, and Jumanji's games adapted to play the same games as ours."""
