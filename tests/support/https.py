"""Web applications for tests behind real HTTPS on loopback, with a certificate of an authority of their own."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from kube import pki


def authority(directory: Path, name: str) -> bytes:
    """Make an authority and a server certificate for loopback, kept as NAME.crt and NAME.key; return the authority's PEM."""
    now = datetime.now(UTC)
    made = pki.new_ca(f"{name}s", now)
    sans = ("127.0.0.1", f"{name}.default.svc")
    pki.issue(made, name, usages=(pki.SERVER,), sans=sans, now=now).save(directory, name)
    return made.cert_pem


@contextlib.asynccontextmanager
async def served(application: web.Application, directory: Path, name: str) -> AsyncIterator[int]:
    """Serve an application with the certificate that `authority` made; give the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
