"""Values that are encrypted again: intervals of attempts, and configurations that change between them."""

from __future__ import annotations

import asyncio
import base64
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.assembly import encryption_at_rest
from control.assembly.encryption_at_rest import EncryptionAtRest
from control.storage.encrypted_store import Rewritten
from control.storage.encryption import Encryption
from control.storage.kms.plugin import EncryptedSeed
from control.storage.sqlite import SqliteStore
from control.storage.store import Unavailable, Unreadable
from kube.json_object import Object
from tests.support.clock import FakeClock
from tests.unit.control.storage.test_kms_provider import Plugin, made

SECRETS = "/registry/secrets/"


def write(path: Path, *names: str) -> Path:
    """Write a configuration with these keys."""
    keys = [{"name": n, "secret": base64.b64encode(n.encode().ljust(32, b"0")).decode()} for n in names]
    rule = {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": keys}}]}
    kind: Object = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.write_text(yaml.safe_dump({**kind, "resources": [rule]}))
    return path


async def test_a_changed_configuration_is_applied_at_once_while_a_value_cannot_be_decrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    former = EncryptionAtRest(write(path, "former"), engine)
    await former.store.create(SECRETS + "a", b"{}")
    encryption = EncryptionAtRest(write(path, "current"), engine)
    attempts: list[float] = []
    attempted = asyncio.Event()
    rewrite, to_thread = encryption.store.rewrite, asyncio.to_thread
    busy = 0

    async def working(work: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        nonlocal busy
        busy += 1
        try:
            return await work(*args)
        finally:
            busy -= 1

    async def counted() -> Rewritten:
        try:
            found: Rewritten = await working(rewrite)
            return found
        finally:
            attempts.append(clock.monotonic())
            attempted.set()

    async def another() -> None:
        attempted.clear()
        async with asyncio.timeout(30):
            while not attempted.is_set():
                if not busy:  # threads need real time, during which virtual time must not pass
                    await clock.advance(1.0)
                await asyncio.sleep(0)

    monkeypatch.setattr(asyncio, "to_thread", functools.partial(working, to_thread))
    monkeypatch.setattr(encryption.store, "rewrite", counted)
    await encryption.start()
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        while len(attempts) < 12:
            await another()
        assert attempts[-1] - attempts[-2] >= encryption_at_rest.LAST_RETRY
        write(path, "current", "former")
        await another()
        assert attempts[-1] - attempts[-2] < encryption_at_rest.LAST_RETRY / 2
        item = await engine.get(SECRETS + "a")
        assert item is not None and item.value.startswith(b"k8s:enc:aesgcm:v1:current:")
        assert "all values are encrypted with the current key" in caplog.messages
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()
        await encryption.close()


@pytest.mark.parametrize(
    ("found", "dropped"),
    [
        (Rewritten(1, 0), True),
        (Rewritten(0, 1), False),
        (Rewritten(0, 0, expiring=2), False),
        (Unavailable("the store is away"), False),
    ],
    ids=["all rewritten", "unreadable", "events", "no store"],
)
async def test_former_keys_are_dropped_after_a_complete_rewrite_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Rewritten | Unavailable, *, dropped: bool
) -> None:
    engine, path = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml"
    former = EncryptionAtRest(write(path, "former"), engine).store.encryption
    encryption = EncryptionAtRest(write(path, "current"), engine)
    given_up: list[Encryption] = []

    async def rewrite() -> Rewritten:
        if isinstance(found, Unavailable):
            raise found
        return found

    monkeypatch.setattr(encryption.store, "rewrite", rewrite)
    monkeypatch.setattr(encryption.store, "drop", given_up.append)
    try:
        await encryption._drop_if_unused([former])
        assert given_up == ([former] if dropped else [])
        assert encryption._stale.is_set() is not dropped
    finally:
        await engine.close()
        await encryption.close()


async def test_the_interval_of_attempts_starts_again_with_another_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    engine = await SqliteStore.open(tmp_path / "state.db")
    encryption = EncryptionAtRest(write(tmp_path / "encryption.yaml", "one"), engine)
    attempts: list[float] = []

    async def failing() -> Rewritten:
        attempts.append(clock.monotonic())
        return Rewritten(0, 1)

    monkeypatch.setattr(encryption.store, "rewrite", failing)
    encryption._stale.set()
    task = asyncio.create_task(encryption._rewrite(clock))
    try:
        await clock.advance(10)
        encryption._stale.set()
        await clock.advance(10)
        assert attempts == [0, 1, 3, 7, 10, 11, 13, 17]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()


async def test_values_under_a_plugins_former_key_are_encrypted_again_if_it_did_not_answer_at_the_start(
    tmp_path: Path,
) -> None:
    class Former(Plugin):
        async def status(self) -> str:
            return "former"

        async def encrypt(self, secret: bytes) -> EncryptedSeed:
            return EncryptedSeed(secret[::-1], "former", {})

    engine, clock, plugin = await SqliteStore.open(tmp_path / "state.db"), FakeClock(), Plugin()
    encryption = EncryptionAtRest(write(tmp_path / "encryption.yaml", "unused"), engine)
    writer, reader = made(Former()), made(plugin)
    await writer.start()
    encryption.store.encryption = Encryption([(SECRETS, [writer])])
    await encryption.store.create(SECRETS + "a", b"{}")
    encryption.store.encryption = Encryption([(SECRETS, [reader])])
    plugin.failure = "away"
    await encryption.start()
    plugin.failure = ""
    task = asyncio.create_task(encryption.run(clock, 3600.0))
    try:
        async with asyncio.timeout(30):
            while (item := await engine.get(SECRETS + "a")) is not None:
                if not encryption.store.encryption.stale(item.key, item.value) and reader.problem is None:
                    break
                await clock.advance(1.0)
                await asyncio.sleep(0.01)
        assert item is not None and b"former" not in item.value
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()


async def test_a_key_that_was_taken_out_is_dropped_a_while_after_all_values_are_encrypted_again(tmp_path: Path) -> None:
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    encryption = EncryptionAtRest(write(path, "former"), engine)
    store = encryption.store
    await store.create(SECRETS + "a", b"{}")
    copied = await engine.get(SECRETS + "a")
    assert copied is not None
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        write(path, "current")
        await advance_until_written_with(engine, "current", clock)
        held = clock.monotonic()
        [replayed] = (await store.list(SECRETS, revision=copied.revision)).items  # as a watch may read it
        assert replayed.value == b"{}"
        await advance_until(lambda: not store.former, clock, 10.0)
        assert clock.monotonic() - held >= encryption_at_rest.FORMER_SECONDS - 10
        now = await engine.get(SECRETS + "a")
        assert now is not None and (await store.get(SECRETS + "a")) is not None
        await engine.update(SECRETS + "a", copied.value, now.revision)
        with pytest.raises(Unreadable, match="not configured"):
            await store.get(SECRETS + "a")
    finally:
        await stop(task, engine, encryption)


async def test_no_former_key_is_dropped_while_a_value_cannot_be_decrypted(tmp_path: Path) -> None:
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    unknown = EncryptionAtRest(write(path, "unknown"), engine)
    await unknown.store.create(SECRETS + "b", b"{}")
    encryption = EncryptionAtRest(write(path, "former"), engine)
    await encryption.store.create(SECRETS + "a", b"{}")
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        write(path, "current")
        await advance_until_written_with(engine, "current", clock)
        for _ in range(200):
            await clock.advance(10.0)
            await asyncio.sleep(0.005)
        assert len(encryption.store.former) == 1
        await engine.delete(SECRETS + "b")
        await advance_until(lambda: not encryption.store.former, clock, 10.0)
    finally:
        await stop(task, engine, encryption)


async def test_a_plugin_that_was_taken_out_is_left_alone_when_its_configuration_is_dropped(tmp_path: Path) -> None:
    class Counted(Plugin):
        asked, closed = 0, False

        async def status(self) -> str:
            self.asked += 1
            return await super().status()

        async def close(self) -> None:
            self.closed = True

    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    encryption, plugin = EncryptionAtRest(write(path, "unused"), engine), Counted()
    writer = made(plugin)
    encryption.store.encryption = Encryption([(SECRETS, [writer])])
    await encryption.start()
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        await clock.advance(0.5)
        write(path, "current")
        await advance_until(lambda: plugin.closed, clock, 10.0)
        asked = plugin.asked
        await clock.advance(3600.0)
        assert plugin.asked == asked and not task.done()
    finally:
        await stop(task, engine, encryption)


def replace_secret(path: Path, cipher: str, secret: bytes, resource: str = "secrets") -> Path:
    """Write a configuration whose key `one` has this secret."""
    given = [{"name": "one", "secret": base64.b64encode(secret * 32).decode()}]
    rule = {"resources": [resource], "providers": [{cipher: {"keys": given}}]}
    kind: Object = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.write_text(yaml.safe_dump({**kind, "resources": [rule]}))
    return path


async def test_a_key_that_was_replaced_under_its_name_is_dropped_after_its_values_are_encrypted_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    encryption = EncryptionAtRest(replace_secret(path, "aesgcm", b"a"), engine)
    await encryption.store.create(SECRETS + "a", b"{}")
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        former = encryption.store.encryption
        replace_secret(path, "aesgcm", b"b").touch()
        await advance_until(
            lambda: encryption.store.encryption is not former and not encryption.store.former, clock, 10.0
        )
        item = await encryption.store.get(SECRETS + "a")
        assert item is not None and item.value == b"{}"
        assert "aesgcm key one has another secret than before" in caplog.text
    finally:
        await stop(task, engine, encryption)


async def test_another_secret_of_an_aescbc_key_is_not_used_because_values_would_be_misread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    encryption = EncryptionAtRest(replace_secret(path, "aescbc", b"a"), engine)
    present = encryption.store.encryption
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        replace_secret(path, "aescbc", b"b").touch()
        await advance_until(lambda: "aescbc key one has another secret than before" in caplog.text, clock, 1.0)
        assert encryption.store.encryption is present and not encryption.store.former
    finally:
        await stop(task, engine, encryption)


async def test_a_key_that_was_taken_out_decrypts_events_until_the_last_of_them_has_expired(tmp_path: Path) -> None:
    engine, path, clock = await SqliteStore.open(tmp_path / "state.db"), tmp_path / "encryption.yaml", FakeClock()
    encryption = EncryptionAtRest(replace_secret(path, "aesgcm", b"a", "events"), engine)
    event = "/registry/events/default/e"
    await encryption.store.create(event, b"{}", ttl=3600)
    task = asyncio.create_task(encryption.run(clock, 1.0))
    try:
        former = encryption.store.encryption
        replace_secret(path, "aesgcm", b"b", "events").touch()
        await advance_until(lambda: encryption.store.encryption is not former, clock, 1.0)
        for _ in range(200):
            await clock.advance(10.0)
            await asyncio.sleep(0.005)
        item = await encryption.store.get(event)
        assert item is not None and item.value == b"{}"
        await engine.delete(event)
        await advance_until(lambda: not encryption.store.former, clock, 10.0)
    finally:
        await stop(task, engine, encryption)


async def advance_until(condition: Callable[[], bool], clock: FakeClock, seconds: float) -> None:
    """Advance the clock by some seconds at a time until a condition is true."""
    async with asyncio.timeout(30):
        while not condition():
            await clock.advance(seconds)
            await asyncio.sleep(0.01)


async def advance_until_written_with(engine: SqliteStore, key: str, clock: FakeClock) -> None:
    """Advance the clock until the value of the Secret `a` is encrypted with a key."""
    async with asyncio.timeout(30):
        while not (await stored(engine)).startswith(f"k8s:enc:aesgcm:v1:{key}:".encode()):
            await clock.advance(1.0)
            await asyncio.sleep(0.01)


async def stored(engine: SqliteStore) -> bytes:
    item = await engine.get(SECRETS + "a")
    assert item is not None
    return item.value


async def stop(task: asyncio.Task[None], engine: SqliteStore, encryption: EncryptionAtRest) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await engine.close()
    await encryption.close()
