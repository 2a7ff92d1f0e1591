"""Limits of bearer tokens, the same for all who receive them."""

from __future__ import annotations

LONGEST = 32 << 10
"""Characters of a token that is read or reviewed: providers that put hundreds of groups into one stay below it."""
