"""What the core doesn't need, a folder each: nothing else imports them but the rows of `mario_tui.features`.

They use the core's public names, and not one another, except that `export` reads event files. Without a folder the
program does all else, and refuses in a line what needed it.
"""
