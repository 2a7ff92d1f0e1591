"""A system bus with a stand-in for systemd-logind on it: a real dbus-daemon, and the few calls that a kubelet makes.

`async with logind(tmp_path) as manager:`; `manager.address` is the bus, `manager.shut_down()` begins a shutdown and returns
when the delay locks are given back, as logind would wait.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dbus_fast import PropertyAccess
from dbus_fast.aio import MessageBus
from dbus_fast.service import ServiceInterface, dbus_property, method, signal

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
"""
NAME, PATH = "org.freedesktop.login1", "/org/freedesktop/login1"


class Login1(ServiceInterface):
    """org.freedesktop.login1.Manager."""

    def __init__(self) -> None:
        super().__init__("org.freedesktop.login1.Manager")
        self.delay_max_usec = 5_000_000
        self.preparing = False
        self.locks: list[int] = []
        """The ends by which the locks are seen to be given back."""
        self.received: list[tuple[str, ...]] = []
        self.taken = asyncio.Event()

    @method()
    def Inhibit(self, what: "s", who: "s", why: "s", mode: "s") -> "h":  # type: ignore[name-defined] # noqa: F821
        self.received.append((what, who, why, mode))
        ours, theirs = os.pipe()
        self.locks.append(ours)
        self.taken.set()
        asyncio.get_running_loop().call_later(0.2, os.close, theirs)  # the message holds a copy by then
        return theirs

    @signal()
    def PrepareForShutdown(self, begins: bool) -> "b":  # type: ignore[name-defined] # noqa: F821
        return begins

    @dbus_property(access=PropertyAccess.READ)
    def InhibitDelayMaxUSec(self) -> "t":  # type: ignore[name-defined] # noqa: F821
        return self.delay_max_usec

    @dbus_property(access=PropertyAccess.READ)
    def PreparingForShutdown(self) -> "b":  # type: ignore[name-defined] # noqa: F821
        return self.preparing


class Systemd1(ServiceInterface):
    """org.freedesktop.systemd1.Manager: told to have logind read its configuration again."""

    def __init__(self, login: Login1, drop_in: Path) -> None:
        super().__init__("org.freedesktop.systemd1.Manager")
        self._login, self._drop_in = login, drop_in

    @method()
    def KillUnit(self, name: "s", who: "s", number: "i") -> None:  # type: ignore[name-defined] # noqa: F821
        assert (name, who, number) == ("systemd-logind.service", "all", 1)
        settings = dict(line.split("=") for line in self._drop_in.read_text().splitlines() if "=" in line)
        self._login.delay_max_usec = int(settings["InhibitDelayMaxSec"]) * 1_000_000


class Logind:
    """The running stand-in."""

    def __init__(self, address: str, login: Login1, drop_in: Path, bus: MessageBus) -> None:
        self.address, self.login, self.drop_in, self.bus = address, login, drop_in, bus
        self.others: list[MessageBus] = []

    async def restart(self) -> None:
        """Give the name away and take it under another connection, as another process would."""
        await self.bus.release_name(NAME)
        self.bus.unexport(PATH)
        other = await MessageBus(bus_address=self.address, negotiate_unix_fd=True).connect()
        self.others.append(other)
        other.export(PATH, self.login)
        await other.request_name(NAME)

    async def inhibited(self) -> None:
        """Return once somebody holds a lock."""
        async with asyncio.timeout(30):
            await self.login.taken.wait()

    async def shut_down(self) -> None:
        """Say that the machine goes down, and wait for those who delay it."""
        await self.inhibited()
        await asyncio.sleep(0.3)  # our own copies of the locks are closed
        self.login.preparing = True
        self.login.PrepareForShutdown(True)
        async with asyncio.timeout(60):
            for lock in self.login.locks:
                await asyncio.to_thread(os.read, lock, 1)  # ends when the last copy was closed
                os.close(lock)
        self.login.locks.clear()
        self.login.taken.clear()

    def call_off(self) -> None:
        self.login.preparing = False
        self.login.PrepareForShutdown(False)


@contextlib.asynccontextmanager
async def logind(folder: Path) -> AsyncIterator[Logind]:
    socket, config = folder / "bus.sock", folder / "bus.conf"
    config.write_text(_CONFIG.format(socket=socket))
    daemon = await asyncio.create_subprocess_exec("dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile")
    bus: Any = None
    try:
        address = f"unix:path={socket}"
        async with asyncio.timeout(30):
            while bus is None:
                with contextlib.suppress(OSError):
                    bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
                await asyncio.sleep(0.01)
        login, drop_in = Login1(), folder / "logind.conf.d/99-kubelet.conf"
        bus.export(PATH, login)
        bus.export("/org/freedesktop/systemd1", Systemd1(login, drop_in))
        await bus.request_name(NAME)
        await bus.request_name("org.freedesktop.systemd1")
        made = Logind(address, login, drop_in, bus)
        try:
            yield made
        finally:
            for other in made.others:
                other.disconnect()
    finally:
        if bus is not None:
            bus.disconnect()
        daemon.terminate()
        await daemon.wait()
