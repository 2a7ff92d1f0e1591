"""Translates pod specs into CRI's terms: sandbox, containers, environment, security, names."""
