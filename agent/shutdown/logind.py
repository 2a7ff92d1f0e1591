"""systemd-logind over D-Bus: a lock that delays the machine's shutdown, and the signal that one is coming.

A delay lock is a file descriptor: logind waits with the shutdown until it is closed, at most InhibitDelayMaxSec. Where that is
less than the pods' periods, it is raised by a drop-in of logind's configuration, as upstream does. The D-Bus library is
imported only where a shutdown period is configured.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kube.clock import Clock

if TYPE_CHECKING:
    from dbus_fast.aio import MessageBus

DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
DROP_IN_HEAD = "# Written by the node agent, which needs this time to end pods.\n"
_LOGIND, _PATH, _MANAGER = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
"""Name, path and interface of the bus itself."""
_SIGNAL = "PrepareForShutdown"
_CALL_SECONDS = 25.0
_RELOAD_TRIES, _RELOAD_SECONDS = 20, 0.1


log = logging.getLogger(__name__)


class LogindError(Exception):
    """logind is not there, or refused."""


class Logind:
    """One connection to logind; `events` begins to listen before anything else may be missed."""

    def __init__(self, bus: MessageBus, clock: Clock, drop_in: Path) -> None:
        self._bus, self._clock, self._drop_in = bus, clock, drop_in
        self._signals: asyncio.Queue[tuple[bool, str] | None] = asyncio.Queue()
        """Signals with the unique names of their senders; None: the bus is gone."""
        self._lock: int | None = None

    @classmethod
    async def connect(cls, address: str, clock: Clock, drop_in: Path = DROP_IN) -> Logind:
        """Connect to the system bus and listen for shutdowns. Raise LogindError."""
        from dbus_fast.aio import MessageBus
        from dbus_fast.errors import DBusFastError

        try:
            bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
        except (OSError, DBusFastError, EOFError) as error:
            raise LogindError(f"cannot connect to the system bus: {error}") from error
        made = cls(bus, clock, drop_in)
        try:
            bus.add_message_handler(made._handle_signal)
            rule = f"type='signal',sender='{_LOGIND}',interface='{_MANAGER}',member='{_SIGNAL}',path='{_PATH}'"
            await made._call("AddMatch", "s", [rule], to=_BUS)
        except BaseException:
            made.close()
            raise
        return made

    def _handle_signal(self, message: Any) -> None:
        if message.member == _SIGNAL and message.interface == _MANAGER and message.signature == "b":
            self._signals.put_nowait((bool(message.body[0]), message.sender or ""))

    async def _call(
        self, member: str, signature: str = "", body: list[Any] | None = None, *, to: tuple[str, str, str]
    ) -> Any:
        from dbus_fast import Message, MessageType
        from dbus_fast.errors import DBusFastError

        name, path, interface = to
        request = Message(
            destination=name, path=path, interface=interface, member=member, signature=signature, body=body or []
        )
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                answer = await self._bus.call(request)
        except (OSError, DBusFastError, EOFError, TimeoutError) as error:
            raise LogindError(f"{member}: {error or 'no answer'}") from error
        if answer is None or answer.message_type is MessageType.ERROR:
            reason = f"{answer.error_name} {answer.body}" if answer is not None else "no answer"
            raise LogindError(f"{member}: {reason}")
        return answer

    async def _get(self, name: str) -> Any:
        to = (_LOGIND, _PATH, "org.freedesktop.DBus.Properties")
        answer = await self._call("Get", "ss", [_MANAGER, name], to=to)
        return answer.body[0].value

    async def delay_max(self) -> float:
        """Return how many seconds logind waits for delay locks. Raise LogindError."""
        return float(await self._get("InhibitDelayMaxUSec")) / 1e6

    async def shuts_down(self) -> bool:
        """Return whether a shutdown has been announced and not cancelled. Raise LogindError."""
        return bool(await self._get("PreparingForShutdown"))

    async def allow(self, seconds: float) -> None:
        """Have logind wait for so many seconds, by a drop-in where it would wait less. Raise LogindError."""
        if await self.delay_max() >= seconds:
            return
        text = f"{DROP_IN_HEAD}[Login]\nInhibitDelayMaxSec={seconds:.0f}\n"
        try:
            await asyncio.to_thread(_write, self._drop_in, text)
        except OSError as error:
            raise LogindError(f"unable to override inhibit delay by shutdown manager: {error}") from error
        systemd = "org.freedesktop.systemd1"
        to = (systemd, "/org/freedesktop/systemd1", f"{systemd}.Manager")
        await self._call("KillUnit", "ssi", ["systemd-logind.service", "all", int(signal.SIGHUP)], to=to)
        for _ in range(_RELOAD_TRIES):
            if await self.delay_max() >= seconds:
                return
            await self._clock.sleep(_RELOAD_SECONDS)
        raise LogindError(
            f"node shutdown manager was unable to update logind InhibitDelayMaxSec to {seconds:g}s "
            f"(ShutdownGracePeriod), current value of InhibitDelayMaxSec ({await self.delay_max():g}s) is less than "
            "requested ShutdownGracePeriod"
        )

    async def inhibit(self) -> None:
        """Take the delay lock; a shutdown waits from now on. Raise LogindError."""
        why = "Kubelet needs time to handle node shutdown"
        answer = await self._call(
            "Inhibit", "ssss", ["shutdown", "kubelet", why, "delay"], to=(_LOGIND, _PATH, _MANAGER)
        )
        if not answer.unix_fds:
            raise LogindError("Inhibit: no file descriptor came with the answer")
        before, self._lock = self._lock, answer.unix_fds[answer.body[0]]
        if before is not None:
            os.close(before)

    def release(self) -> None:
        """Let the shutdown continue."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def events(self) -> AsyncIterator[bool]:
        """Yield True when a shutdown begins and False when it was called off, until the bus is gone."""
        gone = asyncio.create_task(self._until_gone(), name="system bus")
        try:
            while (received := await self._signals.get()) is not None:
                began, sender = received
                if await self._is_logind(sender):
                    yield began
        finally:
            gone.cancel()

    async def _is_logind(self, sender: str) -> bool:
        """Return whether logind sent a signal: any program on the bus may send one to this process."""
        try:
            answer = await self._call("GetNameOwner", "s", [_LOGIND], to=_BUS)
        except LogindError as error:
            log.warning("a signal about a shutdown is ignored: %s", error)
            return False
        if answer.body[0] != sender:
            log.warning("a signal about a shutdown by %s, which is not logind, is ignored", sender)
            return False
        return True

    async def _until_gone(self) -> None:
        with contextlib.suppress(Exception):  # however the connection ended, it is gone
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        self._signals.put_nowait(None)

    def close(self) -> None:
        self.release()
        self._bus.disconnect()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.write_text(text)
    path.chmod(0o644)
