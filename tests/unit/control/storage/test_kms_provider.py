"""A KMS provider with a plugin that fails: intervals of its retries, and seeds that cannot be decrypted now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.storage.encryption import Encryption, EncryptionError
from control.storage.kms import provider
from control.storage.kms.plugin import EncryptedSeed
from control.storage.kms.provider import CHECK_SECONDS, RETRY_SECONDS, KmsProvider
from tests.support.clock import FakeClock


class Plugin:
    """Decrypts what it has encrypted, unless `failure` is set; counts the calls."""

    def __init__(self, name: str = "outside") -> None:
        self.name = name
        self.failure = ""
        self.calls: list[str] = []

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.failure:
            raise EncryptionError(self.failure)

    async def status(self) -> str:
        await self._call("status")
        return "one"

    async def encrypt(self, secret: bytes) -> EncryptedSeed:
        await self._call("encrypt")
        return EncryptedSeed(secret[::-1], "one", {})

    async def decrypt(self, encrypted: EncryptedSeed) -> bytes:
        await self._call("decrypt")
        return encrypted.ciphertext[::-1]


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
