"""nodes/proxy, pods/proxy and services/proxy: a request passed on to a node's agent, a container, a Service's endpoint.

The name in the URL may carry scheme and port ("https:web:8443"). A Service's port is looked up by name or number, and one
of its ready pods is taken at random. Loopback, link-local and multicast addresses are never dialled (`dialing.node_dialer`).
"""

from __future__ import annotations

import asyncio

from control.dialing.node_dialer import Dialer, address_of, check_address, endpoint_of
from control.dialing.service_backend import backend
from control.http import rewrite_links
from control.http.exchange import Answer, Request, wants_upgrade
from control.http.proxy_request import proxy_request
from control.server.lookup import StoredObjects
from control.server.subresources import kubelet
from control.server.subresources.connect_admission import admit
from control.server.verbs import Verbs
from kube import client_handshakes, errors, tls_settings
from kube.resources import Resource
from kube.urls import host_port

LIMIT = 256 * 1024
"""Bytes of an answer that wait to be passed on."""


def split_name(text: str) -> tuple[str, str, str]:
    """Return (scheme, name, port) of "name", "name:port", "scheme:name:port"; raises 400 for anything else."""
    parts = text.split(":")
    if len(parts) == 1:
        return "http", parts[0], ""
    if len(parts) == 2:
        return "http", parts[0], parts[1]
    if len(parts) == 3 and parts[0] in ("http", "https", ""):
        return parts[0] or "http", parts[1], parts[2]
    raise errors.bad_request(f'invalid request name "{text}"')


async def pod(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Pass a request on to a pod."""
    scheme, name, port = split_name(request.info.name)
    found = (await server.registry.get(resource, request.info.namespace, name)).obj
    await admit(server, request, resource)
    address = (found.get("status") or {}).get("podIP")
    if not address:
        raise errors.bad_request("address not allowed")
    if not port:
        ports = [p["containerPort"] for c in found["spec"]["containers"] for p in c.get("ports") or []]
        port = str(ports[0] if ports else 443 if scheme == "https" else 80)
    return await _pass_on(server, request, scheme, address, _number(port))


async def node(server: Verbs, dialer: Dialer, request: Request, resource: Resource) -> Answer:
    """Pass a request on to a node: to its agent, or where another port is named, to whatever listens there.

    The agent is spoken to with the server's own certificate, whatever scheme is named (node's ResourceLocation upstream).
    """
    if wants_upgrade(request):
        await server.require(request, "create")
    scheme, name, port = split_name(request.info.name)
    found = (await server.registry.get(resource, "", name)).obj
    await admit(server, request, resource)
    endpoint = endpoint_of(found)
    if not port or port == str(endpoint.port):
        return await kubelet.proxy(server, dialer, request, endpoint)
    return await _pass_on(server, request, scheme, await address_of(endpoint), _number(port))


async def service(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Pass a request on to one of a Service's pods; 503 where none is ready."""
    scheme, name, wanted = split_name(request.info.name)
    await server.registry.get(resource, request.info.namespace, name)
    await admit(server, request, resource)
    address, port = await backend(StoredObjects(server.registry), request.info.namespace, name, wanted, only_pods=True)
    return await _pass_on(server, request, scheme, address, port)


def _number(port: str) -> int:
    """Read a port that a URL names; raises 400 for what is none."""
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
    if not 1 <= number <= 65535:
        raise errors.bad_request(f'invalid port "{port}"')
    return number


async def _pass_on(server: Verbs, request: Request, scheme: str, address: str, port: int) -> Answer:
    moved = None if wants_upgrade(request) else rewrite_links.to_the_root(request)
    if moved is not None:
        return moved
    path = kubelet.path_behind(request)
    if request.query_string:
        path += "?" + request.query_string.decode("latin-1")
    owner = request.info.namespace or f"node {request.info.name}"
    host = host_port(address, port)
    return await proxy_request(request, lambda: _dial(scheme, address, port, owner), path, host, rewrites_links=True)


async def _dial(scheme: str, address: str, port: int, owner: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # A container's certificate is its own affair: there is no authority to check it against.
    try:
        async with asyncio.timeout(10):
            if scheme != "https":
                return await asyncio.open_connection(check_address(address), port, limit=LIMIT)
            context = tls_settings.unchecked()
            return await client_handshakes.open_connection(check_address(address), port, context, owner, limit=LIMIT)
    except (TimeoutError, OSError) as error:
        raise errors.unavailable(f"error trying to reach service: dial tcp {address}:{port}: {error}") from error
