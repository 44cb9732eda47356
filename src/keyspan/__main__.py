"""`python -m keyspan`: the command line."""

import sys

from keyspan.cli import main

sys.exit(main())
