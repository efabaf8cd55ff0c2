"""The process behind `mario-tui sweep` that makes the networks of the user's own before any run begins.

`python -m engine.commands.check_networks NETWORKS`, a JSON array with the arguments of `make_network` for each and the
count of numbers beside images, writes one packed message to its standard output: `Checked`, or `Failed` for the first
that can't be trained. It exits when its standard input closes.
"""

from __future__ import annotations

import sys

import msgspec

from engine.agents.networks import make_network
from engine.commands.answers import answered, take_stdout
from engine.protocol.results import Checked
from engine.runtime.processes import end_with_stdin, killed_with_parent


def main() -> int:
    """See the module's docstring."""
    wanted = msgspec.json.decode(sys.argv[1], type=list[tuple[str, int, tuple[int, ...], int, int]])
    killed_with_parent()
    end_with_stdin()
    send = take_stdout()

    def work() -> None:
        for name, stack, frame_shape, actions, numbers in wanted:
            make_network(name, stack, frame_shape, actions, numbers=numbers)
        send(Checked())

    return answered(work, send)


if __name__ == "__main__":
    sys.exit(main())
