"""`python -m simulation`."""

import argparse
import sys

from simulation.changed_imports import install
from simulation.mutants import MUTANTS

# A fault is put into the code before anything else is imported; command.py refuses wrong names.
early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
early.add_argument("--mutant", choices=[each.name for each in MUTANTS])
if name := early.parse_known_args()[0].mutant:
    install(next(each for each in MUTANTS if each.name == name))

from simulation.command import main  # noqa: E402

sys.exit(main())
