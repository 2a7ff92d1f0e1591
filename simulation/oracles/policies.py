"""Rules of propagation policies: orphaned dependents stay, and an owner that is deleted in the foreground waits for its own.

Dependents that were created in the minute before do not count: the garbage collector may not know them yet, as upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

from kube.clock import format_time
from simulation.history import Acknowledged
from simulation.oracles.objects import Object, Objects, name
from simulation.oracles.recent import BEHIND_SECONDS
from simulation.sources import START

Broken = tuple[str, str]


class Policies:
    """Deletions of users by their policies."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._sent: Counter[str] = Counter()
        """Deletions of each path that were sent: a later one may have another policy."""
        self._orphaning: dict[str, tuple[str, str]] = {}
        """UIDs of owners whose dependents must stay, and the time until which these were created, by the path of the owner."""

    def sent(self, path: str) -> int:
        """Record that a deletion is sent, and return its number for its path."""
        self._orphaning.pop(path, None)
        self._sent[path] += 1
        return self._sent[path]

    def acknowledged(self, write: Acknowledged) -> Iterator[Broken]:
        """Check an answer to a deletion."""
        if write.method != "DELETE" or not write.uid or write.number != self._sent[write.path]:
            return
        if write.policy == "Orphan":
            self._orphaning[write.path] = write.uid, _time(write.sent - BEHIND_SECONDS)
        elif write.policy == "Foreground":
            every = [each for _, each in self._objects.every()]
            if not any(each["metadata"].get("uid") == write.uid for each in every):
                until = _time(write.sent - BEHIND_SECONDS)
                for each in (each for each in every if _is_blocking(each, write.uid, until)):
                    yield "foreground deletion", f"{write.path} is gone before {name(each)}"

    def collected(self, obj: Object) -> Iterator[Broken]:
        """Check the deletion of an object by the garbage collector."""
        times = dict(self._orphaning.values())
        for reference in obj["metadata"].get("ownerReferences") or ():
            if _created(obj) < times.get(reference["uid"], ""):
                yield "orphan", f"{name(obj)} is collected: its owner {reference['name']} was deleted and orphans it"


def _time(seconds: float) -> str:
    return format_time(START + timedelta(seconds=seconds))


def _created(obj: Object) -> str:
    found: str = obj["metadata"].get("creationTimestamp") or "now"  # later than all times
    return found


def _is_blocking(obj: Object, uid: str, until: str) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return _created(obj) < until and any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references)
