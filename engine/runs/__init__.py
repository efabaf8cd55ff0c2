"""Runs on disk: run folders, the registry of runs, checkpoints, policies and recordings."""
