"""The commands of the command line, one module each: its options, and what it does with them.

Every module has a `run`, which takes the arguments after the command's name and returns the exit status. What is slow
to import (Textual, Rich, the web server) is imported by the function that needs it, so `mario-tui runs` stays fast.
"""
