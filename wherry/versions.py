"""`wherry version`: versions of the command, the API server and the container runtime."""

from __future__ import annotations

import asyncio
import platform

import msgspec

from kube.build import GIT_VERSION, build
from kube.errors import StatusError
from kube.process import CommandError, run
from wherry import VERSION, cluster, containerd
from wherry.errors import WherryError
from wherry.settings import Settings

UNKNOWN = "not available"
UNKNOWN_COMMIT = "unknown"
"""In an installation without git."""


def line() -> str:
    """Return the answer to `wherry --version`."""
    return f"wherry {VERSION} (Kubernetes {GIT_VERSION})"


async def collect(settings: Settings, server_seconds: float | None = None) -> dict[str, str]:
    """Return the versions by component; what cannot be asked, the server within a limit, has the reason in its place."""
    return {**_own(), "server": await _server(settings, server_seconds), "runtime": await _runtime(settings)}


def without_cluster(why: str) -> dict[str, str]:
    """Return the versions where no cluster can be asked."""
    return {**_own(), "server": f"{UNKNOWN}: {why}", "runtime": UNKNOWN}


def _own() -> dict[str, str]:
    return {
        "wherry": VERSION,
        "commit": UNKNOWN_COMMIT if build().tree_state == "archive" else build().commit,
        "kubernetes": GIT_VERSION,
        "python": platform.python_version(),
    }


async def _server(settings: Settings, seconds: float | None) -> str:
    try:
        async with asyncio.timeout(seconds), cluster.connect(settings) as api:
            answer = msgspec.json.decode(await api.call("GET", "/version"))
            return str(answer["gitVersion"])
    except TimeoutError as error:
        return f"{UNKNOWN}: {str(error) or f'it did not answer within {seconds:g} s'}"
    except (StatusError, WherryError, OSError, ValueError, KeyError, TypeError) as error:
        return f"{UNKNOWN}: {error}"


async def _runtime(settings: Settings) -> str:
    try:
        containerd.require_running(settings)
        version = containerd.server_version((await run([*containerd.ctr(settings), "version"])).stdout)
        return f"containerd {version}" if version else f"{UNKNOWN}: `ctr version` shows no version of the server"
    except (WherryError, CommandError, OSError) as error:
        return f"{UNKNOWN}: {error}"
