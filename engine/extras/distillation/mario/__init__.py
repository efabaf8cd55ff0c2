"""Searches in the emulator for actions that lead Mario to the flag. Distillations learn from them (`searched_task`),
and runs with `--guide` are guided by them (`guide`)."""
