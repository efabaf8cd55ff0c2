"""Configuration of a run: options, presets, the command line, Mario's stages and action sets."""
