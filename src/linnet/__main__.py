"""`python -m linnet`: the same as the command."""

import sys

from linnet.cli import main

sys.exit(main())
