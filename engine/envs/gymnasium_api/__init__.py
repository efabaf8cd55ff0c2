"""Gymnasium environments over the same games; importing a module registers its ids."""
