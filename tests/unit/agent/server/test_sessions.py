"""Sessions whose client leaves before they begin."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.server.session_backends import SessionError
from agent.server.session_request import SessionRequest
from agent.server.sessions import Sessions
from agent.streaming.upgrade import Stream
from kube.clock import SYSTEM


class Runtime:
    """A streaming server to which a connection is opened."""

    def __init__(self) -> None:
        self.closed = False
        self.transport = self

    async def port_forward(self, view: Any, ports: list[int]) -> Any:
        return self.dial

    async def dial(self, method: str, headers: Any) -> Any:
        return Stream(asyncio.StreamReader(), cast(Any, self)), SimpleNamespace(raw=b"")

    def close(self) -> None:
        self.closed = True

    async def wait_closed(self) -> None:
        pass


@pytest.mark.parametrize("protocol", ["SPDY/3.1", "websocket"])
async def test_the_connection_to_the_runtime_is_closed(protocol: str) -> None:
    def take_over() -> Stream:
        raise ConnectionResetError("the client has closed the connection")

    view = SimpleNamespace(sandbox=SimpleNamespace(ready=True), pod=SimpleNamespace(metadata=SimpleNamespace(uid="u")))
    runtime = Runtime()
    sessions = Sessions(cast(Any, SimpleNamespace(view=lambda namespace, pod: view)), cast(Any, runtime), SYSTEM)
    headers = [("connection", "upgrade"), ("upgrade", protocol), ("sec-websocket-protocol", "v4.channel.k8s.io")]
    request = SessionRequest("POST", "/", headers, {"port": ["80"]}, take_over)
    with pytest.raises(ConnectionResetError):
        await sessions.port_forward(request, "default", "pod", "u")
    assert runtime.closed


@pytest.mark.parametrize(
    "headers",
    [
        [("upgrade", "websocket")],
        [("connection", "xupgrade"), ("upgrade", "websocket")],
        [("connection", "up grade"), ("upgrade", "websocket")],
        [("connection", "upgrade"), ("upgrade", "h2c")],
    ],
)
def test_a_request_without_upgrade_as_a_connection_option_is_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(SessionError, match="Upgrade request required"):
        SessionRequest("POST", "/", headers, {}, cast(Any, object())).upgrade()


def test_the_connection_options_of_all_headers_count_and_the_parser_has_to_agree() -> None:
    headers = [("connection", "keep-alive, Upgrade"), ("connection", "x"), ("upgrade", "WebSocket")]
    assert SessionRequest("POST", "/", headers, {}, cast(Any, object())).upgrade() == "websocket"
    request = SessionRequest("POST", "/", headers, {}, None)
    for call in (request.upgrade, request.take_over):
        with pytest.raises(SessionError, match="Upgrade request required"):
            call()
