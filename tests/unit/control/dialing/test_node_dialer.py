"""Names that nodes give for their addresses: looked up for a limited time, by threads that nobody else needs."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from control.dialing import node_dialer
from control.dialing.node_dialer import Endpoint, address_of
from kube.errors import StatusError


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Look-ups that return once the event is set."""
    answers = threading.Event()

    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        answers.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 10250))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answers
    answers.set()


async def refused(host: str) -> str:
    with pytest.raises(StatusError) as caught:
        await address_of(Endpoint("n", host, 10250))
    assert caught.value.code == 500
    return caught.value.message


async def test_a_look_up_that_never_returns_ends_after_its_time_and_takes_no_thread_of_others(
    hung: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_dialer, "LOOKUP_SECONDS", 0.01)
    waiting = [refused("node.example") for _ in range(2 * node_dialer.LOOKUPS)]
    assert set(await asyncio.gather(*waiting)) == {"error dialing backend: lookup node.example: i/o timeout"}
    assert await asyncio.to_thread(lambda: "free") == "free"
    hung.set()
    monkeypatch.setattr(node_dialer, "LOOKUP_SECONDS", 10)
    assert await address_of(Endpoint("n", "node.example", 10250)) == "192.0.2.7"


async def test_a_name_that_cannot_be_looked_up_is_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a" * 64 + ".example"
    assert await refused(name) == f"error dialing backend: lookup {name}: no such host"
