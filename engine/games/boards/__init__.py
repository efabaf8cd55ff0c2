"""What games on boards of cells have in common."""
