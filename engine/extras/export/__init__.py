"""Writes the networks of policies for other programs."""
