"""Health of this machine's daemons, from their own health endpoints.

The status of a Node in the API may be older than the end of its agent.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import datetime

import aiohttp

from kube.api import coordination_v1
from kube.client import Client
from kube.clock import parse_time
from kube.error_words import words
from kube.errors import StatusError
from wherry import daemons
from wherry.errors import WherryError
from wherry.security.ports import listening
from wherry.settings import Settings

POLL_SECONDS = 0.1
ASK_SECONDS = 2.0
_ERROR = re.compile(r' [EC] |\b(ERROR|CRITICAL)\b|^[ |]*[\w.]+(Error|Exception): |^\{"ts":(?!.*"v":[0-9])')
"""Lines of errors: in text, of a traceback, and as JSON, where errors have no verbosity."""


async def problem(settings: Settings, daemon: str) -> str | None:
    """Return what is wrong with a daemon by its own health endpoint; None if it is well or has none."""
    port = {
        "agent": settings.kubelet_healthz_port,
        "netproxy": settings.proxy_healthz_port,
        "dns": settings.dns_metrics_port,
    }.get(daemon, 0)
    if not port:
        return None
    url = f"http://127.0.0.1:{port}/healthz"
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_SECONDS)) as session:
            # Any account may listen on a free port, and root requests nothing on behalf of others.
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return f"{url} answers {answer.status}"
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return f"{url} does not answer: {words(error)}"
    return _answered_by_another(daemon, (await daemons.running(settings)).get(daemon, 0), port)


def _answered_by_another(daemon: str, pid: int, port: int) -> str | None:
    """Return a message if the daemon does not listen on its port: another process answered."""
    if not pid:
        return f"it does not run, and another process answers on port {port}"
    try:
        os.readlink(f"/proc/{pid}/fd/0")
    except PermissionError:  # only root and the daemon's own user may look
        return None
    except OSError:
        pass
    if any(found.port == port for found in listening(daemon, pid)):
        return None
    return f"another process than its own ({pid}) answers on port {port}"


async def wait(settings: Settings, daemon: str, seconds: float) -> None:
    """Wait until a daemon is healthy; raises WherryError with its last error and its log otherwise."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while (why := await problem(settings, daemon)) is not None:
        if loop.time() > end:
            raise await failure(settings, daemon, f"{daemon} is not well after {seconds:g} s: {why}")
        await asyncio.sleep(POLL_SECONDS)


async def wait_lease(client: Client, settings: Settings, since: datetime, seconds: float) -> None:
    """Wait until the agent has renewed its node's lease since a moment; WherryError where it does not."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        try:
            lease = await client.get(coordination_v1.Lease, settings.node_name, "kube-node-lease")
            if lease.spec.renew_time and parse_time(lease.spec.renew_time) >= since:
                return
            why = f"it was last renewed at {lease.spec.renew_time}"
        except StatusError as error:
            why = error.message
        if loop.time() > end:
            text = f"the lease of node {settings.node_name} is not renewed after {seconds:g} s: {why}"
            raise await failure(settings, "agent", text)
        await asyncio.sleep(POLL_SECONDS)


async def failure(settings: Settings, daemon: str, text: str) -> WherryError:
    """Return an error that ends with the daemon's last error line and the place of its log."""
    lines = await daemons.last_lines(settings, daemon, 50)
    errors = [line for line in lines if _ERROR.search(line)]
    last = (errors or lines)[-1:]
    last_line = f"\n  {daemon} said: {last[0].strip(' |')}" if last else ""
    return WherryError(f"{text}{last_line}\n  see {daemons.where_logged(settings, daemon)}")
