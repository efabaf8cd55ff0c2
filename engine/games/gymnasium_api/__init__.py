"""Gymnasium environments for all games. Importing one of the modules registers its ids."""
