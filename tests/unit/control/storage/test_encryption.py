from __future__ import annotations

import asyncio
import base64
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from control.storage import encryption_configuration
from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, EncryptionError, Secretbox
from control.storage.memory import MemoryStore
from control.storage.sqlite import SqliteStore
from control.storage.store import Unreadable

PREFIXES = {
    "secrets": "/registry/secrets/",
    "configmaps": "/registry/configmaps/",
    "deployments.apps": "/registry/deployments/",
}
KEY = "/registry/secrets/default/s"


def keys(cipher: str, *names: str) -> dict[str, Any]:
    secrets = [{"name": n, "secret": base64.b64encode(n.encode().ljust(32, b"0")).decode()} for n in names]
    return {cipher: {"keys": secrets}}


def key(cipher: str, name: str, secret: bytes) -> dict[str, Any]:
    return {cipher: {"keys": [{"name": name, "secret": base64.b64encode(secret * 32).decode()}]}}


def configured(*providers: dict[str, Any], resources: tuple[str, ...] = ("secrets",)) -> Encryption:
    entry = {"resources": list(resources), "providers": list(providers)}
    config = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]}
    return encryption_configuration.parse(json.dumps(config).encode(), PREFIXES)


@pytest.mark.parametrize("cipher", ["aesgcm", "aescbc", "secretbox"])
def test_encrypted_values_decrypt_and_do_not_contain_the_plain_text(cipher: str) -> None:
    encryption = configured(keys(cipher, "one"))
    encrypted = encryption.encrypt(KEY, b"the password is swordfish")
    assert encrypted.startswith(b"k8s:enc:%b:v1:one:" % cipher.encode()) and b"swordfish" not in encrypted
    assert encryption.decrypt(KEY, encrypted) == b"the password is swordfish"
    assert encryption.encrypt(KEY, b"same") != encryption.encrypt(KEY, b"same")


def test_other_resources_are_left_alone() -> None:
    encryption = configured(keys("aesgcm", "one"))
    assert encryption.encrypt("/registry/configmaps/default/c", b"{}") == b"{}"


def test_the_first_key_writes_and_all_read() -> None:
    old, both = configured(keys("aescbc", "old")), configured(keys("aesgcm", "new"), keys("aescbc", "old"))
    encrypted = old.encrypt(KEY, b"x")
    assert both.decrypt(KEY, encrypted) == b"x" and both.stale(KEY, encrypted)
    assert both.encrypt(KEY, b"x").startswith(b"k8s:enc:aesgcm:v1:new:")
    with pytest.raises(EncryptionError, match="key that is not configured"):
        configured(keys("aesgcm", "new")).decrypt(KEY, encrypted)


def test_a_value_that_was_moved_or_changed_is_not_believed() -> None:
    encryption = configured(keys("aesgcm", "one"))
    encrypted = encryption.encrypt(KEY, b"x")
    for key, value in ((KEY + "2", encrypted), (KEY, encrypted[:-1] + bytes([encrypted[-1] ^ 1]))):
        with pytest.raises(EncryptionError, match="cannot be decrypted"):
            encryption.decrypt(key, value)


def test_plain_text_is_believed_only_where_identity_is_named() -> None:
    with pytest.raises(EncryptionError, match="stored as plain text"):
        configured(keys("aesgcm", "one")).decrypt(KEY, b"{}")
    assert configured(keys("aesgcm", "one"), {"identity": {}}).decrypt(KEY, b"{}") == b"{}"


@pytest.mark.parametrize(
    "resources, key, encrypted",
    [
        (("*.*",), "/registry/anything/x", True),
        (("*.apps",), "/registry/deployments/a/b", True),
        (("*.apps",), KEY, False),
        (("*.",), "/registry/configmaps/a/b", True),
        (("*.acme.example",), "/registry/acme.example/things/a/b", True),
        (("things.acme.example",), "/registry/acme.example/things/a/b", True),
        (("things.acme.example",), "/registry/acme.example/others/a/b", False),
    ],
)
def test_resources_are_named_with_wildcards(resources: tuple[str, ...], key: str, encrypted: bool) -> None:
    found = configured(keys("aesgcm", "one"), resources=resources).encrypt(key, b"{}")
    assert found.startswith(b"k8s:enc:") is encrypted


@pytest.mark.parametrize(
    "provider, resource, why",
    [
        ({"vault": {"keys": []}}, "secrets", "provider vault is not supported; use aesgcm"),
        ({"secretbox": {"keys": []}}, "secrets", "has no keys"),
        ({"secretbox": {"keys": [{"name": "k", "secret": "QUFBQUFBQUFBQUFBQUFBQQ=="}]}}, "secrets", "16 bytes, not 32"),
        ({"aesgcm": {"keys": [{"name": "", "secret": "AAAA"}]}}, "secrets", "name: is required"),
        ({"aesgcm": {"keys": [{"name": "a:b", "secret": "AAAA"}]}}, "secrets", "has no colon"),
        (keys("aesgcm", "k", "k"), "secrets", r"keys\[1\].name: Duplicate value: 'k'"),
        ({"aesgcm": {}, "identity": {}}, "secrets", "each provider is an entry of its own"),
        ({"kms": {"name": "k", "endpoint": "unix:///x"}}, "secrets", "kms.apiVersion: must be v2"),
        ({"kms": {"apiVersion": "v2", "endpoint": "unix:///x"}}, "secrets", "kms.name: is required"),
        (
            {"kms": {"apiVersion": "v2", "name": "k", "endpoint": "http://x"}},
            "secrets",
            "kms.endpoint: must be a socket",
        ),
        (
            {"kms": {"apiVersion": "v2", "name": "k", "endpoint": "unix:///x", "timeout": "-1s"}},
            "secrets",
            "kms.timeout: must be positive",
        ),
        ({"aesgcm": {"keys": []}}, "secrets", "has no keys"),
        ({"aesgcm": {"keys": [{"name": "k", "secret": "AAAA"}]}}, "secrets", "has 3 bytes"),
        ({"aesgcm": {"keys": [{"name": "k", "secret": "%"}]}}, "secrets", "not base64"),
        ({"identity": {}}, "things", "unknown resource things"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_reported(provider: dict[str, Any], resource: str, why: str) -> None:
    with pytest.raises(EncryptionError, match=why):
        configured(provider, resources=(resource,))


async def test_the_file_shows_no_secret_and_a_rotation_needs_the_old_key_once(tmp_path: Path) -> None:
    identity: dict[str, Any] = {"identity": {}}
    path = tmp_path / "state.db"

    async def stored() -> bytes:
        engine = await SqliteStore.open(path)
        try:
            item = await engine.get(KEY)
            assert item is not None
            return item.value
        finally:
            await engine.close()

    async def run(*providers: dict[str, Any], write: bytes = b"") -> bytes:
        """Open the store under a configuration, perhaps write, and return what it reads."""
        store = EncryptedStore(await SqliteStore.open(path), configured(*providers))
        try:
            if write:
                await store.create(KEY, write)
            await store.rewrite()
            item = await store.get(KEY)
            assert item is not None
            return item.value
        finally:
            await store.close()

    assert await run(identity, write=b"swordfish") == b"swordfish" == await stored()
    assert await run(keys("aesgcm", "one"), identity) == b"swordfish"
    assert b"swordfish" not in await stored()
    assert await run(keys("aesgcm", "two"), keys("aesgcm", "one")) == b"swordfish"
    assert await run(keys("aesgcm", "two")) == b"swordfish"
    assert await run(identity, keys("aesgcm", "two")) == b"swordfish" == await stored()


async def test_a_key_that_was_taken_out_while_the_store_is_open_still_reads_but_plain_text_is_not_believed(
    tmp_path: Path,
) -> None:
    engine = await SqliteStore.open(tmp_path / "state.db")
    plain = "/registry/secrets/default/plain"
    await engine.create(plain, b"{}")
    store = EncryptedStore(engine, configured(keys("aesgcm", "old"), {"identity": {}}))
    try:
        await store.create(KEY, b"{}")
        assert (await store.get(plain)) is not None
        store.replace(configured(keys("secretbox", "new")))
        item = await store.get(KEY)
        assert item is not None and item.value == b"{}"
        with pytest.raises(Unreadable, match="stored as plain text"):
            await store.get(plain)
    finally:
        await store.close()


def test_secretbox_is_the_cipher_of_that_name() -> None:
    """Values of another implementation of XSalsa20-Poly1305 are decrypted (the vector of NaCl's tests/secretbox.c)."""
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    text = bytes.fromhex("be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc")
    encrypted = bytes.fromhex(
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
    )
    decrypted = Secretbox(b"", key).decrypt(nonce + encrypted, b"")
    assert decrypted.startswith(text) and len(decrypted) == len(encrypted) - 16


@pytest.mark.parametrize("cipher", ["aesgcm", "secretbox"])
async def test_values_of_a_key_that_was_replaced_under_its_name_are_encrypted_again(
    tmp_path: Path, cipher: str
) -> None:
    engine = await SqliteStore.open(tmp_path / "state.db")
    store = EncryptedStore(engine, configured(key(cipher, "one", b"a")))
    try:
        await store.create(KEY, b"{}")
        former = store.encryption
        store.replace(configured(key(cipher, "one", b"b")))
        assert await store.rewrite() == (1, 0, 0)
        assert await store.rewrite() == (0, 0, 0)
        store.drop(former)
        item = await store.get(KEY)
        assert item is not None and item.value == b"{}"
    finally:
        await store.close()


async def test_values_of_a_resource_that_was_taken_out_of_the_configuration_become_plain_text(tmp_path: Path) -> None:
    engine = await SqliteStore.open(tmp_path / "state.db")
    store = EncryptedStore(engine, configured(keys("aesgcm", "one"), resources=("secrets", "configmaps")))
    try:
        await store.create(KEY, b"{}")
        former = store.encryption
        store.replace(configured(keys("aesgcm", "one"), resources=("configmaps",)))
        assert await store.rewrite() == (1, 0, 0)
        store.drop(former)
        item, stored = await store.get(KEY), await engine.get(KEY)
        assert item is not None and stored is not None and item.value == stored.value == b"{}"
    finally:
        await store.close()


async def test_two_keys_of_one_name_both_decrypt_and_values_of_the_second_are_encrypted_again(tmp_path: Path) -> None:
    engine = await SqliteStore.open(tmp_path / "state.db")
    store = EncryptedStore(engine, configured(key("aesgcm", "one", b"a")))
    try:
        await store.create(KEY, b"{}")
        both = EncryptedStore(engine, configured(key("aesgcm", "one", b"b"), key("aesgcm", "one", b"a")))
        item = await both.get(KEY)
        assert item is not None and item.value == b"{}"
        assert await both.rewrite() == (1, 0, 0)
        fresh = await EncryptedStore(engine, configured(key("aesgcm", "one", b"b"))).get(KEY)
        assert fresh is not None and fresh.value == b"{}"
    finally:
        await store.close()


def test_two_keys_of_one_name_are_rejected_where_a_wrong_one_is_not_detected() -> None:
    with pytest.raises(EncryptionError, match="aescbc key one has two secrets"):
        configured(key("aescbc", "one", b"b"), key("aescbc", "one", b"a"))
    configured(key("aescbc", "one", b"a"), key("aescbc", "one", b"a"))


async def test_a_watch_yields_to_the_event_loop_while_it_decrypts_many_changes() -> None:
    store = EncryptedStore(MemoryStore(), configured(keys("aesgcm", "one")))
    for number in range(20):
        await store.create(f"/registry/secrets/default/{number}", b"x" * 200_000)
    iterations, done = 0, asyncio.Event()

    async def iterate() -> None:
        nonlocal iterations
        while not done.is_set():
            iterations += 1
            await asyncio.sleep(0)

    async with aclosing(store.watch("/registry/", 0)) as watch:
        others = asyncio.create_task(iterate())
        batch = await anext(watch)
        done.set()
        await others
    assert [event.value for event in batch.events] == [b"x" * 200_000] * 20
    assert iterations >= 10
    await store.close()
