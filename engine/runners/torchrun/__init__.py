"""Ranks of a DDP run that torchrun has started, on any number of machines."""
