"""Searches in the emulator for actions that lead Mario to the flag. Distillations learn from them (`searched_task`),
and episodes of runs with `--guide` begin on these ways (`ways`)."""
