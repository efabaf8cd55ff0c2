"""Super Mario Bros in tests."""

from __future__ import annotations

from engine.games.mario.actions import ACTION_SETS

RIGHT_B = ACTION_SETS["right-only"].index("right+B")
"""Runs to the right."""
