"""Training engine of mario-tui: environments, replay, agents, runners and the host that serves a run."""

__version__ = "0.2.0"
