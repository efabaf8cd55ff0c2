"""The one exception whose text is meant for the person at the keyboard."""

from engine.runtime.text import printable


class UserError(Exception):
    """Wrong usage or configuration: shown as one line, exit status 2.

    The message names the field (or file) and says what would be accepted. Whatever it quotes, it is one printable line.
    """

    def __str__(self) -> str:
        return printable(super().__str__())
