"""What is watched: the machine (`system`), the run's history and its event files (`tensorboard`)."""
