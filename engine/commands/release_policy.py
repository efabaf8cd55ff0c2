"""`python -m engine.commands.release_policy`: the documented name of `engine.extras.release` (docs/policies.md)."""

import sys

from engine.config.features import feature
from engine.errors import UserError

if __name__ == "__main__":
    try:
        sys.exit(feature("release of policies", __spec__.name)())
    except UserError as error:
        print(f"{__spec__.name}: error: {error}", file=sys.stderr)
        sys.exit(2)
