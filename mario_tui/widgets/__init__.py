"""Widgets: panels, charts, the table of runs, rows of the form. Each redraws only what has changed."""
