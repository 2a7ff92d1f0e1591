"""Deterministic simulation: production code in virtual time, with faults, from one seed."""
