from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from control.storage.encrypted_store import EncryptedStore
from control.storage.encryption import Encryption, EncryptionError
from control.storage.sqlite import SqliteStore

PREFIXES = {
    "secrets": "/registry/secrets/",
    "configmaps": "/registry/configmaps/",
    "deployments.apps": "/registry/deployments/",
}
KEY = "/registry/secrets/default/s"


def keys(cipher: str, *names: str) -> dict[str, Any]:
    secrets = [{"name": n, "secret": base64.b64encode(n.encode().ljust(32, b"0")).decode()} for n in names]
    return {cipher: {"keys": secrets}}


def configured(*providers: dict[str, Any], resources: tuple[str, ...] = ("secrets",)) -> Encryption:
    entry = {"resources": list(resources), "providers": list(providers)}
    config = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [entry]}
    return Encryption.parse(json.dumps(config).encode(), PREFIXES)


@pytest.mark.parametrize("cipher", ["aesgcm", "aescbc"])
def test_what_is_sealed_is_opened_again_and_shows_nothing(cipher: str) -> None:
    encryption = configured(keys(cipher, "one"))
    sealed = encryption.seal(KEY, b"the password is swordfish")
    assert sealed.startswith(b"k8s:enc:%b:v1:one:" % cipher.encode()) and b"swordfish" not in sealed
    assert encryption.open(KEY, sealed) == b"the password is swordfish"
    assert encryption.seal(KEY, b"same") != encryption.seal(KEY, b"same")


def test_other_resources_are_left_alone() -> None:
    encryption = configured(keys("aesgcm", "one"))
    assert encryption.seal("/registry/configmaps/default/c", b"{}") == b"{}"


def test_the_first_key_writes_and_all_read() -> None:
    old, both = configured(keys("aescbc", "old")), configured(keys("aesgcm", "new"), keys("aescbc", "old"))
    sealed = old.seal(KEY, b"x")
    assert both.open(KEY, sealed) == b"x" and both.stale(KEY, sealed)
    assert both.seal(KEY, b"x").startswith(b"k8s:enc:aesgcm:v1:new:")
    with pytest.raises(EncryptionError, match="key that is not configured"):
        configured(keys("aesgcm", "new")).open(KEY, sealed)


def test_a_value_that_was_moved_or_changed_is_not_believed() -> None:
    encryption = configured(keys("aesgcm", "one"))
    sealed = encryption.seal(KEY, b"x")
    for key, value in ((KEY + "2", sealed), (KEY, sealed[:-1] + bytes([sealed[-1] ^ 1]))):
        with pytest.raises(EncryptionError, match="cannot be decrypted"):
            encryption.open(key, value)


def test_plain_text_is_believed_only_where_identity_is_named() -> None:
    with pytest.raises(EncryptionError, match="stored as plain text"):
        configured(keys("aesgcm", "one")).open(KEY, b"{}")
    assert configured(keys("aesgcm", "one"), {"identity": {}}).open(KEY, b"{}") == b"{}"


@pytest.mark.parametrize(
    "resources, key, sealed",
    [
        (("*.*",), "/registry/anything/x", True),
        (("*.apps",), "/registry/deployments/a/b", True),
        (("*.apps",), KEY, False),
        (("*.",), "/registry/configmaps/a/b", True),
    ],
)
def test_resources_are_named_with_wildcards(resources: tuple[str, ...], key: str, sealed: bool) -> None:
    found = configured(keys("aesgcm", "one"), resources=resources).seal(key, b"{}")
    assert found.startswith(b"k8s:enc:") is sealed


@pytest.mark.parametrize(
    "provider, resource, why",
    [
        ({"secretbox": {"keys": []}}, "secrets", "not supported"),
        ({"aesgcm": {"keys": []}}, "secrets", "has no keys"),
        ({"aesgcm": {"keys": [{"name": "k", "secret": "AAAA"}]}}, "secrets", "has 3 bytes"),
        ({"aesgcm": {"keys": [{"name": "k", "secret": "%"}]}}, "secrets", "not base64"),
        ({"identity": {}}, "things", "unknown resource things"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told(provider: dict[str, Any], resource: str, why: str) -> None:
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
