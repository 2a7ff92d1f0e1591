"""The point where writes are entered into metadata.managedFields, who set which field, for server-side apply.

The bookkeeping itself is `control.patch.apply`; without it the field stays empty, as for an object that nobody applied.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

Object = dict[str, Any]


def track(obj: Object, old: Object | None, manager: str, operation: str, subresource: str, now: datetime) -> None:
    """Record who changed what between `old` and `obj` in the new object's managedFields."""
    if old is not None and "managedFields" in old["metadata"]:
        obj["metadata"].setdefault("managedFields", old["metadata"]["managedFields"])
