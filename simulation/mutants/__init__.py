"""Faults to put into production code, each of which the rules have to find: proof that they can fail."""

from __future__ import annotations

from simulation.mutants.clients import CLIENTS
from simulation.mutants.controllers import CONTROLLERS
from simulation.mutants.registry import REGISTRY
from simulation.mutants.storage import STORAGE

MUTANTS = (*STORAGE, *CLIENTS, *REGISTRY, *CONTROLLERS)
SURVIVING: dict[str, str] = {}
"""Mutants that are not found, and why."""
