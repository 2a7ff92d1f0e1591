"""/statusz and /flagz of the kubelet port: version, start time and flags (KEP-4827, KEP-4828), as text.

Upstream documents that the format is only for people; requests for formats other than text are rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agent.node.status import KUBELET_VERSION
from kube.clock import Clock

_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)


class ZPages:
    """Both pages; `paths` are listed as further endpoints."""

    def __init__(self, clock: Clock, flags: Mapping[str, str], paths: Iterable[str]) -> None:
        self._clock, self._flags, self._paths = clock, flags, tuple(paths)
        self._started, self._begun = clock.now(), clock.monotonic()

    async def status(self, request: Request) -> Response:
        """Handle /statusz."""
        up = int(self._clock.monotonic() - self._begun)
        version = KUBELET_VERSION.removeprefix("v")
        return _page(
            request,
            "kubelet statusz",
            f"Started: {self._started:%a %b %e %H:%M:%S UTC %Y}",
            f"Up: {up // 3600} hr {up // 60 % 60:02} min {up % 60:02} sec",
            f"Go version: python{sys.version_info.major}.{sys.version_info.minor}",
            f"Binary version: {version.partition('+')[0]}",
            f"Emulation version: {'.'.join(version.split('.')[:2])}",
            f"Paths: {' '.join(self._paths)}",
        )

    async def flags(self, request: Request) -> Response:
        """Handle /flagz."""
        return _page(request, "kubelet flags", *(f"{name}={value}" for name, value in sorted(self._flags.items())))


def _page(request: Request, title: str, *lines: str) -> Response:
    accepted = request.headers.get("accept", "*/*")
    if not any(kind in accepted for kind in ("text/plain", "text/*", "*/*")):
        return PlainTextResponse("only the following media types are accepted: text/plain\n", 406)
    return PlainTextResponse("\n".join(("", title, _WARNING, "", *lines, "")))
