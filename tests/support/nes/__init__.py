"""Our console beside others: nes-py, and a second 6502 to hold it against."""
