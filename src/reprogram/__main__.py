"""`python -m reprogram` is the command line."""

import sys

from reprogram.cli import main

sys.exit(main())
