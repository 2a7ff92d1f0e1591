"""A gateway's data plane on loopback, with backends that record what they receive and reply as a test wants."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kube.gateway.model import Backend, Filters, Listener, Match, PathMatch, Route, Rule
from kube.serving.limits import ServingLimits
from kube.serving.table_group import TableGroup
from netproxy.gateway.application import GatewayApplication
from netproxy.gateway.backends import PortEndpoints
from netproxy.gateway.errors import Refused
from netproxy.gateway.forwarding import Forwarder
from netproxy.gateway.ingress_tables import IngressTables
from netproxy.gateway.limits import BACKENDS, CLIENTS, BackendLimits
from netproxy.gateway.listening import Listening, Place, Served
from netproxy.gateway.pool import Pool
from netproxy.gateway.routing import compile_listeners
from tests.support.ports import reserve

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Received:
    """A request as a backend has received it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def header(self, name: str) -> str | None:
        found = [value for each, value in self.headers if each == name]
        assert len(found) <= 1, f"{name} is there {len(found)} times"
        return found[0] if found else None


async def read_request(reader: asyncio.StreamReader) -> Received:
    """Read a request with its body; IncompleteReadError at the end of the connection."""
    lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    pairs = [line.partition(": ")[::2] for line in lines[1:]]
    found = Received(lines[0], [(name.lower(), value) for name, value in pairs])
    if found.header("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            found.body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        found.body = await reader.readexactly(int(found.header("content-length") or 0))
    return found


@dataclass
class BackendServer:
    """Replies to each request with `reply`, or has `handle` serve its connections."""

    reply: bytes | Callable[[Received], bytes] = OK
    handle: Handler | None = None
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            if self.handle is not None:
                await self.handle(reader, writer)
            while self.handle is None:
                request = await read_request(reader)
                self.requests.append(request)
                writer.write(self.reply(request) if callable(self.reply) else self.reply)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def backend(
    reply: bytes | Callable[[Received], bytes] = OK, handle: Handler | None = None
) -> AsyncIterator[BackendServer]:
    made = BackendServer(reply, handle)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=1 << 20)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


class Directory:
    """Endpoints of Services by name, in place of those of a cluster."""

    def __init__(self, services: dict[str, Sequence[int]]) -> None:
        self._found = {name: PortEndpoints([("127.0.0.1", each) for each in ports]) for name, ports in services.items()}

    async def find(self, namespace: str, name: str, port: int) -> PortEndpoints:
        found = self._found.get(name)
        if not found:
            raise Refused(503, "no endpoint of the backend is ready")
        return found


@dataclass
class Site:
    """A gateway and the parts that tests look into."""

    port: int
    listening: Listening
    pool: Pool
    place: Place
    contexts: dict[str, ssl.SSLContext]

    async def serve(self, *listeners: Listener) -> None:
        """Serve other listeners from now on."""
        tables = await compile_listeners(listeners, IngressTables(lambda: None))
        self.listening.set({self.place: Served(tables[80], self.contexts)})

    async def raw(self, data: bytes, seconds: float = 5.0) -> bytes:
        """Send bytes and return all that comes until the connection is closed, or nothing came for two seconds."""
        reader, writer = await asyncio.open_connection(self.place.address, self.port)
        try:
            writer.write(data)
            found = b""
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        part = await asyncio.wait_for(reader.read(1 << 16), 2.0 if found else seconds)
                    except (TimeoutError, ConnectionError):
                        return found
                    if not part:
                        return found
                    found += part
        finally:
            writer.close()

    async def get(self, path: str = "/", host: str = "example.com", *headers: str, method: str = "GET") -> bytes:
        """Send one request and return the response."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", ""]
        return await self.raw("\r\n".join(lines).encode("latin-1"))


def rule(*paths: str, service: str = "web", weight: int = 1, filters: Filters | None = None, **options: float) -> Rule:
    """Return a rule for prefixes of paths."""
    matches = tuple(Match(PathMatch("PathPrefix", path)) for path in paths) or (Match(),)
    return Rule(matches, filters or Filters(), (Backend(weight, "apps", service, 80),), **options)


def listener(*rules: Rule, hostname: str = "", hostnames: tuple[str, ...] = (), tls: bool = False) -> Listener:
    """Return a listener with one route."""
    route = Route("HTTPRoute", "apps", "web", "2026-01-01T00:00:00Z", hostnames, rules)
    return Listener(hostname or "any", 80, tls, hostname, (), (route,))


@contextlib.asynccontextmanager
async def gateway(
    *listeners: Listener,
    services: dict[str, Sequence[int]],
    limits: ServingLimits = CLIENTS,
    backends: BackendLimits = BACKENDS,
    contexts: dict[str, ssl.SSLContext] | None = None,
    address: str = "127.0.0.1",
    group: TableGroup | None = None,
) -> AsyncIterator[Site]:
    """Serve listeners, with TLS if there are `contexts`; `services` maps names to ports of endpoints."""
    pool = Pool(backends)
    listening = Listening(GatewayApplication(Forwarder(pool, Directory(services))), limits, group)  # type: ignore[arg-type]
    place = Place(address, reserve()[0], contexts is not None, "apps")
    site = Site(place.port, listening, pool, place, contexts or {})
    await site.serve(*listeners)
    sweeping = asyncio.create_task(pool.run())
    try:
        yield site
    finally:
        sweeping.cancel()
        await listening.close()
        await asyncio.gather(sweeping, return_exceptions=True)


def status(response: bytes) -> int:
    """Return the status of a response."""
    assert response.startswith(b"HTTP/1.1 "), response[:200]
    return int(response[9:12])
