"""The plugin registry: registers the plugin behind each socket in a directory.

A plugin creates a socket anywhere below `plugins_registry`, serving the registration interface. inotify reports changes there;
every change makes the registry read the directory again, so events are not interpreted. Each socket has a task while it exists:
it registers the plugin with the handler of its type, waits until the socket is removed or replaced (another inode or time), and
then deregisters it. Failures are retried with a back-off, as upstream (pkg/kubelet/pluginmanager: 0.5 s, doubling to
2 min 2 s). No plugin waits for another.

The protocol's modules are imported when the first socket appears.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent.backoff import BackOff
from agent.plugins.handler import PluginError, PluginHandler
from kube import cancellation, inotify
from kube.clock import SYSTEM, Clock

log = logging.getLogger(__name__)

_EVENTS = inotify.CREATE | inotify.DELETE | inotify.MOVED_FROM | inotify.MOVED_TO
LOOK_SECONDS = 60.0
"""Maximum interval in seconds between two scans of the folder, also without an event."""
MOST_DEPTH, MOST_FOLDERS = 8, 256
"""Folders below the registry's that are searched: plugins create them, and each has a watch of inotify."""
FIRST_RETRY, LAST_RETRY = 0.5, 122.0

_Identity = tuple[int, int]
"""Inode and time of creation, which identify a socket that was replaced at its path."""


@dataclass(frozen=True, slots=True)
class _Registered:
    identity: _Identity
    kind: str
    name: str
    endpoint: str


@dataclass(slots=True)
class _Socket:
    """A socket's path: what lies there now, and what it was registered as."""

    path: Path
    identity: _Identity | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    registered: _Registered | None = None


class PluginRegistry:
    """Registers plugins with the handler of their type for as long as their socket is in the folder."""

    def __init__(self, folder: Path, *, clock: Clock = SYSTEM) -> None:
        self.folder, self._clock = folder, clock
        self._handlers: dict[str, PluginHandler] = {}
        self._sockets: dict[Path, _Socket] = {}
        self._failures = BackOff(FIRST_RETRY, LAST_RETRY)

    def add_handler(self, kind: str, handler: PluginHandler) -> None:
        """Have a type's plugins handled; call it before `run`."""
        self._handlers[kind] = handler

    def registered(self) -> list[tuple[str, str]]:
        """List type and name of the plugins in use."""
        found = (socket.registered for socket in self._sockets.values())
        return sorted((plugin.kind, plugin.name) for plugin in found if plugin is not None)

    async def run(self) -> None:
        """Follow the folder, which is made where it is missing, until cancelled."""
        await asyncio.to_thread(self.folder.mkdir, parents=True, exist_ok=True, mode=0o750)
        with inotify.Watcher() as watcher:
            async with asyncio.TaskGroup() as group:
                for socket in self._sockets.values():  # of a run that failed
                    self._attend_to(group, socket)
                while True:
                    found = await asyncio.to_thread(_scan, self.folder, lambda path: watcher.add(path, _EVENTS))
                    for path in found.keys() - self._sockets.keys():
                        socket = self._sockets[path] = _Socket(path, found[path])
                        self._attend_to(group, socket)
                    for path, socket in self._sockets.items():
                        if socket.identity != found.get(path):
                            socket.identity = found.get(path)
                            socket.changed.set()
                    await watcher.wait(LOOK_SECONDS)

    def _attend_to(self, group: asyncio.TaskGroup, socket: _Socket) -> None:
        group.create_task(cancellation.as_error(self._attend(socket)), name=f"plugin {socket.path.name}")

    async def _attend(self, socket: _Socket) -> None:
        """Keep one socket's registration what it should be until the socket is gone."""
        while True:
            socket.changed.clear()
            wanted, known = socket.identity, socket.registered
            if known is not None and known.identity != wanted:
                await self._deregister(socket, known)
                continue
            if wanted is None:
                del self._sockets[socket.path]
                self._failures.reset(str(socket.path))
                return
            delay = None
            if known is None:
                try:
                    await self._register(socket, wanted)
                except PluginError as error:
                    log.warning("plugin %s: %s", socket.path, error)
                except Exception:
                    log.exception("registering plugin %s failed", socket.path)
                if socket.registered is None:
                    delay = self._failures.next(str(socket.path), self._clock.monotonic())
            await self._changed(socket, delay)

    async def _changed(self, socket: _Socket, seconds: float | None) -> None:
        """Wait until something happened to the socket, at most so long."""
        waits = [asyncio.create_task(socket.changed.wait(), name="socket changed")]
        if seconds is not None:
            waits.append(asyncio.create_task(self._clock.sleep(seconds), name="retry"))  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _register(self, socket: _Socket, identity: _Identity) -> None:
        """Call GetInfo, pass the plugin to its type's handler, notify it of the result. Raise PluginError."""
        from agent.plugins.registration import PluginClient  # with the first plugin only

        async with contextlib.aclosing(PluginClient(socket.path)) as peer:
            info = await peer.info()
            endpoint = info.endpoint or str(socket.path)
            try:
                handler = self._handlers.get(info.type)
                if handler is None:
                    what = f"no handler registered for plugin type: {info.type} at socket {socket.path}"
                    raise PluginError(f"RegisterPlugin error -- {what}")
                await _introduce(handler, info.name, endpoint, tuple(info.supported_versions))
            except PluginError as error:
                await peer.notify(str(error))
                raise
            # From here on it is in use, whether it hears of it or not.
            socket.registered = _Registered(identity, info.type, info.name, endpoint)
            self._failures.reset(str(socket.path))
            log.info("registered %s %s at %s", info.type, info.name, endpoint)
            await peer.notify("")

    async def _deregister(self, socket: _Socket, known: _Registered) -> None:
        socket.registered = None
        log.info("plugin %s %s is gone", known.kind, known.name)
        await self._handlers[known.kind].deregister(known.name, known.endpoint)


async def _introduce(handler: PluginHandler, name: str, endpoint: str, versions: tuple[str, ...]) -> None:
    """Pass the plugin to its handler. Raise PluginError with upstream's message to a plugin."""
    try:
        handler.validate(name, endpoint, versions)
    except PluginError as error:
        raise PluginError(f"RegisterPlugin error -- plugin validation failed with err: {error}") from error
    try:
        await handler.register(name, endpoint, versions)
    except PluginError as error:
        raise PluginError(f"RegisterPlugin error -- plugin registration failed with err: {error}") from error


def _scan(folder: Path, watch: Callable[[Path], None]) -> dict[Path, _Identity]:
    """List the sockets in a folder and below, upper folders first, having each folder watched before it is read."""
    found: dict[Path, _Identity] = {}
    folders, left_out = [(folder, 0)], 0
    for path, depth in folders:
        with contextlib.suppress(OSError):  # a folder that went meanwhile
            watch(path)
            for entry in os.scandir(path):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if depth < MOST_DEPTH and len(folders) < MOST_FOLDERS:
                        folders.append((Path(entry.path), depth + 1))
                    else:
                        left_out += 1
                    continue
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISSOCK(status.st_mode):
                        found[Path(entry.path)] = (status.st_ino, status.st_mtime_ns)
    if left_out:
        log.warning("not all folders below %s are searched for plugins: %d are left out", folder, left_out)
    return found
