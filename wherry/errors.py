"""What goes wrong in the command, said in one sentence with what to do about it."""

from __future__ import annotations


class WherryError(Exception):
    """Shown as it is, without a traceback; the command ends with status 1."""
