"""systemd-logind over D-Bus: a lock that delays the machine's shutdown, and the signal that one is coming.

A delay lock is a file descriptor: logind waits with the shutdown until it is closed, at most InhibitDelayMaxSec. Where that is
less than the pods' periods, it is raised by a drop-in of logind's configuration, as upstream does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from agent.shutdown.bus import BUS, Bus, BusError
from agent.shutdown.bus_messages import Address, Message
from kube.clock import Clock

DROP_IN = Path("/etc/systemd/logind.conf.d/99-kubelet.conf")
DROP_IN_HEAD = "# Written by the node agent, which needs this time to end pods.\n"
_LOGIND, _PATH, _MANAGER = "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"
_SIGNAL, _OWNER_CHANGED = "PrepareForShutdown", "NameOwnerChanged"
_NO_OWNER = "org.freedesktop.DBus.Error.NameHasNoOwner"
_RELOAD_TRIES, _RELOAD_SECONDS = 20, 0.1


log = logging.getLogger(__name__)


class LogindError(Exception):
    """logind is not there, or refused."""


class Logind:
    """One connection to logind; `events` begins to listen before anything else may be missed."""

    def __init__(self, address: str, clock: Clock, drop_in: Path) -> None:
        self._address, self._clock, self._drop_in = address, clock, drop_in
        self._bus: Bus
        self._owner: str | None = None
        """Unique name of logind on the bus, which the bus puts into each message of it; None before it is known."""
        self._logged = False
        """A forged signal was logged."""
        self._signals: asyncio.Queue[tuple[bool | None, ...]] = asyncio.Queue()
        """One event each; without one, the bus is gone."""
        self._lock: int | None = None

    @classmethod
    async def connect(cls, address: str, clock: Clock, drop_in: Path = DROP_IN) -> Logind:
        """Connect to the system bus and listen for shutdowns. Raise LogindError."""
        made = cls(address, clock, drop_in)
        try:
            made._bus = await Bus.connect(address, members=(_SIGNAL, _OWNER_CHANGED), received=made._handle_signal)
        except BusError as error:
            raise LogindError(f"cannot connect to the system bus: {error}") from error
        try:
            await made._match(f"sender='{BUS.name}',member='{_OWNER_CHANGED}',arg0='{_LOGIND}'")
            await made._find_owner()
            await made._match(f"sender='{_LOGIND}',interface='{_MANAGER}',member='{_SIGNAL}',path='{_PATH}'")
        except BaseException:
            made.close()
            raise
        return made

    async def _match(self, rule: str) -> None:
        await self._call("AddMatch", "s", [f"type='signal',{rule}"], to=BUS)

    async def _find_owner(self) -> None:
        try:
            found = str((await self._bus.call(BUS, "GetNameOwner", "s", [_LOGIND])).values()[0])
        except BusError as error:
            if error.name != _NO_OWNER:  # else the first call starts logind
                raise LogindError(str(error)) from error
        else:
            if self._owner is None:  # a change that was announced since is newer
                self._owner = found

    def _handle_signal(self, message: Message) -> None:
        """Queue logind's signals about shutdowns: any program on the bus may send one to this process."""
        if message.member == _OWNER_CHANGED:
            if message.sender == BUS.name and message.signature == "sss":
                name, _, owner = message.values()
                if name == _LOGIND:
                    self._owner = str(owner)
                    if owner:
                        self._signals.put_nowait((None,))
        elif message.interface == _MANAGER and message.signature == "b":
            if message.sender == self._owner:
                self._signals.put_nowait((bool(message.values()[0]),))
            elif not self._logged:
                self._logged = True
                log.warning("signals about a shutdown by %s, which is not logind, are ignored", message.sender)

    async def _call(
        self, member: str, signature: str = "", body: Sequence[str | int] = (), *, to: Address
    ) -> Sequence[Any]:
        """Return the values of a reply. Raise LogindError."""
        try:
            return (await self._bus.call(to, member, signature, body)).values()
        except (BusError, ValueError) as error:
            raise LogindError(str(error)) from error

    async def _get(self, name: str) -> Any:
        to = Address(_LOGIND, _PATH, "org.freedesktop.DBus.Properties")
        return (await self._call("Get", "ss", [_MANAGER, name], to=to))[0]

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
        to = Address(systemd, "/org/freedesktop/systemd1", f"{systemd}.Manager")
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
        before, self._lock = self._lock, await self._new_lock()
        if before is not None:
            os.close(before)

    async def _new_lock(self) -> int:
        """Return the descriptor of a lock, by a connection of its own: others send descriptors to one that accepts them."""
        body = ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"]
        bus = None
        try:
            bus = await Bus.connect(self._address, descriptors=True)
            answer = await bus.call(Address(_LOGIND, _PATH, _MANAGER), "Inhibit", "ssss", body)
        except BusError as error:
            raise LogindError(str(error)) from error
        finally:
            if bus is not None:
                bus.close()
        for surplus in answer.descriptors[1:]:
            os.close(surplus)
        if not answer.descriptors:
            raise LogindError("Inhibit: no file descriptor came with the answer")
        return answer.descriptors[0]

    def release(self) -> None:
        """Let the shutdown continue."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def events(self) -> AsyncIterator[bool | None]:
        """Yield True when a shutdown begins and False when it was called off, until the bus is gone.

        None: logind was started again, and may have forgotten a shutdown and the delay lock.
        """
        gone = asyncio.create_task(self._until_gone(), name="system bus")
        try:
            while event := await self._signals.get():
                yield event[0]
        finally:
            gone.cancel()

    async def _until_gone(self) -> None:
        await self._bus.gone.wait()
        self._signals.put_nowait(())

    def close(self) -> None:
        self.release()
        self._bus.close()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.write_text(text)
    path.chmod(0o644)
