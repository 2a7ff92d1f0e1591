"""A KMS provider with a plugin that fails: intervals of its retries, and seeds that cannot be decrypted now."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from control.storage import cache, codec, encrypted_store
from control.storage.cache import WatchCache
from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, EncryptionError, Identity
from control.storage.kms import messages, provider
from control.storage.kms import plugin as plugin_client
from control.storage.kms.plugin import EncryptedSeed, PluginUnavailable
from control.storage.kms.provider import CHECK_SECONDS, RETRY_SECONDS, KmsProvider
from control.storage.sqlite import SqliteStore
from tests.support.clock import FakeClock

SECRETS, PODS = "/registry/secrets/", "/registry/pods/"


class Plugin:
    """Decrypts what it has encrypted, unless `failure` is set; counts the calls."""

    def __init__(self, name: str = "outside") -> None:
        self.name = name
        self.failure = ""
        self.timeout: float | None = None
        """Seconds after which calls that hang end."""
        self.continues = asyncio.Event()
        self.calls: list[str] = []
        self.away: set[bytes] = set()
        """Encrypted seeds whose Decrypt calls end with UNAVAILABLE."""
        self.encrypts = True

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.timeout is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeout):
                    await self.continues.wait()
                return
            raise PluginUnavailable(f"{self.name} does not answer")
        if self.failure:
            raise EncryptionError(self.failure)

    async def close(self) -> None:
        self.continues.set()

    async def status(self) -> str:
        await self._call("status")
        return "one"

    async def encrypt(self, secret: bytes) -> EncryptedSeed:
        await self._call("encrypt")
        if not self.encrypts:
            raise PluginUnavailable("no Encrypt")
        return EncryptedSeed(secret[::-1], "one", {})

    async def decrypt(self, encrypted: EncryptedSeed) -> bytes:
        await self._call("decrypt")
        if encrypted.ciphertext in self.away:
            raise PluginUnavailable("the key's backend does not answer")
        return encrypted.ciphertext[::-1]


def stored(kind: str, name: str) -> bytes:
    return codec.encode({"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}})


def made(plugin: Plugin) -> KmsProvider:
    given: Any = plugin
    return KmsProvider(given)


async def test_a_plugin_is_checked_each_minute_and_each_three_seconds_while_it_fails() -> None:
    plugin, clock = Plugin(), FakeClock()
    tested = made(plugin)
    await tested.start()
    plugin.calls.clear()
    task = asyncio.create_task(tested.poll_status(clock))
    await clock.advance(5 * CHECK_SECONDS + 1)
    assert plugin.calls == ["status"] * 5 and tested.problem is None
    plugin.failure = "away"
    await clock.advance(CHECK_SECONDS)
    assert tested.problem == "away"
    plugin.calls.clear()
    await clock.advance(5 * RETRY_SECONDS)
    assert plugin.calls == ["status"] * 5
    plugin.failure = ""
    await clock.advance(RETRY_SECONDS)
    assert tested.problem is None
    plugin.calls.clear()
    await clock.advance(CHECK_SECONDS - 2)
    assert plugin.calls == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_plugin_that_fails_is_called_once_for_the_values_of_a_seed_and_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "RETRY_SECONDS", 0.05)
    plugin = Plugin()
    writer = made(plugin)
    await writer.start()
    values = [writer.encrypt(b"v", f"/{number}".encode()) for number in range(10)]
    reader = made(plugin)
    plugin.calls.clear()
    plugin.failure = "away"
    for value in values:
        with pytest.raises(EncryptionError, match="away"):
            await reader.fetch_key(value)
    assert plugin.calls == ["decrypt"]
    plugin.failure = ""
    await asyncio.sleep(0.06)
    for number, value in enumerate(values):
        await reader.fetch_key(value)
        assert reader.decrypt(value, f"/{number}".encode()) == b"v"
    assert plugin.calls == ["decrypt"] * 2


async def test_the_interval_of_retries_begins_when_the_call_has_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "RETRY_SECONDS", 0.05)
    plugin = Plugin()
    writer = made(plugin)
    await writer.start()
    value, reader = writer.encrypt(b"v", b"/a"), made(plugin)
    plugin.calls.clear()
    plugin.timeout = 0.06  # longer than the interval
    for _ in range(3):
        with pytest.raises(EncryptionError, match="does not answer"):
            await reader.fetch_key(value)
    assert plugin.calls == ["decrypt", "status"]


async def test_readers_of_a_seed_share_a_call_and_one_of_them_may_be_cancelled() -> None:
    plugin = Plugin()
    writer = made(plugin)
    await writer.start()
    value, reader = writer.encrypt(b"v", b"/a"), made(plugin)
    plugin.calls.clear()
    tasks = [asyncio.create_task(reader.fetch_key(value)) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(*tasks[1:])
    assert plugin.calls == ["decrypt"]


async def seeds(plugin: Plugin, number: int) -> list[bytes]:
    """Return values of so many seeds."""
    values = []
    for _ in range(number):
        writer = made(plugin)
        await writer.start()
        values.append(writer.encrypt(b"v", b"/a"))
    plugin.calls.clear()
    return values


async def test_a_plugin_that_does_not_answer_is_called_once_for_all_seeds() -> None:
    plugin = Plugin()
    reader, values = made(plugin), await seeds(plugin, 5)
    plugin.timeout = 0.0
    for value in values:
        with pytest.raises(EncryptionError, match="does not answer"):
            await reader.fetch_key(value)
    assert plugin.calls == ["decrypt", "status"]
    plugin.timeout = None
    await reader.start()  # it answers again
    await reader.fetch_key(values[1])


def source(value: bytes) -> bytes:
    return messages.EncryptedObject.FromString(value).encryptedDEKSource


async def test_a_seed_whose_backend_does_not_answer_makes_no_other_seed_unreadable() -> None:
    plugin = Plugin()
    reader, (bad, *good) = made(plugin), await seeds(plugin, 4)
    plugin.away = {source(bad)}
    for _ in range(2):
        with pytest.raises(EncryptionError, match="backend does not answer"):
            await reader.fetch_key(bad)
        for value in good:
            await reader.fetch_key(value)
    assert plugin.calls == ["decrypt", "status"] + ["decrypt"] * 3 and reader.problem is None


async def test_concurrent_calls_that_fail_share_one_status_call() -> None:
    plugin = Plugin()
    reader, values = made(plugin), await seeds(plugin, 2)
    plugin.timeout = 0.0
    found = await asyncio.gather(*(reader.fetch_key(value) for value in values), return_exceptions=True)
    assert all(isinstance(each, EncryptionError) for each in found)
    assert sorted(plugin.calls) == ["decrypt", "decrypt", "status"]


async def test_a_plugin_that_answers_only_status_is_called_for_a_few_seeds() -> None:
    """Otherwise a list waits for one timeout of each seed."""
    plugin = Plugin()
    reader, values = made(plugin), await seeds(plugin, 20)
    plugin.away = {source(value) for value in values}
    for value in values:
        with pytest.raises(EncryptionError, match="backend does not answer"):
            await reader.fetch_key(value)
    assert plugin.calls.count("decrypt") == provider.UNANSWERED_SEEDS


async def test_an_encrypt_call_that_is_not_answered_prevents_no_decrypt_call() -> None:
    plugin = Plugin()
    reader, (value,) = made(plugin), await seeds(plugin, 1)
    plugin.encrypts = False
    with pytest.raises(EncryptionError, match="no Encrypt"):
        await reader.start()
    await reader.fetch_key(value)


async def test_the_interval_of_a_seeds_retries_is_doubled_up_to_a_minute() -> None:
    """Values of several such seeds in a list would wait for a timeout each, as the interval of the first has expired."""
    failure, intervals = None, [3, 6, 12, 24, 48, 60, 60]
    now = asyncio.get_running_loop().time
    for interval in intervals:
        earliest = now()
        failure = provider._failure(EncryptionError("away"), failure)
        assert earliest + interval <= failure.retry_at <= now() + interval


async def test_values_of_other_seeds_become_readable_while_several_backends_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cache, provider):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)
    plugin, engine = Plugin(), await SqliteStore.open(tmp_path / "state.db")
    sources = []
    for number in range(6):
        writer = made(plugin)
        store = EncryptedStore(engine, Encryption([(SECRETS, [writer])]))
        await store.encryption.start()
        await store.create(f"{SECRETS}default/{number}", stored("Secret", str(number)))
        assert writer._write_seed is not None
        sources.append(writer._write_seed[1].ciphertext)
    plugin.away = set(sources[:-1])
    watched = WatchCache(EncryptedStore(engine, Encryption([(SECRETS, [made(plugin)])])))
    secrets = watched.resource(SECRETS, "Secret", "v1")
    task = asyncio.create_task(watched.run())
    try:
        await watched.wait_ready()
        assert len(secrets.unreadable) == 6
        async with asyncio.timeout(30):
            while len(secrets.unreadable) == 6:
                await asyncio.sleep(0.01)
        assert f"{SECRETS}default/5" not in secrets.unreadable
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()


async def test_a_server_that_starts_without_its_plugin_waits_for_it_once_and_not_for_each_value(tmp_path: Path) -> None:
    plugin, engine = Plugin(), await SqliteStore.open(tmp_path / "state.db")
    for _ in range(3):  # of three seeds
        store = EncryptedStore(engine, Encryption([(SECRETS, [made(plugin)])]))
        await store.encryption.start()
        for number in range(3):
            await store.create(f"{SECRETS}default/{len(plugin.calls)}-{number}", stored("Secret", "s"))
    plugin.calls.clear()
    plugin.timeout = 0.0
    started = EncryptedStore(engine, Encryption([(SECRETS, [made(plugin)])]))
    with pytest.raises(EncryptionError, match="does not answer"):
        await started.encryption.start()
    watched = WatchCache(started)
    secrets = watched.resource(SECRETS, "Secret", "v1")
    task = asyncio.create_task(watched.run())
    try:
        await watched.wait_ready()
        assert len(secrets.unreadable) == 9 and plugin.calls == ["status"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()


async def test_a_seed_that_the_plugin_refuses_prevents_no_call_for_another() -> None:
    plugin = Plugin()
    reader, (first, second) = made(plugin), await seeds(plugin, 2)
    plugin.failure = "no such key"
    with pytest.raises(EncryptionError, match="no such key"):
        await reader.fetch_key(first)
    plugin.failure = ""
    await reader.fetch_key(second)
    assert plugin.calls == ["decrypt"] * 2


async def test_a_plugin_that_hangs_delays_no_other_resources_in_the_watch_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (encrypted_store, provider):
        monkeypatch.setattr(module, "WATCH_KEY_SECONDS", 0.02, raising=False)
    monkeypatch.setattr(cache, "RETRY_SECONDS", 0.05)
    plugin, engine = Plugin(), await SqliteStore.open(tmp_path / "state.db")
    one, other = (EncryptedStore(engine, Encryption([(SECRETS, [made(plugin)])])) for _ in range(2))
    watched = WatchCache(one)
    secrets, pods = (watched.resource(f"/registry/{k.lower()}s/", k, "v1") for k in ("Secret", "Pod"))
    task = asyncio.create_task(watched.run())
    try:
        await watched.wait_ready()
        await other.encryption.start()  # another server, whose seed this one does not know
        plugin.timeout = 3600.0
        for number in range(5):
            await other.create(f"{SECRETS}default/{number}", stored("Secret", str(number)))
        await other.create(f"{PODS}default/p", stored("Pod", "p"))
        async with asyncio.timeout(30):
            while pods.get(f"{PODS}default/p") is None:
                await asyncio.sleep(0.01)
        assert plugin.calls.count("decrypt") == 1 and len(secrets.unreadable) == 5
        plugin.continues.set()
        async with asyncio.timeout(30):
            while secrets.unreadable:
                await asyncio.sleep(0.01)
        assert len(secrets) == 5
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.encryption.close()
        await engine.close()


async def test_plugins_that_fail_do_not_keep_the_others_from_starting() -> None:
    plugins = [Plugin(name) for name in ("one", "two", "three", "four")]
    for failing in (plugins[0], plugins[2]):
        failing.failure = f"{failing.name} is away"
    encryption = Encryption([(f"/registry/{plugin.name}/", [made(plugin)]) for plugin in plugins])
    with pytest.raises(EncryptionError, match="one is away"):
        await encryption.start()
    for name in ("two", "four"):
        assert encryption.encrypt(f"/registry/{name}/a", b"{}").startswith(f"k8s:enc:kms:v2:{name}:".encode())
    for name in ("one", "three"):
        with pytest.raises(EncryptionError, match="no key to write with"):
            encryption.encrypt(f"/registry/{name}/a", b"{}")
    assert encryption.check() == "one is away"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"ciphertext": b"x" * 1024, "annotations": {"a.b": b"x" * (32 * 1024 - 3)}}, ""),
        ({"ciphertext": b"x" * 1025}, "encrypted DEK source is 1025 bytes, which exceeds the max size of 1024"),
        ({"ciphertext": b""}, "encrypted DEK source is empty"),
        (
            {"ciphertext": b"x", "annotations": {"a.b": b"x" * (32 * 1024 - 2)}},
            "total size of annotations is 32769, which exceeds the max size of 32768",
        ),
        ({"ciphertext": b"x", "annotations": {"plain": b"x"}}, "annotation 'plain' is no domain"),
        ({"ciphertext": b"x", "key_id": "ü" * 513}, "a key ID must have 1 to 1024 bytes"),
    ],
)
async def test_seeds_of_a_plugin_are_limited_as_upstream(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], problem: str
) -> None:
    """Each value that is stored has them in it."""
    outside = plugin_client.Plugin("outside", "unix:///none", 3.0)

    async def call(method: str, request: Any, kind: Any) -> Any:
        return messages.EncryptResponse(**{"key_id": "one", **answer})

    monkeypatch.setattr(outside, "_call", call)
    try:
        if problem:
            with pytest.raises(EncryptionError, match=problem):
                await outside.encrypt(b"seed")
        else:
            assert (await outside.encrypt(b"seed")).key_id == "one"
    finally:
        await outside.close()


async def test_a_damaged_value_keeps_no_other_from_being_encrypted_again(tmp_path: Path) -> None:
    tested, engine = made(Plugin()), await SqliteStore.open(tmp_path / "state.db")
    await tested.start()
    store = EncryptedStore(engine, Encryption([(SECRETS, [tested, Identity()])]))
    try:
        for damaged in ("a", "b"):
            await engine.create(SECRETS + damaged, tested.prefix + b"\xff\xff\xff")
        await engine.create(SECRETS + "c", b"plain")
        assert await store.rewrite() == encrypted_store.Rewritten(number=1, unreadable=2)
        item = await engine.get(SECRETS + "c")
        assert item is not None and item.value.startswith(tested.prefix)
    finally:
        await engine.close()


async def test_values_of_another_plugin_of_the_same_name_and_key_id_are_encrypted_again(tmp_path: Path) -> None:
    former, present = Plugin(), Plugin()
    store = EncryptedStore(await SqliteStore.open(tmp_path / "state.db"), Encryption([(SECRETS, [made(former)])]))
    try:
        await store.encryption.start()
        before = store.encryption
        made_item = await store.create(SECRETS + "a", b"{}")
        raw = await store._store.get(made_item.key)
        assert raw is not None
        present.away.add(messages.EncryptedObject.FromString(raw.value.split(b":", 5)[5]).encryptedDEKSource)
        fresh = Encryption([(SECRETS, [made(present)])])
        await fresh.start()
        store.replace(fresh)
        assert await store.rewrite() == (1, 0, 0)
        store.drop(before)
        item = await store.get(SECRETS + "a")
        assert item is not None and item.value == b"{}"
    finally:
        await store.encryption.close()
        await store.close()
