"""`python -m asyncq` is the command line."""

import sys

from asyncq.cli import main

if __name__ == "__main__":
    sys.exit(main())
