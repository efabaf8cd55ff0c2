"""Searches in the emulator for actions that lead Mario to the flag. Distillations learn from them, runs are guided by
them."""
