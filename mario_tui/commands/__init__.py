"""The commands of the command line, a module for each or for several that belong together: options, and what is done.

Every module has a `run`, which takes the arguments after the command's name and returns the exit status. What is slow
to import (Textual, Rich, the web server) is imported by the function that needs it, so `mario-tui runs` stays fast.
"""
