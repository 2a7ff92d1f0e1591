"""Mutating and validating admission webhooks, called over HTTPS."""
