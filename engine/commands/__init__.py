"""Programs that `mario-tui eval` and sweeps run in separate processes."""
