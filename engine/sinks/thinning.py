"""Which episodes get a point: small games finish hundreds per second, and one each would fill the disk."""

from __future__ import annotations

EPISODE_POINTS = 4096
"""Number of points after which the number of episodes per point, initially 1, doubles. Charts in the dashboard show no
more points than that."""


class Thinning:
    """Counts episodes. The first `EPISODE_POINTS` points stand for single episodes, the next for 2, then for 4, …"""

    def __init__(self) -> None:
        self._each, self._points = 1, 0  # episodes per point; points with that many
        self._counted = 0  # since the last point

    def is_due(self) -> bool:
        """Count an episode. Whether it completes a point."""
        self._counted += 1
        if self._counted < self._each:
            return False
        self._counted = 0
        self._points += 1
        if self._points == EPISODE_POINTS:
            self._points, self._each = 0, 2 * self._each
        return True

    def restart(self) -> None:
        """Forget the episodes of an incomplete point."""
        self._counted = 0
