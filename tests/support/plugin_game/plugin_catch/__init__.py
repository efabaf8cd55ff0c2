"""Catch: balls fall, and a paddle has to be where they land. A game for mario-tui as a package of its own."""
