"""Programs that `mario-tui eval`, `play`, `profile` and torchrun's ranks run in separate processes."""
