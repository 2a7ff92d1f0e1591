"""A plugin of pytest that changes a module as it is imported: WHERRY_MUTANT names one of `tests.support.standing_mutants`.

Processes that a test starts run the code as it is.
"""

from __future__ import annotations

import os

from simulation.changed_imports import install
from tests.support.standing_mutants import STANDING

if "WHERRY_MUTANT" in os.environ:
    install(next(each for each in STANDING if each.name == os.environ["WHERRY_MUTANT"]))
