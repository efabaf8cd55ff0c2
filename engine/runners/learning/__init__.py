"""A learner: what it learns with, when, and how it is written into checkpoints."""
