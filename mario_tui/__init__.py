"""The terminal UI: command line, headless display and Textual application. Never imports torch."""
