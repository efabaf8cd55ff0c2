"""Programs that `mario-tui eval`, `play`, `profile`, sweeps and torchrun's ranks run in separate processes."""
