"""What `mario-tui eval`, `play` and `profile` run in processes of their own."""
