"""Screens: home with the runs, the dashboard of one, and small dialogs."""
