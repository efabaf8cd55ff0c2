"""Plain models of the batched games, one game at a time, and Jumanji's games made to play ours."""
