"""The process behind `mario-tui play`."""
