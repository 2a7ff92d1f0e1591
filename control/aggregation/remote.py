"""An extension API server behind the aggregation layer: its endpoint, connections and availability.

Requests go to one of its Service's endpoints over TLS, checked against the APIService's CA bundle for the name
NAME.NAMESPACE.svc. X-Remote-* headers contain the user, which the extension believes because the connection shows the
front-proxy client certificate; the client's own credentials never leave this server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from control.aggregation import stored
from control.aggregation.discovery_document import Resource
from control.aggregation.openapi_v2 import Part
from control.auth.user import SYSTEM_MASTERS, UserInfo
from control.dialing.node_dialer import check_address
from control.dialing.service_backend import backend
from control.http import http1
from control.http.exchange import Header
from control.interfaces.lookup import Objects
from kube import ca_bundles, client_handshakes, errors
from kube.json_object import Object
from kube.owners import ACCOUNTS
from kube.tls_files import TlsFiles

DIAL_SECONDS = 5.0
AGGREGATOR = UserInfo("system:kube-aggregator", groups=(SYSTEM_MASTERS,))


class FrontProxy(msgspec.Struct, frozen=True):
    """This server's client certificate for extension servers; without it they cannot authenticate users."""

    cert_file: Path | None
    key_file: Path | None


class Remote(msgspec.Struct):
    """One group version that another server answers."""

    service: Object
    revision: int
    front_proxy: FrontProxy
    available: bool = False
    reason: str = ""
    resources: list[Resource] = msgspec.field(default_factory=list)
    """Resources of its discovery document."""
    digest: str = ""
    """Digest of that document, "" until it is read."""
    openapi: str = ""
    """Path of its OpenAPI v3 document, below its own root."""
    part: Part | None = None
    """Its part of the OpenAPI v2 document."""
    _tls: TlsFiles | None = None

    @property
    def spec(self) -> Object:
        found: Object = self.service["spec"]
        return found

    @property
    def place(self) -> tuple[str, str]:
        return self.spec.get("group", ""), self.spec["version"]

    @classmethod
    def of(cls, service: Object, revision: int, front_proxy: FrontProxy) -> Remote:
        """Return the group version of a stored APIService, as available as its condition reports until it is checked.

        A restarted server, or another one, has recorded it (upstream: serviceAvailable of the proxy handler).
        """
        condition = stored.available(service)
        reason = condition.get("reason") or ""
        return cls(service, revision, front_proxy, available=condition.get("status") == "True", reason=reason)

    def inherit(self, before: Remote) -> None:
        """Take over what was found out of the same server before its APIService changed, until it is checked again."""
        self.available, self.reason = before.available, before.reason
        self.resources, self.digest = before.resources, before.digest
        self.openapi, self.part = before.openapi, before.part

    @property
    def owner(self) -> str:
        """The owner of work on its answers: those who may answer for a Service are one for its namespace."""
        return f"{ACCOUNTS}{self.spec['service']['namespace']}:extensions"

    @property
    def host(self) -> str:
        where = self.spec["service"]
        return f"{where['name']}.{where['namespace']}.svc"

    async def context(self) -> ssl.SSLContext:
        """Return the TLS settings for a new connection; raises ValueError and OSError.

        They are made in a thread, once for each state of the APIService and of the files.
        """
        if self._tls is None:
            shown = [f for f in (self.front_proxy.cert_file, self.front_proxy.key_file) if f is not None]
            self._tls = TlsFiles(self._make, shown)
        if self._tls.is_current():
            return self._tls.current()
        made: list[ssl.SSLContext] = []
        current = self._tls.current
        await client_handshakes.compute(lambda: made.append(current()), self.spec["service"]["namespace"])
        return made[0]

    def _make(self) -> ssl.SSLContext:
        context = ca_bundles.verifying(self.spec.get("caBundle") or "")
        if self.spec.get("insecureSkipTLSVerify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.front_proxy.cert_file is not None and self.front_proxy.key_file is not None:
            context.load_cert_chain(self.front_proxy.cert_file, self.front_proxy.key_file)
        return context

    async def dial(self, lookup: Objects) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the Service's endpoints; raises 503."""
        where = self.spec["service"]
        address, port = await backend(lookup, where["namespace"], where["name"], str(where.get("port") or 443))
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                return await client_handshakes.open_connection(
                    check_address(address),
                    port,
                    await self.context(),
                    where["namespace"],
                    server_hostname=self.host,
                    limit=256 * 1024,
                )
        except (TimeoutError, OSError, ValueError) as error:
            why = str(error) or "context deadline exceeded"
            raise errors.unavailable(f"error trying to reach service: dial tcp {address}:{port}: {why}") from error

    async def fetch(self, lookup: Objects, path: str, limit: int) -> tuple[int, bytes]:
        """Return status and body of a GET that the aggregator itself makes; raises 502 for more than `limit` bytes."""
        headers: list[Header] = [(b"accept", b"application/json"), *identity(AGGREGATOR)]
        reader, writer = await self.dial(lookup)
        try:
            writer.write(http1.request_head("GET", path, self.host, [headers[0]], upgrade=False, added=headers[1:]))
            async with asyncio.timeout(DIAL_SECONDS):
                head = await http1.read_head(reader)
                body = await http1.whole(head, reader, writer, limit + 1)
        finally:
            writer.close()
        if len(body) > limit:
            raise errors.StatusError(502, "", f"{path} is longer than {limit} bytes")
        return head.status, body


def identity(user: UserInfo) -> list[Header]:
    """Return the headers that name the user for an extension server (request header authentication)."""
    found: list[Header] = [(b"X-Remote-User", _safe(user.name))]
    if user.uid:
        found.append((b"X-Remote-Uid", _safe(user.uid)))
    found += [(b"X-Remote-Group", _safe(group)) for group in user.groups]
    for key, values in user.extra.items():
        name = b"X-Remote-Extra-" + quote(key.lower(), safe="!$&'()*+-.^_`|~").encode()
        found += [(name, _safe(value)) for value in values]
    return found


def _safe(text: str) -> bytes:
    """Return a header's value; raises 400 for a text that the extension would read as another one.

    A line break ends a header, and blanks around a value do not belong to it (RFC 9110, 5.5).
    """
    if any(c in "\r\n\0" for c in text) or text != text.strip():
        raise errors.bad_request(
            "the user's name, group, UID or extra value has a line break or blanks at an end and cannot be sent to an "
            "extension server"
        )
    return text.encode("utf-8")


def versions_in_order(remotes: Iterable[Remote]) -> list[Remote]:
    """Return remotes as clients are to see them: groups, then versions, by their priority."""
    return sorted(
        remotes,
        key=lambda r: (
            -int(r.spec.get("groupPriorityMinimum", 0)),
            r.place[0],
            -int(r.spec.get("versionPriority", 0)),
            r.place[1],
        ),
    )
