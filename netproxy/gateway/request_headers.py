"""The head of a request to a backend: the client's headers without those of its connection, and what the gateway knows of it.

Headers that tell where a request comes from are the gateway's own: those of a client are dropped, also in the spelling with
underscores that CGI and WSGI do not distinguish.
"""

from __future__ import annotations

from netproxy.gateway.errors import Refused
from netproxy.gateway.header_changes import HOP_BY_HOP, LOOP, Header, connection_names
from netproxy.gateway.limits import HOPS, LOOP_NAMES

LOOP_NAME = b"wherry-gateway"
_FORWARDED = frozenset(
    {
        b"forwarded",
        b"x-forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-forwarded-server",
        b"x-forwarded-scheme",
        b"x-forwarded-ssl",
        b"x-forwarded-prefix",
        b"x-forwarded-by",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-original-forwarded-for",
        b"x-real-ip",
        b"x-client-ip",
        b"x-scheme",
    }
)
_FRAMING = frozenset({b"host", b"content-length", b"expect", b"proxy-authorization", LOOP})
_DROPPED = HOP_BY_HOP | _FORWARDED | _FRAMING


def body_length(headers: list[Header], *, chunks_allowed: bool) -> int | None:
    """Return the length of a request's body, None if it comes in chunks; Refused if that is ambiguous."""
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    lengths = [value for name, value in headers if name == b"content-length"]
    if codings:
        if lengths or not chunks_allowed:
            raise Refused(400, "ambiguous length of the body")
        if [each.lower() for each in codings] != [b"chunked"]:
            raise Refused(501, "unsupported transfer coding")
        return None
    if len(lengths) > 1 or any(not each.isdigit() or len(each) > 18 for each in lengths):
        raise Refused(400, "invalid Content-Length")
    return int(lengths[0]) if lengths else 0


def is_websocket(method: str, headers: list[Header]) -> bool:
    """Return whether a request asks for a WebSocket: the only protocol that connections are upgraded to.

    Without `upgrade` in a `Connection` header, `Upgrade` has no meaning (RFC 9110, 7.8).
    """
    upgrades = [value.lower() for name, value in headers if name == b"upgrade"]
    if method != "GET" or upgrades != [b"websocket"]:
        return False
    options = connection_names([value for name, value in headers if name == b"connection"])
    return options is not None and b"upgrade" in options


def forwarded_headers(headers: list[Header]) -> list[Header]:
    """Return the headers of a request that go to a backend.

    Refused if it has passed too many gateways, or names too many of them, or too many headers in `Connection`.
    """
    connection: list[bytes] = []
    loops: list[bytes] = []
    kept = []
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            connection.append(value)
        elif name == LOOP:
            loops.append(value)
        elif name not in _DROPPED and not (b"_" in name and name.replace(b"_", b"-") in _DROPPED):
            kept.append((name, value))
    if connection:
        named = connection_names(connection)
        if named is None:
            raise Refused(431, "too many names in Connection")
        kept = [header for header in kept if header[0] not in named]
    kept.append((LOOP, _loops(loops) if loops else LOOP_NAME))
    return kept


def _loops(values: list[bytes]) -> bytes:
    """Return the names of gateways in a request's `CDN-Loop` headers, and this one's; Refused if there are too many."""
    if sum(value.count(b",") + 1 for value in values) > LOOP_NAMES:
        raise Refused(431, "too many names in CDN-Loop")
    names = [token.strip(b" \t") for value in values for token in value.split(b",")]
    if sum(name.partition(b";")[0].rstrip(b" \t") == LOOP_NAME for name in names) >= HOPS:
        raise Refused(508, "the request has passed too many gateways")
    return b", ".join([*names, LOOP_NAME])


def origin_headers(client: str, scheme: str, authority: str, port: int) -> list[Header]:
    """Return the headers that tell a backend where a request comes from."""
    return [
        (b"x-forwarded-for", client.encode("ascii")),
        (b"x-forwarded-host", authority.encode("latin-1")),
        (b"x-forwarded-port", b"%d" % port),
        (b"x-forwarded-proto", scheme.encode("ascii")),
    ]


def request_head(
    method: str, target: str, host: str, headers: list[Header], *, length: int | None, upgrade: bool = False
) -> bytes:
    """Return a request's head; `length` bytes of body follow, or chunks (None).

    The head of an upgrade announces its body as any other does: a backend may ignore the upgrade.
    """
    parts = [f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n".encode("latin-1")]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if upgrade:
        parts.append(b"connection: Upgrade\r\nupgrade: websocket\r\n")
    if length is None:
        parts.append(b"transfer-encoding: chunked\r\n")
    elif length or method in ("POST", "PUT", "PATCH"):
        parts.append(b"content-length: %d\r\n" % length)
    parts.append(b"\r\n")
    return b"".join(parts)
