"""`python -m mario_tui` runs `mario-tui`."""

from mario_tui.cli import main

main()
