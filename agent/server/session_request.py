"""Request for exec, attach or portForward: headers, and the streams or ports in its query."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.types import Scope

from agent.server.protocol import TakeOver
from agent.server.session_backends import SessionError
from agent.streaming import port_forward
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Stream

_REQUIRED = "Upgrade request required"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A session request; header names in lower case."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    query: dict[str, list[str]]
    switch: TakeOver | None
    """Takes over the connection; None if the request asks for no other protocol on it."""

    @classmethod
    def of(cls, scope: Scope) -> SessionRequest:
        """Read an ASGI scope."""
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        return cls(
            scope["method"],
            target,
            headers,
            parse_qs(query, keep_blank_values=True),
            scope["extensions"].get("take_over"),
        )

    def upgrade(self) -> str:
        """Return what the client wants to speak, in lower case. Raise SessionError for a request without upgrade."""
        options = ",".join(value for name, value in self.headers if name == "connection").lower().split(",")
        protocol = dict(self.headers).get("upgrade", "").lower()
        wanted = "upgrade" in [each.strip(" \t") for each in options] and protocol in ("websocket", "spdy/3.1")
        if self.switch is None or not wanted:
            raise SessionError(400, _REQUIRED)
        return protocol

    def take_over(self) -> Stream:
        """Take the connection away from HTTP. Raise SessionError for a request without upgrade."""
        if self.switch is None:
            raise SessionError(400, _REQUIRED)
        return self.switch()

    def flag(self, *names: str) -> bool:
        """Return whether one of the query's parameters is set."""
        return any(self.query.get(name, [""])[0].lower() in ("1", "true") for name in names)


def streams_of(request: SessionRequest, *, tty: bool) -> StreamOptions:
    """Read which streams are wanted: the kubelet's own names, and those of the API. Raise SessionError if none is."""
    options = StreamOptions(
        stdin=request.flag("input", "stdin"),
        stdout=request.flag("output", "stdout"),
        stderr=request.flag("error", "stderr") and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise SessionError(400, "you must specify at least 1 of stdin, stdout, stderr")
    return options


def ports_of(request: SessionRequest) -> list[int]:
    """Read the ports to forward. Raise SessionError."""
    try:
        return port_forward.read_ports([*request.query.get("port", []), *request.query.get("ports", [])])
    except ValueError as error:
        raise SessionError(400, str(error)) from error
