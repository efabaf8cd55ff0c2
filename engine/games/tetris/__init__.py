"""Tetris, a placement per step."""
