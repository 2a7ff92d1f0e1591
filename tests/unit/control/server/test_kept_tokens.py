"""A connection keeps its last bearer token, and nobody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from control.auth.user import BearerToken
from control.server.edge import LONGEST_KEPT, _token


def connection() -> Any:
    return SimpleNamespace(authorization=b"", token=None)


def token_of(value: bytes | None, protocol: Any) -> str | None:
    return _token({} if value is None else {b"authorization": value}, protocol)


def test_the_same_header_gives_the_same_token() -> None:
    protocol = connection()
    first = token_of(b"Bearer one", protocol)
    assert first == "one"
    assert isinstance(first, BearerToken)
    assert token_of(b"Bearer one", protocol) is first


def test_another_header_gives_its_own_token() -> None:
    protocol = connection()
    assert token_of(b"Bearer one", protocol) == "one"
    assert token_of(b"Bearer two", protocol) == "two"
    assert token_of(b"Bearer one", protocol) == "one"


def test_a_request_without_a_token_has_none_on_any_connection() -> None:
    for value in (None, b"", b"Bearer", b"Bearer  ", b"Basic b25l"):
        protocol = connection()
        assert token_of(value, protocol) is None
        assert token_of(b"Bearer one", protocol) == "one"
        assert token_of(value, protocol) is None
        assert token_of(value, None) is None


def test_a_long_token_is_not_kept() -> None:
    protocol = connection()
    long = "x" * LONGEST_KEPT
    assert token_of(b"Bearer " + long.encode(), protocol) == long
    assert protocol.token is None
