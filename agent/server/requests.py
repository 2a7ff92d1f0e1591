"""Counts the requests to the kubelet port as upstream does: by method, first part of the path, and whether they last.

A path that upstream has no handler for is "other", so that nobody can fill the metrics with names of theirs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from agent.server.sessions import Scope
from agent.usage.observed import Observed

_PATHS = frozenset(
    "healthz pods stats metrics metrics/cadvisor metrics/probes metrics/resource run exec attach portForward "
    "containerLogs configz runningpods checkpoint logs debug statusz flagz pprof".split()
)
_METHODS = frozenset("OPTIONS GET HEAD POST PUT DELETE TRACE CONNECT".split())
_LONG = ("exec", "attach", "portforward", "debug")
_SESSIONS = ("exec", "attach", "portforward")


class Requests:
    """Counts into `observed`."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    @contextlib.contextmanager
    def counted(self, scope: Scope) -> Iterator[None]:
        """Count a request, and how long it takes."""
        if scope["type"] != "http":
            yield
            return
        path = bucket(scope["path"])
        method = scope["method"] if scope["method"] in _METHODS else "other"
        labels = (method, path, "readwrite", str(path in _LONG).lower())
        observed, began = self._observed, time.monotonic()
        observed.requests.inc(*labels)
        observed.inflight.inc(*labels)
        if path.lower() in _SESSIONS and (b"upgrade", b"websocket") in scope["headers"]:
            observed.websockets.inc(path.lower())
        try:
            yield
        finally:
            observed.inflight.inc(*labels, by=-1.0)
            observed.request_seconds.observe(time.monotonic() - began, *labels)


def bucket(path: str) -> str:
    """Return the label for a path."""
    parts = path.lstrip("/").split("/", 2)
    name = "/".join(parts[:2]) if parts[0] == "metrics" and len(parts) > 1 else parts[0]
    return name if name in _PATHS else "other"
