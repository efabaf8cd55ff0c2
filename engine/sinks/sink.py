"""What a sink is: a class with a method for each kind of event; those that it does not define do nothing."""

from __future__ import annotations

from engine.protocol.messages import Episode, Evaluation, Failed, Finished, Progress
from engine.protocol.sinks import Begin, Restart, SinkEvent


class Sink:
    """Takes the metrics of one run.

    Each host of the run makes one, without arguments if it comes from another package: after a resume, another sink
    goes on. `begin` comes first, then `restart`. `end` is missing if the host was killed.
    """

    def begin(self, run: Begin) -> None:
        """Open what the sink writes to, and write down the run's hyperparameters (`run.options`)."""

    def restart(self, env_steps: int) -> None:
        """The run starts, or goes on from a checkpoint, at `env_steps`: what was said of later steps is void."""

    def progress(self, progress: Progress) -> None:
        """Once a second while the run trains, and at its end."""

    def episode(self, episode: Episode) -> None:
        """An episode has ended. There may be hundreds per second."""

    def evaluation(self, evaluation: Evaluation) -> None:
        """The policy was evaluated."""

    def end(self, end: Finished | Failed) -> None:
        """The run is over."""

    def close(self) -> None:
        """Write what is left."""

    def take(self, event: SinkEvent) -> None:
        """Call the method for an event."""
        match event:
            case Begin():
                self.begin(event)
            case Restart():
                self.restart(event.env_steps)
            case Progress():
                self.progress(event)
            case Episode():
                self.episode(event)
            case Evaluation():
                self.evaluation(event)
            case Finished() | Failed():
                self.end(event)
