"""Replay whose frames and priorities lie on a torch device."""
