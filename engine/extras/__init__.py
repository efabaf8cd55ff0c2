"""What the core doesn't need, a folder each: it finds them by their names in `engine.config.features`.

They use the core's public names, and not one another. Without a folder the program does all else, and refuses in a
line what needed it.
"""
