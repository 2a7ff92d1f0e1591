"""`python -m simulation`."""

import sys

from simulation.command import main

sys.exit(main())
