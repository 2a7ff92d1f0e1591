"""Generated pipelines of requests: each request reaches the backend once, with its own body, and is answered to its own client.

The same examples each time; WHERRY_FUZZ_EXAMPLES=5000 draws as many others, by the seed of `--hypothesis-seed`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kube.serving import protocol as client_protocol
from netproxy.gateway import protocol as gateway_protocol
from tests.support.gateway_site import gateway, listener, rule
from tests.support.pipelines import FORWARDED, INNER, LAST, Message, StrictBackend, answers, exchange

EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "0"))
METHODS = [*["GET"] * 12, "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT"]
PATHS = ["/web", "/web", "/web", "/socket", "/none", "/absent"]
UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
PROTOCOLS = [(("Upgrade", each),) for each in ("websocket", "WebSocket", "h2c")]
OPTIONS = ["upgrade", "keep-alive", "xupgrade", "x, Upgrade ,content-length", "transfer-encoding", "close"]
HEADERS: list[tuple[tuple[str, str], ...]] = [
    *[(), (), UPGRADE, UPGRADE, *PROTOCOLS, *PROTOCOLS],
    *[(("Connection", each),) for each in OPTIONS],
    *[(("Proxy-Connection", "upgrade"),), (("Expect", "100-continue"),), (("Content_Length", "3"),), (("X(A)", "b"),)],
]
BODIES = [None, None, INNER, INNER[:-2], b"", b"0\r\n\r\n" + INNER]


@dataclass
class Client:
    """Requests of one client, sent in pieces that end at `cuts`."""

    messages: list[Message]
    cuts: list[float]

    def pieces(self, number: int) -> list[bytes]:
        data = b"".join(message.written(f"{number}.{place}") for place, message in enumerate(self.messages))
        assert data.endswith(LAST)
        ends = [0, *sorted(int(cut * len(data)) for cut in self.cuts), len(data)]
        return [data[start:end] for start, end in itertools.pairwise(ends) if start < end]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    headers = [("Host", "a")] if draw(st.integers(0, 60)) < 60 else []
    for _ in range(draw(st.integers(0, 2))):
        headers += draw(st.sampled_from(HEADERS))
    found = Message(
        method=draw(st.sampled_from(METHODS)),
        path=draw(st.sampled_from(PATHS)),
        version="1.0" if draw(st.integers(0, 30)) == 30 else "1.1",
        headers=tuple(headers),
    )
    if found.ends_http and draw(st.integers(0, 9)) < 9:
        return found  # with a body it would be malformed
    return replace(found, body=draw(st.sampled_from(BODIES)), chunked=draw(st.booleans()))


FINAL = Message(headers=(("Host", "a"), ("Connection", "close"), ("x-last", "yes")))
clients = st.builds(
    lambda drawn, cuts: Client([*drawn, FINAL], cuts),
    st.lists(messages(), min_size=1, max_size=6),
    st.just([]) | st.lists(st.floats(0, 1, exclude_max=True), max_size=3),
)


def certain_answers(client: Client, served: list[Message]) -> int:
    """Return how many of the requests have to be answered."""
    parsed = next((place for place, each in enumerate(client.messages) if each.ends_http), len(client.messages))
    if any(each.malformed for each in client.messages[: parsed + 1]):
        return 0  # it is parsed before the first response
    if not client.cuts:
        return len(served)
    # The connection may be closed before all has come, or with what came unread.
    return next((place for place, each in enumerate(served) if each.may_be_last), len(served))


def check(client: Client, number: int, received: bytes, backend: StrictBackend) -> None:
    """Compare what a client and the backend have received with what the messages demand."""
    sent = client.messages
    end = next((place for place, each in enumerate(sent) if each.malformed or each.is_last), len(sent))
    served = sent[: end + 1] if not sent[end].malformed else sent[:end]
    found = answers(received, [each.method for each in served] + ["GET"])
    if len(found) > len(served):  # what is malformed is answered if nothing else is
        assert sent[end].malformed and found[-1].status == 400, found
        found.pop()
    for place, (answer, message) in enumerate(zip(found, served, strict=False)):
        assert answer.status == message.status, (place, answer, message)
        path = f"{message.path}/{number}.{place}"
        if answer.status == 101:
            rest = b"".join(client.pieces(number)).partition(message.written(f"{number}.{place}"))[2]
            assert answer.body == rest, (place, answer)
        else:
            assert answer.path == (path if message.forwarded else ""), (place, answer, message)
            assert message.method == "HEAD" or not message.forwarded or answer.body == path.encode(), answer

    expected = [(place, each) for place, each in enumerate(served) if each.forwarded]
    seen = backend.seen.pop(number, [])
    for (place, request), (at, message) in zip(seen, expected, strict=False):
        assert place == at and request.method == message.method, (seen, expected)
        assert request.path == f"{message.path}/{number}.{place}" and request.body == (message.body or b""), request
    certain = certain_answers(client, served)
    assert len(found) >= certain, (found, served)
    assert len(expected) >= len(seen) >= len([place for place, _ in expected if place < certain]), (seen, expected)


async def run(drawn: list[Client]) -> None:
    backend = StrictBackend()
    server = await asyncio.start_server(backend.handle, "127.0.0.1", 0)
    services = {"web": [server.sockets[0].getsockname()[1]]}
    rules = rule(*FORWARDED), rule("/absent", service="absent")
    later = Client([FINAL], [])
    async with server, gateway(listener(*rules), services=services) as site:
        sent = [exchange(site.place.address, site.port, each.pieces(number)) for number, each in enumerate(drawn)]
        received = await asyncio.gather(*sent)
        received.append(await exchange(site.place.address, site.port, later.pieces(len(drawn))))
    assert not backend.faults
    for number, each in enumerate([*drawn, later]):
        check(each, number, received[number], backend)
    assert not backend.seen


@settings(
    max_examples=EXAMPLES or 80,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=tuple(Phase) if EXAMPLES else (Phase.generate,),
)
@given(st.lists(clients, min_size=6, max_size=12))
def test_each_request_is_forwarded_once_and_answered_to_its_own_client(drawn: list[Client]) -> None:
    with pytest.MonkeyPatch.context() as changed:
        for module in (client_protocol, gateway_protocol):
            changed.setattr(module, "REFUSED", 0.05)
        asyncio.run(run(drawn))
