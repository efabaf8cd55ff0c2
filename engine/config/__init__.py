"""Configuration of a run: options, presets, the command line, and the contract of games."""
