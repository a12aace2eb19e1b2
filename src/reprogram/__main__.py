"""`python -m reprogram` is the command line."""

import sys

from reprogram.cli.main import main

sys.exit(main())
