"""`python -m torchsleuth …`."""

import os
import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # As for the installed command: with `-m` it is the working directory, whose `glob.py` or `secrets.py` would be taken for Python's.
        sys.path[0] = os.path.dirname(sys.executable)

    from torchsleuth.cli import main

    raise SystemExit(main())
