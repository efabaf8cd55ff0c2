"""Ape-X actors on a Ray cluster."""
