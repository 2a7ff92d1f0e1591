"""Dials a node's agent: selects one of its addresses, checks that it may be dialled, and connects by TLS.

A Node's addresses are written by the node itself. One that is loopback or link-local would make the server talk to itself
or to its host's metadata service (CVE-2022-3294), so such are refused; and the very address that was checked is
dialled, not a name that could resolve to something else the next time. Where the authority of kubelets' certificates signs
others too, among them the API server's own, the certificate must be the node's: the server has all rights at whom it dials.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec
from cryptography import x509

from control.auth.x509 import subject_user
from control.config import ControlConfig
from kube import client_handshakes, errors, tls_settings, urls
from kube.errors import StatusError
from kube.ip_addresses import reached
from kube.json_object import Object
from kube.node_names import NODE_PREFIX, NODES_GROUP
from kube.tls_files import TlsFiles
from kube.urls import host_port

PREFERRED = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
DEFAULT_PORT = 10250
LOOKUP_SECONDS = 10.0
LOOKUPS = 4
"""Names of nodes that are looked up at once. A name server that never answers blocks the thread that asks it, and the node
chooses the name, so these are no threads that others need."""
_lookups = ThreadPoolExecutor(LOOKUPS, "node-lookups")


class Endpoint(msgspec.Struct, frozen=True):
    """Address of a node's agent."""

    node: str
    host: str
    """An IP address, or a name that is resolved and checked when it is dialled."""
    port: int

    @property
    def authority(self) -> str:
        """The host and port as in a URL or a Host header."""
        return host_port(self.host, self.port)


def endpoint_of(node: Object) -> Endpoint:
    """Return the address of a node's agent from its status; raises 500 if there is none."""
    name, status = node["metadata"]["name"], node.get("status") or {}
    by_type: dict[str, str] = {}
    for address in status.get("addresses") or []:
        by_type.setdefault(address.get("type", ""), address.get("address", ""))
    for kind in PREFERRED:
        if by_type.get(kind):
            port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or DEFAULT_PORT
            return Endpoint(name, by_type[kind], port)
    raise errors.internal(f"no preferred addresses found; known addresses: {status.get('addresses') or []}")


def check_address(text: str) -> str:
    """Return an IP address in its plain form if it may be dialled; raises 400 if it may not."""
    try:
        address = reached(text.partition("%")[0])
    except ValueError as error:
        raise errors.bad_request(f"address not allowed: {text} is no IP address") from error
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or str(address) == "255.255.255.255"
    ):
        raise errors.bad_request("address not allowed")
    return str(address)


class Dialer(Protocol):
    """Opens connections to nodes' agents."""

    async def dial(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an agent, which expects HTTP requests. Raise StatusError."""
        ...


class NodeDialer:
    """Opens connections to agents with the server's client certificate."""

    def __init__(self, config: ControlConfig) -> None:
        self._config = config
        self._authority = config.kubelet_ca_file or config.client_ca_file
        self._shown = [f for f in (config.kubelet_client_cert_file, config.kubelet_client_key_file) if f is not None]
        self._tls = TlsFiles(self._make, [self._authority, config.client_ca_file, *self._shown])

        self._signs_others = True
        """The authority of kubelets' certificates is also the one of clients, so names and addresses are not enough."""

    def _make(self) -> ssl.SSLContext:
        own, clients = (set(_certificates(file)) for file in (self._authority, self._config.client_ca_file))
        self._signs_others = bool(own & clients)
        context = tls_settings.verifying(cafile=self._authority)
        if len(self._shown) == 2:
            context.load_cert_chain(self._shown[0], self._shown[1])
        context.set_alpn_protocols(["http/1.1"])
        return context

    async def dial(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an agent; raises 400 for a forbidden address and 500 without an answer, with upstream's messages."""
        address = await address_of(endpoint)
        try:
            async with asyncio.timeout(self._config.kubelet_timeout):
                reader, writer = await client_handshakes.open_connection(
                    address,
                    endpoint.port,
                    self._tls.current(),
                    f"node {endpoint.node}",
                    server_hostname=endpoint.host,
                    limit=256 * 1024,
                )
        except TimeoutError as error:
            raise unreachable(endpoint, f"dial tcp {host_port(address, endpoint.port)}: i/o timeout") from error
        except ssl.SSLCertVerificationError as error:
            raise unreachable(endpoint, f"tls: failed to verify certificate: {error.verify_message}") from error
        except (OSError, ssl.SSLError) as error:
            why = (os.strerror(error.errno) if error.errno else str(error)).lower()
            raise unreachable(endpoint, f"dial tcp {host_port(address, endpoint.port)}: connect: {why}") from error
        if self._signs_others and not _is_nodes(writer, endpoint.node):
            writer.transport.abort()
            why = f"x509: certificate is not of {NODE_PREFIX}{endpoint.node} in {NODES_GROUP}"
            raise unreachable(endpoint, f"tls: failed to verify certificate: {why}")
        return reader, writer


def _certificates(file: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(file.read_bytes())


def _is_nodes(writer: asyncio.StreamWriter, node: str) -> bool:
    """Return whether the peer's certificate, which TLS has verified, is a node's own."""
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    der = tls.getpeercert(binary_form=True)
    try:
        user = subject_user(x509.load_der_x509_certificate(der or b"").subject)
    except ValueError:
        return False
    return user.name == NODE_PREFIX + node and NODES_GROUP in user.groups


async def address_of(endpoint: Endpoint) -> str:
    """Return the IP address of a node, checked; raises 400 for a forbidden one and 500 where a name is unknown."""
    try:
        ipaddress.ip_address(endpoint.host)
    except ValueError:
        look_up = partial(socket.getaddrinfo, endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        try:
            if len(endpoint.host) > urls.LONGEST_HOST:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await asyncio.get_running_loop().run_in_executor(_lookups, look_up)
        except TimeoutError as error:
            raise unreachable(endpoint, f"lookup {endpoint.host}: i/o timeout") from error
        except (OSError, UnicodeError) as error:
            raise unreachable(endpoint, f"lookup {endpoint.host}: no such host") from error
        return check_address(str(found[0][4][0]))
    return check_address(endpoint.host)


def unreachable(endpoint: Endpoint, why: str) -> StatusError:
    """Return the error of an agent that cannot be connected to, in upstream's form."""
    message = f"error dialing backend: {why}"
    return StatusError(500, "", message)
