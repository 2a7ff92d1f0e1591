"""The sockets of a gateway pass between its process and the network role, and no port becomes free in between."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from netproxy import socket_channel
from netproxy.gateway import held_sockets
from netproxy.gateway.held_sockets import HeldSockets
from netproxy.gateway_sockets import ALL, LISTENING, PASS, PASSED, GatewaySockets, Inheritance
from netproxy.socket_channel import MOST, Address, Message, SocketChannel, pair
from tests.support.clock import FakeClock

HOST = "127.0.0.1"


class Role:
    """The network role's side, and the processes that it has had."""

    def __init__(self) -> None:
        self.changes: list[frozenset[Address]] = []
        self.failed: list[Address] = []
        self.uncopied: list[Address] = []
        self.sockets = GatewaySockets(self.failed.extend, self.uncopied.extend)
        self.sockets.subscribe(self.changes.append)
        self.clock = FakeClock()
        self._processes: list[HeldSockets] = []

    async def start(self, *, copies: bool = True) -> HeldSockets:
        """Start the gateway's side, in the place of the one before; without `copies` the kernel refuses to copy its sockets."""
        for each in self._processes:
            each.close()
        inherited = self.sockets.attach()
        if copies:
            self.sockets.started(os.getpid())
        hand_over(inherited)
        self._processes = [HeldSockets(inherited.end, self.clock)]
        await self._processes[0].wait_taken()
        return self._processes[0]

    def close(self) -> None:
        for each in self._processes:
            each.close()
        self.sockets.close()


def hand_over(inherited: Inheritance) -> None:
    """Leave the sockets to the gateway's side, which is in this process."""
    for each in inherited.sockets:
        each.detach()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
async def role() -> AsyncIterator[Role]:
    made = Role()
    yield made
    made.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether another program could listen on a port."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, port))
            found.listen(1)
        except OSError:
            return False
        return True


async def role_has_read(role: Role, gateway: HeldSockets) -> None:
    """Wait until the role has read all that the gateway has sent."""
    count, port = len(role.changes), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: len(role.changes) > count)
    gateway.settle(())
    await until(lambda: len(role.changes) > count + 1)


async def test_a_port_stays_taken_until_no_rule_leads_to_it(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.changes == [{(HOST, port)}])
    gateway.settle(())
    await until(lambda: role.changes[1:] == [frozenset()])
    assert not is_free(port)
    role.sockets.release()
    await until(lambda: is_free(port))


async def test_the_next_process_takes_the_sockets_over_with_the_connections_that_wait_in_them(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.sockets.addresses)
    gateway.close()
    assert not is_free(port)
    with socket.create_connection((HOST, port)) as client:
        gateway = await role.start()
        with gateway.open(HOST, port) as listening:
            listening.settimeout(5)
            accepted, address = listening.accept()
            accepted.close()
            assert address == client.getsockname()
    gateway.settle({(HOST, port)})
    assert not role.failed
    assert role.sockets.addresses == {(HOST, port)}


async def test_a_socket_that_the_next_process_does_not_use_is_closed_after_a_while(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.sockets.addresses)
    gateway = await role.start()
    gateway.settle(())
    assert gateway.has_unused
    await role.clock.advance(held_sockets.UNUSED_SECONDS + 1)
    gateway.settle(())
    assert not gateway.has_unused
    await until(lambda: not role.sockets.addresses)


async def test_a_port_that_is_needed_again_before_it_is_free_comes_back(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    gateway.settle(())
    await until(lambda: role.changes[1:] == [frozenset()])
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.changes[2:] == [{(HOST, port)}])
    role.sockets.release()
    await asyncio.sleep(0.05)
    gateway.open(HOST, port).close()
    assert not is_free(port)
    assert not role.failed


async def test_a_port_that_the_next_process_needs_before_it_is_free_is_no_conflict(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    gateway.settle(())
    await until(lambda: role.changes[1:] == [frozenset()])
    gateway = await role.start()
    with pytest.raises(OSError, match="in use"):
        gateway.open(HOST, port)
    gateway.settle((), [(HOST, port)])
    await role_has_read(role, gateway)
    assert not role.failed
    role.sockets.release()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.sockets.addresses == {(HOST, port)})


async def test_a_port_closed_before_the_role_knew_it_becomes_free(role: Role) -> None:
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    gateway.settle(())
    await until(lambda: is_free(port))


async def test_sockets_that_cannot_be_copied_are_passed(role: Role) -> None:
    gateway, port = await role.start(copies=False), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: role.sockets.addresses == {(HOST, port)})
    gateway = await role.start(copies=False)
    gateway.open(HOST, port).close()
    assert not role.uncopied


async def test_sockets_that_cannot_be_copied_are_repeated_and_reported(
    role: Role, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = [True]

    def send(end: socket.socket, data: list[bytes], descriptors: list[int]) -> int:
        if descriptors and refused[0]:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        return send_fds(end, data, descriptors)

    send_fds = socket.send_fds
    monkeypatch.setattr(socket, "send_fds", send)
    monkeypatch.setattr(held_sockets, "REPEAT_SECONDS", 0.05)
    gateway, port = await role.start(copies=False), free_port()
    gateway.open(HOST, port).close()
    gateway.settle({(HOST, port)})
    await until(lambda: len(role.uncopied) > 1)
    assert set(role.uncopied) == {(HOST, port)}
    assert not role.sockets.addresses
    assert caplog.text.count("sockets cannot be passed") == 1
    refused[0] = False
    await until(lambda: role.sockets.addresses == {(HOST, port)})


async def test_a_message_that_the_kernel_had_no_memory_for_is_sent_later(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(end: socket.socket, data: list[bytes], descriptors: list[int]) -> int:
        monkeypatch.setattr(socket, "send_fds", send_fds)
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))

    send_fds = socket.send_fds
    monkeypatch.setattr(socket_channel, "RETRY_SECONDS", 0.05)
    gateway, port = await role.start(), free_port()
    gateway.open(HOST, port).close()
    monkeypatch.setattr(socket, "send_fds", send)
    gateway.settle({(HOST, port)})
    await until(lambda: role.sockets.addresses == {(HOST, port)})


async def test_a_port_that_another_program_has_is_reported_and_not_counted(role: Role) -> None:
    gateway = await role.start()
    with socket.create_server((HOST, 0)) as other:
        address = other.getsockname()
        with pytest.raises(OSError, match="in use"):
            gateway.open(*address)
        gateway.settle((), [address])
        await until(lambda: role.failed == [address])
    assert not role.sockets.addresses


async def test_only_sockets_that_listen_count(role: Role) -> None:
    inherited = role.sockets.attach()
    role.sockets.started(os.getpid())
    with socket.socket() as bound, socket.socketpair()[0] as unix:
        bound.bind((HOST, 0))
        answers: list[Message] = []
        no_socket, ended = os.pipe()
        channel = SocketChannel(inherited.end, answers.append, lambda: None)
        try:
            address = bound.getsockname()
            channel.send(PASSED, [address], sockets=[bound, unix])
            channel.send(LISTENING, [address] * 4, [bound.fileno(), unix.fileno(), no_socket, 1 << 20])
            await until(lambda: [each.kind for each in answers] == [ALL, PASS])
            assert not role.sockets.addresses
        finally:
            channel.close()
            os.close(no_socket)
            os.close(ended)


async def test_more_sockets_than_a_message_or_the_kernels_buffer_holds_arrive(role: Role) -> None:
    gateway = await role.start()
    used = set()
    for number in range(3 * MOST):
        address = f"127.7.{number // 250}.{number % 250 + 1}"
        with gateway.open(address, 61999):
            used.add((address, 61999))
    gateway.settle(used)
    await until(lambda: role.sockets.addresses == used)
    gateway = await role.start()
    for each in used:
        gateway.open(*each).close()


async def test_messages_wait_for_a_slow_reader() -> None:
    one, other = pair()
    found: list[Address] = []
    sender = SocketChannel(one, lambda message: None, lambda: None)
    sent = [(HOST, number) for number in range(60_000)]
    sender.send("closed", sent)
    reader = SocketChannel(other, lambda message: found.extend(message.addresses), lambda: None)
    try:
        await until(lambda: len(found) == len(sent))
        assert found == sent
    finally:
        sender.close()
        reader.close()
