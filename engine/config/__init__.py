"""What a run is told: options, presets, the command line, Mario's stages and action sets."""
