"""Programs that `mario-tui eval`, `distill`, `play`, `profile` and torchrun's ranks run in separate processes."""
