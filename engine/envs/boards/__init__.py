"""Batched Snake and Tetris, on any torch device."""
