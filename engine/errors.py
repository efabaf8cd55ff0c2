"""`UserError`: the one exception whose text is shown to the user."""

from engine.runtime.text import printable, shortened


class UserError(Exception):
    """Wrong usage or configuration, shown as one line; exit status 2.

    The message names the field or file and the accepted values. Line breaks and control characters in it are escaped,
    and a value that is too long to be read loses its middle.
    """

    def __str__(self) -> str:
        return shortened(printable(super().__str__()))
