"""The terminal side of mario-tui: command line, headless display and the Textual application. Never imports torch."""
