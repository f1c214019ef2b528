"""`python -m cudml`, where the `cudml` command is not in PATH."""

import sys

from cudml.cli.main import main

sys.exit(main())
