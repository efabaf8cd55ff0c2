"""Reports what a training loop outside the program does, to a host of its own (`mario_tui.Reporter`)."""
