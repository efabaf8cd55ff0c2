"""What is watched: the machine (`system`), the run's event files (`tensorboard`), and where time goes (`stages`,
`trace`, `profile`).
"""

from engine.monitoring.time_split import split
from engine.runtime.stopwatch import STAGES, Stopwatch

__all__ = ["STAGES", "Stopwatch", "split"]
