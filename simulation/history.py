"""The users' view of a run: acknowledged writes with their revisions, and refused ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from kube.errors import StatusError
from simulation.trace import Trace


class Acknowledged(msgspec.Struct, frozen=True):
    """A write that a user knows of."""

    method: str
    path: str
    name: str
    """That of the object in the answer, "" where it has none."""
    revision: int
    """That of the object after the write, 0 where the answer has none."""
    sent: float = 0.0
    """Virtual time at which the request was sent."""
    policy: str = ""
    """Propagation policy of a deletion."""
    uid: str = ""
    number: int = 0
    """Of a deletion among all of its path."""


class Sent(msgspec.Struct, frozen=True):
    """A write whose outcome is not known yet."""

    at: float
    policy: str
    number: int


class History:
    """Writes of all users, in the order of their answers."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.outcomes: Counter[str] = Counter()
        self.listeners: list[Callable[[Acknowledged], None]] = []
        self.deletions: list[Callable[[str], int]] = []
        """Called with the path of each deletion that is sent; return its number."""

    def acknowledged(self, method: str, path: str, answer: Any, sent: Sent) -> None:
        """Record a write that succeeded."""
        meta, details = answer.get("metadata") or {}, answer.get("details") or {}
        revision = int(meta.get("resourceVersion") or 0) if answer.get("kind") != "Status" else 0
        uid = meta.get("uid") or details.get("uid") or ""
        written = Acknowledged(method, path, meta.get("name") or "", revision, sent.at, sent.policy, uid, sent.number)
        self.outcomes["acknowledged"] += 1
        self._trace.add("user", f"{method} {path}: acknowledged {revision or ''}")
        for listener in self.listeners:
            listener(written)

    def sent(self, method: str, path: str, at: float, policy: str) -> Sent:
        """Record that a write is sent."""
        number = 0
        for listener in self.deletions if method == "DELETE" else ():
            number = listener(path)
        return Sent(at, policy, number)

    def refused(self, method: str, path: str, error: StatusError) -> None:
        """Record a write that failed, or whose outcome nobody knows."""
        self.outcomes[str(error.code)] += 1
        self._trace.add("user", f"{method} {path}: {error.code} {error.message}")
