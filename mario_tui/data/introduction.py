"""What the panels of a dashboard show, for somebody who sees them for the first time."""

from __future__ import annotations

PANELS = {
    "Actors": "games that play at once; eps: the share of random actions",
    "Replay": "what the network learns from; settings that change",
    "Machine": "processor, memory and GPU",
    "Mean return": "of episodes with random actions; rises with learning",
    "TD loss": "how far the agent's predictions are off",
    "Q estimate": "the return that it expects",
    "Evaluations": "episodes without random actions; the best policy is kept",
    "Game": "lane 0, and the expected return of each action",
}
"""By title, in the order of their numbers."""
