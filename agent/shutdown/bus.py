"""Connection to a message bus (D-Bus), for a few calls and signals.

Any account of the machine may send signals to any process on the system bus, of up to 32 MiB and with file descriptors. So a
connection accepts descriptors only if a call returns one, messages of more than `MESSAGE_BYTES` are discarded while they are
received, and only replies and expected signals are decoded.

Descriptors belong to the last message that begins in what is received together with them: buses send them with the first bytes
of a message, and the kernel ends a read after bytes that descriptors came with. So messages of others, which may have headers
of any size and types, need not be decoded.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Collection, Sequence
from urllib.parse import unquote

from agent.shutdown import bus_messages
from agent.shutdown.bus_messages import ERROR, HEAD_BYTES, REPLY, SIGNAL, Address, Message

MESSAGE_BYTES = 64 << 10
"""Largest message that is decoded; expected ones have less than 1 KiB."""
_READ_BYTES = 16 << 10
_MOST_DESCRIPTORS = 253
"""The kernel's limit for one message."""
_SECONDS = 25.0
"""Time that a call may take."""
_LINE_BYTES = 4096
BUS = Address("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")


class BusError(Exception):
    """The bus or a service on it is not there, or refused; `name` is that of a D-Bus error."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Bus:
    """One connection. `members` are the names of the signals that `received` is called with, whoever sent them."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        descriptors: bool = False,
        members: Collection[str] = (),
        received: Callable[[Message], None] = lambda message: None,
    ) -> None:
        self.unique_name = ""
        self.gone = asyncio.Event()
        """Set when the connection has ended."""
        self._socket, self._with_descriptors = connection, descriptors
        self._members, self._received = [member.encode() for member in members], received
        self._buffer, self._skip = bytearray(), 0
        self._received_bytes = 0
        self._descriptors: list[tuple[int, list[int]]] = []
        """Those of messages that are not complete yet, each with the number of bytes received by then."""
        self._serial = 0
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._sending = asyncio.Lock()

    @classmethod
    async def connect(
        cls,
        address: str,
        *,
        descriptors: bool = False,
        members: Collection[str] = (),
        received: Callable[[Message], None] = lambda message: None,
    ) -> Bus:
        """Connect to the bus at an address (unix:path=...), and accept descriptors if so requested. Raise BusError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        made = cls(connection, descriptors=descriptors, members=members, received=received)
        try:
            async with asyncio.timeout(_SECONDS):
                await asyncio.get_running_loop().sock_connect(connection, _path(address))
                await made._authenticate()
                asyncio.get_running_loop().add_reader(connection, made._read)
                made.unique_name = str((await made.call(BUS, "Hello")).values()[0])
        except (OSError, ValueError, IndexError) as error:  # a timeout is an OSError
            made.close()
            raise BusError(str(error) or "no answer") from error
        except BaseException:
            made.close()
            raise
        return made

    async def _authenticate(self) -> None:
        uid = str(os.geteuid()).encode().hex()
        await self._say(f"\0AUTH EXTERNAL {uid}\r\n", "OK")
        if self._with_descriptors:
            await self._say("NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD")
        await asyncio.get_running_loop().sock_sendall(self._socket, b"BEGIN\r\n")

    async def _say(self, line: str, expected: str) -> None:
        loop, answer = asyncio.get_running_loop(), b""
        await loop.sock_sendall(self._socket, line.encode())
        while not answer.endswith(b"\r\n"):
            data = await loop.sock_recv(self._socket, _LINE_BYTES)
            answer += data
            if not data or len(answer) > _LINE_BYTES:
                raise BusError("the connection ended during authentication")
        if answer.split()[:1] != [expected.encode()]:
            raise BusError(f"authentication failed: {answer.decode(errors='replace').strip()}")

    async def call(self, to: Address, member: str, signature: str = "", body: Sequence[str | int] = ()) -> Message:
        """Return the reply to a call; the caller closes its descriptors. Raise BusError."""
        self._serial += 1
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        serial, answer = self._serial, None
        self._calls[serial] = reply
        try:
            async with asyncio.timeout(_SECONDS):
                if self.gone.is_set():
                    raise BusError("the connection has ended")
                async with self._sending:
                    data = bus_messages.call(serial, to, member, signature, body)
                    await asyncio.get_running_loop().sock_sendall(self._socket, data)
                answer = await reply
        except OSError as error:
            raise BusError(f"{member}: {error or 'no answer'}") from error
        except BusError as error:
            raise BusError(f"{member}: {error}") from error
        finally:
            del self._calls[serial]
            if answer is None and reply.done() and not reply.cancelled() and reply.exception() is None:
                _close(reply.result().descriptors)  # it came together with the timeout or the cancellation
        if answer.type == ERROR:
            _close(answer.descriptors)
            with contextlib.suppress(ValueError):
                raise BusError(f"{member}: {answer.error} {answer.values()}", answer.error)
            raise BusError(f"{member}: {answer.error}", answer.error)
        return answer

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(
                _READ_BYTES,
                socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS) if self._with_descriptors else 0,
                socket.MSG_CMSG_CLOEXEC,
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, ancillary = b"", []
        self._received_bytes += len(data)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) // numbers.itemsize * numbers.itemsize])
                self._descriptors.append((self._received_bytes, numbers.tolist()))
        if not data:
            return self.close()
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._buffer += memoryview(data)[skipped:]
        _close(self._take_descriptors(self._received_bytes - len(self._buffer)))
        try:
            self._handle_buffer()
        except ValueError:
            self.close()

    def _take_descriptors(self, end: int) -> list[int]:
        """Return the descriptors of messages that end at this byte of all that is received, or before."""
        taken = [descriptor for at, some in self._descriptors if at <= end for descriptor in some]
        self._descriptors = [(at, some) for at, some in self._descriptors if at > end]
        return taken

    def _handle_buffer(self) -> None:
        """Handle the messages that are complete. Raise ValueError for what is no D-Bus."""
        start, received_before = 0, self._received_bytes - len(self._buffer)
        while len(self._buffer) - start >= HEAD_BYTES:
            size, _ = bus_messages.size(bytes(self._buffer[start : start + HEAD_BYTES]))
            if size > MESSAGE_BYTES:
                self._skip = max(0, start + size - len(self._buffer))
                _close(self._take_descriptors(received_before + start + size))
            elif len(self._buffer) - start < size:
                break
            else:
                descriptors = self._take_descriptors(received_before + start + size)
                self._handle(bytes(self._buffer[start : start + size]), descriptors)
            start += size
        del self._buffer[:start]

    def _handle(self, data: bytes, descriptors: list[int]) -> None:
        message = None
        if data[1] in (REPLY, ERROR) or (data[1] == SIGNAL and any(name in data for name in self._members)):
            with contextlib.suppress(ValueError):
                message = bus_messages.decode(data)
        call = self._calls.get(message.reply_to) if message and message.type in (REPLY, ERROR) else None
        if message is not None and call is not None and not call.done():
            if message.descriptor_count == len(descriptors):
                message.descriptors = descriptors
                return call.set_result(message)
            call.set_exception(BusError("file descriptors of the answer are missing"))
        _close(descriptors)
        if message is not None and message.type == SIGNAL and message.member.encode() in self._members:
            self._received(message)

    def close(self) -> None:
        """End the connection, with the calls under way; idempotent."""
        if self.gone.is_set():
            return
        self.gone.set()
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        for _, descriptors in self._descriptors:
            _close(descriptors)
        self._descriptors = []
        for call in self._calls.values():
            if not call.done():
                call.set_exception(BusError("the connection has ended"))


def _path(address: str) -> str:
    """Return the path of the first Unix socket in a list of bus addresses; an abstract one begins with NUL. Raise BusError."""
    for each in address.split(";"):
        transport, _, settings = each.partition(":")
        given = dict(pair.partition("=")[::2] for pair in settings.split(","))
        if transport == "unix" and "path" in given:
            return unquote(given["path"])
        if transport == "unix" and "abstract" in given:
            return "\0" + unquote(given["abstract"])
    raise BusError(f"{address} names no Unix socket")


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
