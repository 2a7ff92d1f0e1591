"""Decisions of one component about objects, which it records in the journal of its process in addition to its events.

An event may have grounds that only the journal contains, and some events are left out of the journal: a failed probe is an
event each time, and a decision only when its threshold is reached. Without a journal nothing is recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

from kube.api import core_v1
from kube.journal import Journal, kind_key
from kube.object_references import reference

MOST_TOPICS = 4096
"""Decisions whose last text is kept, so that the same one is recorded once."""


class Decisions:
    """Decisions of `component`; events whose reason is in `left_out` are none."""

    def __init__(self, journal: Journal | None, component: str, left_out: Collection[str] = ()) -> None:
        self._journal, self._component, self._left_out = journal, component, left_out
        self._last: OrderedDict[int, int] = OrderedDict()
        """Hashes of texts by those of topics: neither is needed, and each may be long."""

    def record(self, obj: Any, text: str, *, details: Mapping[str, Any] | None = None) -> None:
        """Record a decision about an object or a reference."""
        if self._journal is None:
            return
        about = reference(obj)
        self._journal.record(
            kind_key((about.api_version or "").rpartition("/")[0], about.kind or ""),
            about.namespace or "",
            about.name or "",
            self._component,
            text,
            uid=about.uid or "",
            details=details,
        )

    def changed(self, obj: Any, topic: str, text: str) -> None:
        """Record the decision on a topic if it differs from the last one; "" is none, and is not recorded."""
        if self._journal is None:
            return
        about = reference(obj)
        key, last = hash((about.kind, about.namespace, about.name, about.uid, topic)), hash(text)
        if not text:
            self._last.pop(key, None)
        elif self._last.get(key) != last:
            self._last[key] = last
            if len(self._last) > MOST_TOPICS:
                self._last.popitem(last=False)
            self.record(about, text)

    def event(self, about: core_v1.ObjectReference, reason: str, message: str, grounds: str) -> None:
        """Record an event, with grounds that it has not."""
        if reason not in self._left_out:
            self.record(about, f"{reason}: {message}{f' ({grounds})' if grounds else ''}")
