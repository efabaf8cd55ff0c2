"""What processes tell each other: typed messages, and how they are framed on a stream."""
