"""Plugins announce themselves by a socket: registered, rejected, retried, unregistered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from agent.files import walk
from agent.plugins import registry as plugin_registry
from agent.plugins.handler import CSI, DEVICE, PluginError
from agent.plugins.registry import MOST_DEPTH, MOST_FOLDERS, PluginRegistry
from cri.texts import MESSAGE
from tests.support.plugins import RegistrationSocket


class Handler:
    """Records its calls; rejects by name."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()
        self.invalid = ""
        self.failures = 0

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        if self.invalid:
            raise PluginError(self.invalid)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        if self.failures:
            self.failures -= 1
            raise PluginError("not now")
        self.calls.put_nowait(("register", name, endpoint))

    async def deregister(self, name: str, endpoint: str) -> None:
        self.calls.put_nowait(("deregister", name, endpoint))


@pytest.fixture
def folder() -> Iterator[Path]:
    # Sockets' paths are at most 107 bytes long, pytest's own folders are not short.
    with tempfile.TemporaryDirectory(prefix="reg-") as name:
        yield Path(name)


@contextlib.asynccontextmanager
async def running(folder: Path, handler: Handler) -> AsyncIterator[PluginRegistry]:
    registry = PluginRegistry(folder)
    registry.add_handler(CSI, handler)
    task = asyncio.create_task(registry.run())
    try:
        async with asyncio.timeout(60):
            yield registry
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_plugin_is_registered_with_its_types_handler_and_notified(folder: Path) -> None:
    handler = Handler()
    async with (
        running(folder, handler) as registry,
        RegistrationSocket(folder / "a.sock", CSI, "a", "/csi/a") as plugin,
    ):
        assert await handler.calls.get() == ("register", "a", "/csi/a")
        assert await plugin.registration_errors.get() == ""
        assert registry.registered() == [(CSI, "a")]


async def test_a_plugin_that_was_there_before_and_lies_in_a_folder_below_is_found(folder: Path) -> None:
    handler = Handler()
    (folder / "below").mkdir()
    async with RegistrationSocket(folder / "below" / "a.sock", CSI, "a"), running(folder, handler):
        # Without an endpoint of its own the plugin's interface is on the same socket.
        assert await handler.calls.get() == ("register", "a", str(folder / "below" / "a.sock"))
        (folder / "new").mkdir()
        async with RegistrationSocket(folder / "new" / "b.sock", CSI, "b"):
            assert (await handler.calls.get())[1] == "b"


async def test_a_plugin_whose_socket_goes_is_let_go_and_one_made_anew_is_registered_again(folder: Path) -> None:
    handler = Handler()
    async with running(folder, handler) as registry:
        for _ in range(2):
            async with RegistrationSocket(folder / "a.sock", CSI, "a", "/csi/a") as plugin:
                assert await handler.calls.get() == ("register", "a", "/csi/a")
                await plugin.registration_errors.get()
            assert await handler.calls.get() == ("deregister", "a", "/csi/a")
        assert registry.registered() == []


async def test_a_plugin_of_an_unknown_type_is_notified_of_the_failed_registration(folder: Path) -> None:
    async with running(folder, Handler()), RegistrationSocket(folder / "a.sock", DEVICE, "a") as plugin:
        text = await plugin.registration_errors.get()
        assert text.startswith("RegisterPlugin error -- no handler registered for plugin type: DevicePlugin at socket")


async def test_a_refused_plugin_hears_why_and_is_tried_again(folder: Path) -> None:
    handler = Handler()
    handler.invalid, handler.failures = "bad version", 1
    async with running(folder, handler), RegistrationSocket(folder / "a.sock", CSI, "a") as plugin:
        assert (
            await plugin.registration_errors.get()
            == "RegisterPlugin error -- plugin validation failed with err: bad version"
        )
        handler.invalid = ""
        assert (
            await plugin.registration_errors.get()
            == "RegisterPlugin error -- plugin registration failed with err: not now"
        )
        assert await plugin.registration_errors.get() == ""


async def test_of_a_long_error_a_plugin_gets_the_beginning(folder: Path) -> None:
    """It may repeat what the plugin sent, of up to 4 MiB."""
    handler = Handler()
    handler.invalid = "versions " * 500_000
    async with running(folder, handler), RegistrationSocket(folder / "a.sock", CSI, "a") as plugin:
        text = await plugin.registration_errors.get()
        assert len(text) == MESSAGE and "validation failed with err: versions" in text


def nested(folder: Path, depth: int) -> None:
    """Make folders inside each other, also deeper than a path may be long."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("n", dir_fd=descriptor)
        inner = os.open("n", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)


async def test_folders_inside_each_other_keep_no_plugin_from_being_registered(folder: Path) -> None:
    nested(folder, 1500)
    handler = Handler()
    try:
        async with running(folder, handler), RegistrationSocket(folder / "a.sock", CSI, "a"):
            assert (await handler.calls.get())[1] == "a"
    finally:
        walk.remove(folder / "n")


def test_a_limited_number_of_folders_is_read_the_upper_ones_first(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep = folder
    for name in "abcdefghij"[: MOST_DEPTH + 1]:
        deep = deep / name
        deep.mkdir()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(deep / "s"))
    watched = list[Path]()
    found = plugin_registry._scan(folder, watched.append)
    assert sorted(len(path.relative_to(folder).parts) - 1 for path in found) == list(range(1, MOST_DEPTH + 1))
    for number in range(MOST_FOLDERS):
        (folder / f"x{number}").mkdir()
    watched.clear()
    plugin_registry._scan(folder, watched.append)
    assert len(watched) == MOST_FOLDERS and watched[0] == folder
    assert "not all folders" in caplog.text


async def test_hidden_files_and_what_is_no_socket_are_left_alone(folder: Path) -> None:
    handler = Handler()
    (folder / "file").write_text("")
    (folder / ".hidden").mkdir()
    async with running(folder, handler), RegistrationSocket(folder / ".hidden" / "a.sock", CSI, "hidden"):
        async with RegistrationSocket(folder / "b.sock", CSI, "b"):
            assert (await handler.calls.get())[1] == "b"
        assert (await handler.calls.get())[0] == "deregister"
        assert handler.calls.empty()


async def test_a_registry_that_failed_unforeseen_goes_on_with_the_plugins_it_knew(folder: Path) -> None:
    handler = Handler()
    registry = PluginRegistry(folder)
    registry.add_handler(CSI, handler)
    async with asyncio.timeout(60), RegistrationSocket(folder / "a.sock", CSI, "a", "/csi/a") as plugin:
        first = asyncio.create_task(registry.run())
        assert await handler.calls.get() == ("register", "a", "/csi/a")
        assert await plugin.registration_errors.get() == ""
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(registry.run())
        (folder / "a.sock").unlink()
        assert await handler.calls.get() == ("deregister", "a", "/csi/a")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
