"""`python -m mario_tui` is `mario-tui`."""

from mario_tui.cli import main

main()
