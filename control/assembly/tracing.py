"""The API server's tracer, as its configuration wants it; the scheduler in the same process uses it, too."""

from __future__ import annotations

import asyncio
import socket

from control.config import ControlConfig
from control.server_tasks.server_identity import identity
from kube.tracing import configuration
from kube.tracing.start import start as start_tracer
from kube.tracing.tracer import Tracer

SERVICE = "apiserver"
"""Upstream's service.name; service.instance.id is the name of the identity lease."""


async def start(config: ControlConfig) -> Tracer | None:
    """Return the tracer, None if tracing is not configured; raises TracingError with one sentence."""
    found = config.tracing
    if config.tracing_config_file is not None:
        found = await asyncio.to_thread(configuration.load, config.tracing_config_file)
    return await start_tracer(found, {"service.name": SERVICE, "service.instance.id": identity(socket.gethostname())})
