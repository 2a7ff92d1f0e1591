"""Request for exec, attach or portForward: headers, and the streams or ports in its query."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.types import Scope

from agent.server.protocol import TakeOver
from agent.server.session_backends import SessionError
from agent.streaming import port_forward
from agent.streaming.remote_command import StreamOptions


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """A session request; header names in lower case."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    query: dict[str, list[str]]
    take_over: TakeOver

    @classmethod
    def of(cls, scope: Scope) -> SessionRequest:
        """Read an ASGI scope."""
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        return cls(
            scope["method"], target, headers, parse_qs(query, keep_blank_values=True), scope["extensions"]["take_over"]
        )

    def upgrade(self) -> str:
        """Return what the client wants to speak, in lower case. Raise SessionError for a request without upgrade."""
        wanted = {name: value.lower() for name, value in self.headers if name in ("connection", "upgrade")}
        protocol = wanted.get("upgrade", "")
        if "upgrade" not in wanted.get("connection", "") or protocol not in ("websocket", "spdy/3.1"):
            raise SessionError(400, "Upgrade request required")
        return protocol

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
