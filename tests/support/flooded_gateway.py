"""A network role with its gateway's process, while another process of the same user keeps many descriptors in messages.

Run as an account of its own: the kernel counts descriptors in messages by user, so others would be hit. It writes what it has
found as JSON. With `gateway` and ports it is the gateway's side: it opens one more port with each SIGUSR1.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvloop

from kube.api import discovery_v1, meta_v1
from kube.clock import SYSTEM
from kube.gateway import names
from kube.informer import Change
from netproxy.gateway import privileges
from netproxy.gateway.held_sockets import HeldSockets
from netproxy.gateway_process import GatewayProcess
from netproxy.gateway_sockets import GatewaySockets

HOST = "127.0.0.1"
LIMIT = 256
"""Open files of each process, and so descriptors in messages of the user."""
_FLOOD = r"""
import os, socket, sys
file, pairs = os.open("/dev/null", os.O_RDONLY), [socket.socketpair()]
pairs[0][0].setblocking(False)
try:
    while True:
        try:
            socket.send_fds(pairs[-1][0], [b"x"], [file] * 100)
        except BlockingIOError:
            pairs.append(socket.socketpair()); pairs[-1][0].setblocking(False)
except OSError as error:
    print(error.errno, flush=True)
sys.stdin.read()
"""


class Gateway:
    """The gateway's side: opens ports, and accepts and closes connections to them."""

    def __init__(self, ports: list[int]) -> None:
        self._ports, self._used = ports, set[tuple[str, int]]()
        self._sockets = HeldSockets(socket.socket(fileno=sys.stdin.fileno()), SYSTEM)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._sockets.wait_taken()
        loop.add_signal_handler(signal.SIGUSR1, self._open_next)
        for _ in range(2 if self._sockets.has_unused else 1):
            self._open_next()
        print(".", flush=True)
        await self._sockets.parent_ended.wait()

    def _open_next(self) -> None:
        address = HOST, self._ports.pop(0)
        failed = []
        try:
            listening = self._sockets.open(*address)
        except OSError:
            failed.append(address)
        else:
            self._used.add(address)
            asyncio.get_running_loop().add_reader(listening, lambda: listening.accept()[0].close())
        self._sockets.settle(self._used, failed)


async def serve(ports: list[int]) -> None:
    await Gateway(ports).run()


class Slices:
    """Stands for the informer of slices: there is a gateway."""

    def subscribe(self, handler: Callable[[Change[Any]], None]) -> None:
        metadata = meta_v1.ObjectMeta(name="gateway-1-ipv4", namespace=names.NAMESPACE, labels={names.UID: "1"})
        handler(Change("ADDED", None, discovery_v1.EndpointSlice(metadata=metadata)))


def refused() -> bool:
    """Return whether the kernel copies no descriptors of this user's messages."""
    one, other = socket.socketpair()
    with one, other:
        try:
            socket.send_fds(one, [b"x"], [one.fileno()])
        except OSError as error:
            return error.errno == errno.ETOOMANYREFS
    return False


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in (one, other)]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def answer(port: int) -> int:
    """Return the length of the answer to a connection, which is closed as soon as it is accepted."""
    reader, writer = await asyncio.open_connection(HOST, port)
    async with asyncio.timeout(20):
        length = len(await reader.read())
    writer.close()
    return length


async def network_role() -> dict[str, Any]:
    ports, reports = free_ports(), list[Any]()
    sockets = GatewaySockets(reports.extend, reports.extend)
    argv = [sys.executable, "-P", "-m", __spec__.name, "gateway", *map(str, ports)]
    gateway = GatewayProcess(Slices(), argv, sockets, SYSTEM)  # type: ignore[arg-type]
    running = asyncio.create_task(gateway.run())
    pipe = asyncio.subprocess.PIPE
    flood = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", _FLOOD, stdin=pipe, stdout=pipe)
    assert flood.stdin is not None
    assert flood.stdout is not None
    try:
        ended_by = int(await flood.stdout.readline())
        await until(lambda: sockets.addresses == {(HOST, ports[0])})
        first = gateway.process
        assert first is not None
        first.send_signal(signal.SIGUSR1)
        await until(lambda: len(sockets.addresses) == 2)
        first.kill()
        await until(lambda: gateway.process not in (None, first))
        return {
            "flood": errno.errorcode[ended_by],
            "answers": [await answer(each) for each in ports],
            "refused": refused(),
            "kept": sockets.addresses == {(HOST, each) for each in ports},
            "reports": reports,
        }
    finally:
        flood.stdin.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await flood.wait()
        sockets.close()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    if sys.argv[1:2] == ["gateway"]:
        privileges.drop()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve([int(each) for each in sys.argv[2:]]))
    else:
        print(json.dumps(asyncio.run(network_role())))


if __name__ == "__main__":
    assert os.getuid(), "an account of its own"
    main()
