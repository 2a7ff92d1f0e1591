"""Finds why an object that was deleted still exists."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wherry.why import commands
from wherry.why.model import Cause, reference
from wherry.why.times import ago, parsed

KEPT_BY_GARBAGE_COLLECTION = {"foregroundDeletion", "orphan"}


def finalizers(obj: Any, now: datetime) -> list[Cause]:
    """Return a cause for each finalizer that blocks the deletion of an object."""
    metadata = obj.metadata
    if metadata.deletion_timestamp is None:
        return []
    found = []
    since = ago(parsed(metadata.deletion_timestamp), now)
    for finalizer in metadata.finalizers:
        if finalizer in KEPT_BY_GARBAGE_COLLECTION:
            text = f"it was deleted {since} and waits for the garbage collector ({finalizer}) to finish with its dependents"
            found.append(Cause(text, about=reference(obj), waits=True))
            continue
        about = reference(obj)
        text = (
            f"it was deleted {since} and its finalizer {finalizer} has not been removed: the program that sets it has not "
            "finished, or no longer runs"
        )
        found.append(Cause(text, commands.patch(about, {"metadata": {"finalizers": None}}, merge=True), about))
    return found
