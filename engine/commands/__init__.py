"""Programs that `mario-tui eval`, `play` and `profile` run in separate processes."""
