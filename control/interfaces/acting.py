"""The owner of the request that is being answered, for calls on its behalf by what knows no request (conversions)."""

from __future__ import annotations

from contextvars import ContextVar

ACTING: ContextVar[str] = ContextVar("acting", default="")
"""The owner (kube/owners.py) that such calls are charged to; "" for work of the server itself."""
