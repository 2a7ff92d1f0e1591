"""Counts the requests to the kubelet port as upstream does: by method, first part of the path, and whether they last.

A path that upstream has no handler for is "other", so that no client can fill the metrics with names.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from starlette.types import Scope

from agent.metrics.kubelet_metrics import KubeletMetrics

_PATHS = frozenset(
    "healthz pods stats metrics metrics/cadvisor metrics/probes metrics/resource run exec attach portForward "
    "containerLogs configz runningpods checkpoint logs debug statusz flagz pprof".split()
)
_METHODS = frozenset("OPTIONS GET HEAD POST PUT DELETE TRACE CONNECT".split())
_LONG = ("exec", "attach", "portforward", "debug")
_SESSIONS = ("exec", "attach", "portforward")


class RequestMetrics:
    """Counts into `observed`."""

    def __init__(self, metrics: KubeletMetrics) -> None:
        self._metrics = metrics

    @contextlib.contextmanager
    def counted(self, scope: Scope) -> Iterator[None]:
        """Count a request, and how long it takes."""
        if scope["type"] != "http":
            yield
            return
        path = bucket(scope["path"])
        method = scope["method"] if scope["method"] in _METHODS else "other"
        labels = (method, path, "readwrite", str(path in _LONG).lower())
        metrics, began = self._metrics, time.monotonic()
        metrics.requests.inc(*labels)
        metrics.inflight.inc(*labels)
        if path.lower() in _SESSIONS and (b"upgrade", b"websocket") in scope["headers"]:
            metrics.websockets.inc(path.lower())
        try:
            yield
        finally:
            metrics.inflight.inc(*labels, by=-1.0)
            metrics.request_seconds.observe(time.monotonic() - began, *labels)


def bucket(path: str) -> str:
    """Return the label for a path."""
    parts = path.lstrip("/").split("/", 2)
    name = "/".join(parts[:2]) if parts[0] == "metrics" and len(parts) > 1 else parts[0]
    return name if name in _PATHS else "other"
