"""Errors of the command, each one sentence with its fix."""

from __future__ import annotations


class WherryError(Exception):
    """Shown as it is, without a traceback; the command ends with status 1."""
