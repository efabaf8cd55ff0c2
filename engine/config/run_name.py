"""Names that users give to runs: they are names of folders, so they must not be paths."""

import re

ACCEPTED = "up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_run_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
