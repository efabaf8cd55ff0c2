"""`mario-tui` and `python -m mario_tui`: runs the command line. Ctrl-C ends it without a traceback also while Python
still imports it."""

from __future__ import annotations

import sys


def main() -> None:
    """Console entry point."""
    try:
        from mario_tui import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
