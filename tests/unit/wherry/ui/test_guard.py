"""Requests that reach the page, and the headers of all answers."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message

from wherry.ui.guard import Guard
from wherry.ui.origin import Origin

HOST = "127.1.2.3:8000"


async def sent(*headers: tuple[str, str], method: str = "GET", path: str = "/about") -> tuple[int, dict[str, str]]:
    """Return the status and the headers of the answer to a request."""
    found: list[Message] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        found.append(message)

    guard = Guard(PlainTextResponse("the page"), Origin("127.1.2.3", 8000, []))
    raw = [(name.encode(), value.encode()) for name, value in headers]
    await guard({"type": "http", "method": method, "path": path, "headers": raw}, receive, send)
    return found[0]["status"], {name.decode(): value.decode() for name, value in found[0]["headers"]}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("host", HOST)], 200),
        ([("host", HOST.upper())], 200),
        ([("host", HOST), ("host", HOST)], 403),
        ([("host", HOST), ("host", "evil.example")], 403),
        ([("host", "127.1.2.3")], 403),
        ([], 403),
        ([("host", HOST), ("origin", f"http://{HOST}")], 200),
        ([("host", HOST), ("origin", f"http://{HOST}"), ("origin", "null")], 403),
        ([("host", HOST), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], 403),
    ],
)
async def test_a_request_has_one_host_and_at_most_one_origin(headers: list[tuple[str, str]], status: int) -> None:
    assert (await sent(*headers))[0] == status


@pytest.mark.parametrize("host", [HOST, "evil.example"])
async def test_all_answers_keep_others_from_reading_framing_and_opening_the_page(host: str) -> None:
    _, headers = await sent(("host", host))
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY" and "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["permissions-policy"].startswith("camera=()")
