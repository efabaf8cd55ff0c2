"""`UserError`: the one exception whose text is shown to the user."""

from engine.runtime.text import printable


class UserError(Exception):
    """Wrong usage or configuration, shown as one line; exit status 2.

    The message names the field or file and the accepted values. Line breaks and control characters in it are escaped.
    """

    def __str__(self) -> str:
        return printable(super().__str__())
