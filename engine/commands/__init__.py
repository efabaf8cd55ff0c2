"""Programs that `mario-tui eval`, `play`, sweeps and torchrun's ranks run in separate processes."""
