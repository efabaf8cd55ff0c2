"""When to stop replacing a member of a run that crashes whenever it starts."""

_LIMIT = 3


class FailedStarts:
    """Losses in a row of one member that had not played since the last one."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._played = 0

    def count(self, played: int) -> bool:
        """Count a loss of the member, which has played `played` environment steps in all.

        Returns whether it has now failed to start three times in a row, so that another try would be in vain.
        """
        self._in_a_row = self._in_a_row + 1 if played == self._played else 0
        self._played = played
        return self._in_a_row >= _LIMIT
