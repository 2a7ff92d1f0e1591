"""Context variable with the owner of the current request, for conversions that have no request argument."""

from __future__ import annotations

from contextvars import ContextVar

ACTING: ContextVar[str] = ContextVar("acting", default="")
"""The owner (kube/owners.py) that such calls are charged to; "" for work of the server itself."""
