"""What is watched: the machine (`system`), the run's event files (`tensorboard`), and where time goes (`stages`,
`trace`, `profile`).
"""

from engine.monitoring.stages import STAGES, Stopwatch, split

__all__ = ["STAGES", "Stopwatch", "split"]
