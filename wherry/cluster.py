"""Queries the running cluster through its API with the administrator's kubeconfig."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import urllib.parse
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from kube import exec_credentials, kubeconfig, kubeconfig_files, object_conditions, servers
from kube.api import core_v1
from kube.client import Client
from kube.errors import StatusError
from kube.retry_after import RetryAfterTransport
from kube.servers import Servers
from kube.transport import HttpsTransport
from wherry import admin_kubeconfig
from wherry.daemons import where_logged
from wherry.errors import WherryError
from wherry.settings import Settings

POLL_SECONDS = 0.05
NO_NETWORK = "container runtime network not ready: NetworkReady=false"
"""The beginning of the message of such a node's Ready condition (agent/node/runtime_status.py, as upstream)."""


@contextlib.asynccontextmanager
async def admin(settings: Settings) -> AsyncIterator[Client]:
    """Lend a client with all rights."""
    path = settings.layout.admin_kubeconfig
    admin_kubeconfig.require_no_folder(path)
    async with _as(path, None, admin_kubeconfig.FIX) as client:
        yield client


@contextlib.asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Client]:
    """Lend a client with the most rights that this machine has: the administrator's, or a worker's as its node.

    A worker's uses another server, if its agent knows one, when the one it joined by is away.
    """
    if not settings.is_worker:
        async with admin(settings) as client:
            yield client
        return
    path = settings.layout.agent_kubeconfig
    async with _as(path, servers.beside(path), "`wherry reset` and join again") as client:
        yield client


@contextlib.asynccontextmanager
async def as_user(paths: Sequence[Path], context: str = "") -> AsyncIterator[tuple[Client, str]]:
    """Lend a client with the rights of a context of kubeconfigs, and the context's namespace (default: "default").

    The files are merged as kubectl does; a credential plugin is run.
    """
    try:
        chosen = kubeconfig_files.merged(paths, context)
        access = chosen.access
        if chosen.plugin is not None:
            found = await exec_credentials.credentials(chosen.plugin)
            access = dataclasses.replace(
                access,
                token=found.token,
                certificate=found.client_certificate_data.encode() or None,
                key=found.client_key_data.encode() or None,
            )
        _check(access, paths[0])
    except kubeconfig.KubeconfigError as error:
        raise WherryError(str(error)) from error
    async with _with(access, None) as client:
        yield client, access.namespace or "default"


def _check(access: kubeconfig.Access, path: Path) -> None:
    """Raise WherryError for an address, a token or certificates with which no request can be sent."""
    try:
        url = urllib.parse.urlsplit(access.server)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable:
        raise WherryError(
            f"{path}: the server {access.server!r} is no address of an API server: write https://HOST:PORT"
        )
    if not access.token.isprintable():
        raise WherryError(f"{path}: the token of the user has line breaks or other characters that no request may have")
    try:
        access.ssl_context()
    except (OSError, ValueError) as error:  # of ssl too
        files = ", ".join(filter(None, (access.ca_file, access.certificate_file, access.key_file)))
        where = f" ({files})" if files else ""
        raise WherryError(f"{path}: its certificates or its key{where} cannot be used: {error}") from error


@contextlib.asynccontextmanager
async def _as(path: Path, remembered: Path | None, fix: str) -> AsyncIterator[Client]:
    try:
        access = kubeconfig.load(path)
    except kubeconfig.KubeconfigError as error:
        raise WherryError(f"{error}: {fix}") from error
    async with _with(access, remembered) as client:
        yield client


@contextlib.asynccontextmanager
async def _with(access: kubeconfig.Access, remembered: Path | None) -> AsyncIterator[Client]:
    client = Client(RetryAfterTransport(HttpsTransport(access, "wherry", Servers(access.server, remembered))))
    try:
        yield client
    finally:
        await client.close()


async def wait_ready(client: Client, settings: Settings, seconds: float) -> None:
    """Wait until the API server reports that it is ready."""
    why = "it does not answer"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await client.call("GET", "/readyz")
            return
        except StatusError as error:
            why = error.message
        await asyncio.sleep(POLL_SECONDS)
    raise WherryError(
        f"the API server is not ready after {seconds:g} s: {why}; see {where_logged(settings, 'control')}"
    )


async def wait_node(client: Client, settings: Settings, seconds: float) -> core_v1.Node:
    """Wait until this machine's node is Ready and may be given pods, or lacks nothing but another program's pod network."""
    why = "it has not registered"
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(StatusError):
            node = await client.get(core_v1.Node, settings.node_name)
            ready = ready_condition(node)
            tainted = [t.key for t in node.spec.taints if t.effect in ("NoSchedule", "NoExecute")]
            if ready is not None and ready.status == "True" and "node.kubernetes.io/not-ready" not in tainted:
                return node
            if ready is not None and not settings.own_pod_network and lacks_network(ready):
                return node
            why = ready.message or why if ready is not None else why
        await asyncio.sleep(POLL_SECONDS)
    raise WherryError(
        f"node {settings.node_name} is not Ready after {seconds:g} s: {why}; see {where_logged(settings, 'agent')}"
    )


def lacks_network(ready: core_v1.NodeCondition) -> bool:
    """Return whether a node is not Ready only because its container runtime has no pod network."""
    message = ready.message or ""
    return message.startswith(NO_NETWORK) and "container runtime not ready" not in message


def ready_condition(node: core_v1.Node) -> core_v1.NodeCondition | None:
    return object_conditions.find(node.status.conditions, "Ready")
