"""`UserError`: the one exception whose text is shown to the user, and kinds of it that callers tell apart."""

from engine.runtime.text import printable, shortened

NO_THREAD = "can't start new thread"
"""The text of Python's error, which has no class of its own."""


class UserError(Exception):
    """Wrong usage or configuration, shown as one line; exit status 2.

    The message names the field or file and the accepted values. Line breaks and control characters in it are escaped,
    and a value that is too long to be read loses its middle.
    """

    def __str__(self) -> str:
        return shortened(printable(super().__str__()))


class ScarceError(UserError):
    """The machine has too little left of something: memory, disk space or processes. There may be enough later."""


class RemovedError(UserError):
    """The folder of a run was removed, or is just being removed, while the run started."""
