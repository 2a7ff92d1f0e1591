"""Encryption with a key management plugin, and a configuration that changes while the server runs."""

from __future__ import annotations

import asyncio
import base64
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.assembly.encryption_at_rest import EncryptionAtRest
from control.storage import cache
from control.storage.encryption import EncryptionError
from control.storage.kms import provider
from control.storage.kms.plugin import Plugin
from control.storage.sqlite import SqliteStore
from control.storage.store import Unavailable
from kube.json_object import Object
from tests.support.clock import FakeClock
from tests.support.control import ApiUnderTest, api_server
from tests.support.kms import Kms, kms

SECRETS = "/api/v1/namespaces/default/secrets"
KEY = "/registry/secrets/default/{}"
IDENTITY: Object = {"identity": {}}


@pytest.fixture
async def plugin() -> AsyncIterator[Kms]:
    with tempfile.TemporaryDirectory(prefix="kms") as folder:  # a socket's path must be short
        async with kms(Path(folder)) as made:
            yield made


def of_plugin(made: Kms) -> Object:
    return {"kms": {"apiVersion": "v2", "name": "outside", "endpoint": made.endpoint, "timeout": "5s"}}


def secretbox(*names: str) -> Object:
    keys = [{"name": n, "secret": base64.b64encode(n.encode().ljust(32, b"0")).decode()} for n in names]
    return {"secretbox": {"keys": keys}}


def write(path: Path, *providers: Object) -> Path:
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    path.write_text(yaml.safe_dump({**kind, "resources": [{"resources": ["secrets"], "providers": list(providers)}]}))
    return path


async def stored(api: ApiUnderTest, name: str) -> bytes:
    """Return what the engine itself holds."""
    item = await api.api.engine.store.get(KEY.format(name))
    assert item is not None
    return item.value


async def becomes(api: ApiUnderTest, name: str, prefix: bytes) -> None:
    async with asyncio.timeout(30):
        while not (await stored(api, name)).startswith(prefix):
            await asyncio.sleep(0.02)


async def test_a_kms_plugin_keeps_the_key_and_is_called_once(tmp_path: Path, plugin: Kms) -> None:
    path = write(tmp_path / "encryption.yaml", of_plugin(plugin), IDENTITY)
    async with api_server(tmp_path, encryption_config_file=path) as api:
        for name in ("a", "b"):
            made = {"metadata": {"name": name}, "stringData": {"password": "swordfish"}}
            assert (await api.request("POST", SECRETS, made)).status == 201
            value = await stored(api, name)
            assert value.startswith(b"k8s:enc:kms:v2:outside:") and b"swordfish" not in value
        assert plugin.calls == ["encrypt"]
        assert b"[+]kms-providers ok" in (await api.request("GET", "/readyz?verbose")).body
    async with api_server(tmp_path, encryption_config_file=path) as api:
        found = (await api.request("GET", f"{SECRETS}/b")).json["data"]["password"]
        assert base64.b64decode(found) == b"swordfish"
        assert plugin.calls == ["encrypt", "encrypt", "decrypt"], "a server that starts learns the older key once"
    del plugin.keys["one"]
    plugin.rotate("two")
    async with api_server(tmp_path, encryption_config_file=path) as api:
        refused = await api.request("GET", f"{SECRETS}/a")
        assert refused.status == 500 and "no key one" in refused.json["message"]


async def test_a_changed_file_holds_at_once_and_a_bad_one_changes_nothing(tmp_path: Path, plugin: Kms) -> None:
    path = write(tmp_path / "encryption.yaml", IDENTITY)
    async with api_server(tmp_path, encryption_config_file=path, configuration_check=0.02) as api:
        await api.request("POST", SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
        assert (await stored(api, "s")).startswith(b"{")
        write(path, secretbox("one"), IDENTITY)
        await becomes(api, "s", b"k8s:enc:secretbox:v1:one:")
        write(path, secretbox("two", "one"))
        await becomes(api, "s", b"k8s:enc:secretbox:v1:two:")
        path.write_text("kind: Nothing")
        plugin.healthz = "lost"
        metric = 'apiserver_encryption_config_controller_automatic_reloads_total{.*,status="failure"}'
        async with asyncio.timeout(30):
            while not re.search(metric, (await api.request("GET", "/metrics")).body.decode()):
                await asyncio.sleep(0.02)
        await api.request("POST", SECRETS, {"metadata": {"name": "t"}})
        await becomes(api, "t", b"k8s:enc:secretbox:v1:two:")
        plugin.healthz = "ok"
        write(path, of_plugin(plugin), secretbox("two"))
        await becomes(api, "s", b"k8s:enc:kms:v2:outside:")
        assert (await api.request("GET", f"{SECRETS}/s")).json["data"] == {"k": base64.b64encode(b"v").decode()}


async def test_a_kms_plugins_new_key_is_used_and_its_failure_reported(tmp_path: Path, plugin: Kms) -> None:
    path, clock = write(tmp_path / "encryption.yaml", of_plugin(plugin)), FakeClock()
    engine = await SqliteStore.open(tmp_path / "state.db")
    encryption = EncryptionAtRest(path, engine)
    try:
        await encryption.start()
        await encryption.store.create(KEY.format("a"), b"{}")
        task = asyncio.create_task(encryption.run(clock, 3600.0))
        plugin.rotate("two")
        plugin.healthz = "tired"

        async def until(problem: str | None) -> None:
            async with asyncio.timeout(30):
                while encryption.check() != problem:
                    await clock.advance(provider.CHECK_SECONDS)
                    await asyncio.sleep(0.01)

        await until("kms outside: the plugin says 'tired'")
        plugin.healthz = "ok"
        await until(None)
        assert (await encryption.store.rewrite()).number == 1, "what the older key wrote is written anew"
        assert (await encryption.store.rewrite()).number == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    finally:
        await engine.close()
        await encryption.close()


async def test_one_value_that_cannot_be_decrypted_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "encryption.yaml", secretbox("one"), IDENTITY)
    other = "/api/v1/namespaces/other/secrets"
    async with api_server(tmp_path, encryption_config_file=path) as api:
        await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
        for folder in (SECRETS, other):
            assert (await api.request("POST", folder, {"metadata": {"name": "a"}})).status == 201
        item = await api.api.engine.store.get(KEY.format("a"))
        assert item is not None
        await api.api.engine.store.update(item.key, item.value[:-1] + b"?", item.revision)  # damaged
    async with api_server(tmp_path, encryption_config_file=path) as api:
        configmap = {"metadata": {"name": "c"}}
        assert (await api.request("POST", "/api/v1/namespaces/default/configmaps", configmap)).status == 201
        assert (await api.request("GET", f"{other}/a")).status == 200
        assert len((await api.request("GET", other)).json["items"]) == 1
        for url in (f"{SECRETS}/a", SECRETS, "/api/v1/secrets", f"{SECRETS}?watch=1"):
            refused = await api.request("GET", url)
            assert refused.status == 500, url
            assert 'unable to transform key "/registry/secrets/default/a"' in refused.json["message"]
        assert (await api.request("POST", SECRETS, {"metadata": {"name": "a"}})).status == 409
        assert b"[-]encryption-at-rest failed" in (await api.request("GET", "/readyz?verbose")).body
        assert (await api.request("GET", "/livez")).status == 200


async def test_a_plugin_that_is_away_costs_only_its_own_resources_until_it_is_back(
    tmp_path: Path, plugin: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(cache, "RETRY_SECONDS", 0.1)
    path = write(tmp_path / "encryption.yaml", of_plugin(plugin))
    async with api_server(tmp_path, encryption_config_file=path) as api:
        assert (await api.request("POST", SECRETS, {"metadata": {"name": "a"}})).status == 201
    plugin.away = True
    async with api_server(tmp_path, encryption_config_file=path) as api:
        assert (await api.request("GET", "/api/v1/namespaces/default/configmaps")).status == 200
        assert (await api.request("GET", SECRETS)).status == 500
        assert (await api.request("POST", SECRETS, {"metadata": {"name": "b"}})).status == 500
        assert b"[-]kms-providers failed" in (await api.request("GET", "/readyz?verbose")).body
        plugin.away = False
        async with asyncio.timeout(30):
            while (await api.request("GET", "/readyz")).status != 200:
                await asyncio.sleep(0.05)
        assert [s["metadata"]["name"] for s in (await api.request("GET", SECRETS)).json["items"]] == ["a"]
        assert (await api.request("POST", SECRETS, {"metadata": {"name": "b"}})).status == 201


async def test_a_running_server_outlasts_a_value_that_its_plugin_cannot_open(
    tmp_path: Path, plugin: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(cache, "RETRY_SECONDS", 0.1)
    path = write(tmp_path / "encryption.yaml", of_plugin(plugin))
    async with api_server(tmp_path, encryption_config_file=path) as api:
        assert (await api.request("POST", SECRETS, {"metadata": {"name": "a"}})).status == 201
        another = EncryptionAtRest(
            path, api.api.engine.store
        )  # another server, with a seed that this one does not know
        await another.start()
        item = await another.store.get(KEY.format("a"))
        assert item is not None
        plugin.away = True
        await another.store.update(item.key, item.value, item.revision)
        await another.close()
        async with asyncio.timeout(30):
            while (await api.request("GET", f"{SECRETS}/a")).status != 500:
                await asyncio.sleep(0.05)
        configmap = {"metadata": {"name": "c"}}
        assert (await api.request("POST", "/api/v1/namespaces/default/configmaps", configmap)).status == 201
        plugin.away = False
        async with asyncio.timeout(30):
            while (await api.request("GET", f"{SECRETS}/a")).status != 200:
                await asyncio.sleep(0.05)


async def test_a_call_under_way_fails_when_its_plugin_is_taken_out_of_the_configuration(plugin: Kms) -> None:
    client = Plugin("outside", plugin.endpoint, 600.0)
    plugin.hangs = True
    call = asyncio.create_task(client.status())
    async with asyncio.timeout(30):
        await plugin.hanging.wait()
        await client.close()
        with pytest.raises(EncryptionError, match="the connection is closed"):
            await call


async def test_a_configuration_whose_plugin_starts_later_is_used_then(tmp_path: Path, plugin: Kms) -> None:
    path, clock = write(tmp_path / "encryption.yaml", secretbox("one")), FakeClock()
    engine = await SqliteStore.open(tmp_path / "state.db")
    encryption = EncryptionAtRest(path, engine)
    task = asyncio.create_task(encryption.run(clock, 1.0))

    async def until(prefix: bytes) -> None:
        async with asyncio.timeout(30):
            while (item := await engine.get(KEY.format("a"))) is None or not item.value.startswith(prefix):
                await clock.advance(1.0)
                await asyncio.sleep(0.01)

    try:
        await encryption.start()
        await encryption.store.create(KEY.format("a"), b"{}")
        plugin.away = True
        write(path, of_plugin(plugin), secretbox("one"))
        async with asyncio.timeout(30):
            while encryption._file._retry is None:
                await clock.advance(1.0)
                await asyncio.sleep(0.01)
        await until(b"k8s:enc:secretbox:v1:one:")
        plugin.away = False
        await until(b"k8s:enc:kms:v2:outside:")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()
        await encryption.close()


async def test_values_that_cannot_be_encrypted_again_now_are_later(
    tmp_path: Path, plugin: Kms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "RETRY_SECONDS", 0.01)
    path, clock = write(tmp_path / "encryption.yaml", of_plugin(plugin)), FakeClock()
    engine = await SqliteStore.open(tmp_path / "state.db")
    first = EncryptionAtRest(path, engine)
    await first.start()
    await first.store.create(KEY.format("a"), b"{}")
    await first.close()
    plugin.away = True
    encryption = EncryptionAtRest(write(path, secretbox("one"), of_plugin(plugin)), engine)
    await encryption.start()
    task = asyncio.create_task(encryption.run(clock, 3600.0))
    listings, fails = engine.list, 2

    async def failing(*args: Any, **kwargs: Any) -> Any:
        nonlocal fails
        if fails:
            fails -= 1
            raise Unavailable("the store is away")
        return await listings(*args, **kwargs)

    monkeypatch.setattr(engine, "list", failing)
    try:
        plugin.away = False
        async with asyncio.timeout(30):
            while not (await engine.get(KEY.format("a"))).value.startswith(b"k8s:enc:secretbox:"):  # type: ignore[union-attr]
                await clock.advance(1.0)
                await asyncio.sleep(0.01)
        assert not fails
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.close()
        await encryption.close()
