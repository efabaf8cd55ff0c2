"""Snake on boards of any size."""
