"""Panels of the dashboard, one to a file. Each takes a snapshot and refreshes only if what it shows has changed."""
