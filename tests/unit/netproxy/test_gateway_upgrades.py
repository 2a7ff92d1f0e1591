"""Requests that are upgrades, and the head that a backend gets of one."""

from __future__ import annotations

import pytest

from netproxy.gateway.request_headers import is_websocket, request_head

UPGRADE = (b"upgrade", b"WebSocket")


@pytest.mark.parametrize("option", [b"upgrade", b"Upgrade", b"keep-alive, Upgrade", b"x,\tupgrade "])
def test_a_websocket_is_asked_for_with_a_connection_option(option: bytes) -> None:
    assert is_websocket("GET", [(b"connection", b"x"), UPGRADE, (b"connection", option)])


@pytest.mark.parametrize(
    "option", [b"", b"xupgrade", b"upgradex", b"up grade", b"upgrade;q=1", b"x," * 200 + b"upgrade"]
)
def test_it_is_not_with_anything_else(option: bytes) -> None:
    assert not is_websocket("GET", [(b"connection", option), UPGRADE])
    assert not is_websocket("GET", [(b"proxy-connection", b"upgrade"), UPGRADE])
    assert not is_websocket("POST", [(b"connection", b"upgrade"), UPGRADE])
    assert not is_websocket("GET", [(b"connection", b"upgrade"), UPGRADE, (b"upgrade", b"h2c")])


@pytest.mark.parametrize("upgrade", [True, False])
def test_a_body_is_always_announced(upgrade: bool) -> None:
    assert b"\r\ncontent-length: 7\r\n" in request_head("GET", "/", "a", [], length=7, upgrade=upgrade)
    assert b"\r\ntransfer-encoding: chunked\r\n" in request_head("GET", "/", "a", [], length=None, upgrade=upgrade)
    bare = request_head("GET", "/", "a", [], length=0, upgrade=upgrade)
    assert b"content-length" not in bare and b"transfer-encoding" not in bare
