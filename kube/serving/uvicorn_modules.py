"""The parts of uvicorn that the servers use, without its command line, which takes 1.4 MiB and the import of click."""

from __future__ import annotations

from kube.partial_packages import without_init

_package = without_init("uvicorn")

from uvicorn.config import Config  # noqa: E402 - after the line above

vars(_package).setdefault("Config", Config)  # which the next one imports from there

from uvicorn.lifespan.off import LifespanOff  # noqa: E402
from uvicorn.protocols.http.httptools_impl import (  # noqa: E402
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import Server, ServerState  # noqa: E402

__all__ = [
    "STATUS_LINE",
    "Config",
    "HttpToolsProtocol",
    "LifespanOff",
    "RequestResponseCycle",
    "Server",
    "ServerState",
]
