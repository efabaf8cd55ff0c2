"""Replay whose frames and priorities are stored on a torch device."""
