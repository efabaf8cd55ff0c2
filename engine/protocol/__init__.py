"""Messages between processes, and how they are framed on a stream."""
