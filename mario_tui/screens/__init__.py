"""Screens: home with the list of runs, the dashboard of a run, and dialogs."""
