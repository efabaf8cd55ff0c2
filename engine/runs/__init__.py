"""What lies on disk: a run's folder, the registry of runs, checkpoints, policies, recordings."""
