"""EncryptionConfiguration (apiserver.config.k8s.io): the encrypted resources and their keys.

Invalid configurations are rejected with the field in the message, before any value is encrypted with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from control.storage.encryption import Cbc, Encryption, EncryptionError, Gcm, Identity, Provider, Secretbox, described
from kube import base64_text, duration

_CIPHERS: dict[str, type[Gcm] | type[Cbc] | type[Secretbox]] = {"aesgcm": Gcm, "aescbc": Cbc, "secretbox": Secretbox}
_SIZES = {"aesgcm": (16, 24, 32), "aescbc": (16, 24, 32), "secretbox": (32,)}
_KMS_TIMEOUT = 3.0


def parse(text: bytes, prefixes: Mapping[str, str]) -> Encryption:
    """Parse a file's text; `prefixes` maps a resource ("secrets") to its folder in the store. Raises EncryptionError."""
    try:
        found = msgspec.yaml.decode(text)
    except msgspec.DecodeError as error:
        raise EncryptionError(f"the encryption configuration is not YAML: {error}") from error
    if not isinstance(found, dict) or found.get("kind") != "EncryptionConfiguration":
        raise EncryptionError("the encryption configuration is not of kind EncryptionConfiguration")
    rules: list[tuple[str, Sequence[Provider]]] = []
    plugins: set[str] = set()
    for number, entry in enumerate(_list(found, "resources", "")):
        path = f"resources[{number}]"
        given = [_provider(p, f"{path}.providers[{i}]") for i, p in enumerate(_list(entry, "providers", path))]
        providers = [p for each in given for p in each]
        if not providers:
            raise EncryptionError(f"{path}: resources without providers")
        for provider in providers:
            name = provider.prefix.decode()
            if name.startswith("k8s:enc:kms:") and name in plugins:
                raise EncryptionError(f"{path}: there are two kms providers of one name")
            plugins.add(name)
        names = _list(entry, "resources", path)
        if not names:
            raise EncryptionError(f"{path}.resources: at least one is required")
        for name in names:
            rules += [(prefix, providers) for prefix in _prefixes(str(name), prefixes)]
    if not rules:
        raise EncryptionError("the encryption configuration names no resources")
    encryption = Encryption(rules)
    for key in encryption.replaced_keys(encryption):
        if isinstance(key, Cbc):  # a wrong key of other ciphers is detected, and the next one tried
            raise EncryptionError(f"{described(key)} has two secrets: aescbc does not detect a wrong one")
    return encryption


def _list(holder: Any, name: str, path: str) -> list[Any]:
    found = (holder.get(name) if isinstance(holder, dict) else None) or []
    if not isinstance(found, list):
        raise EncryptionError(f"{path}.{name}: must be a list".lstrip("."))
    return found


def _prefixes(name: str, prefixes: Mapping[str, str]) -> list[str]:
    if name == "*.*":
        return ["/registry/"]
    if name == "*.":
        return sorted({p for target, p in prefixes.items() if "." not in target})
    if name.startswith("*."):
        known = sorted({p for target, p in prefixes.items() if target.partition(".")[2] == name[2:]})
        # A group of custom resources, which are in the folder of the group.
        return known or [f"/registry/{name[2:]}/"]
    if name in prefixes:
        return [prefixes[name]]
    plural, _, group = name.partition(".")
    if "." not in group:
        raise EncryptionError(f"unknown resource {name}")
    return [f"/registry/{group}/{plural}/"]


def _provider(given: Any, path: str) -> list[Provider]:
    """Return the providers of one entry, one for each key."""
    if not isinstance(given, dict) or len(given) != 1:
        raise EncryptionError(f"{path}: each provider is an entry of its own")
    [(name, settings)] = given.items()
    if name == "identity":
        return [Identity()]
    if name == "kms":
        return [_kms(settings or {}, f"{path}.kms")]
    if name not in _CIPHERS:
        known = "aesgcm, aescbc, secretbox, kms or identity"
        raise EncryptionError(f"{path}: provider {name} is not supported; use {known}")
    found: list[Provider] = []
    seen: set[str] = set()
    for index, key in enumerate(_list(settings or {}, "keys", f"{path}.{name}")):
        label = str(key.get("name") or "") if isinstance(key, dict) else ""
        where = f"{path}.{name}.keys[{index}]"
        if not label or ":" in label:
            raise EncryptionError(f"{where}.name: is required, and has no colon")
        if label in seen:
            raise EncryptionError(f"{where}.name: Duplicate value: {label!r}")
        seen.add(label)
        try:
            secret = base64_text.decode(str(key.get("secret") or ""))
        except ValueError as error:
            raise EncryptionError(f"the secret of key {label} is not base64") from error
        if len(secret) not in _SIZES[name]:
            sizes = " or ".join(map(str, _SIZES[name]))
            raise EncryptionError(f"the secret of key {label} has {len(secret)} bytes, not {sizes}")
        found.append(_CIPHERS[name](f"k8s:enc:{name}:v1:{label}:".encode(), secret))
    if not found:
        raise EncryptionError(f"{path}: provider {name} has no keys")
    return found


def _kms(settings: Mapping[str, Any], path: str) -> Provider:
    if settings.get("apiVersion") != "v2":
        raise EncryptionError(f"{path}.apiVersion: must be v2 (v1 is deprecated and off)")
    name, endpoint = str(settings.get("name") or ""), str(settings.get("endpoint") or "")
    if not name or ":" in name:
        raise EncryptionError(f"{path}.name: is required, and has no colon")
    if not endpoint.startswith("unix:///"):
        raise EncryptionError(f"{path}.endpoint: must be a socket, as unix:///run/kms.sock")
    try:
        timeout = duration.parse(str(settings["timeout"])) if settings.get("timeout") else _KMS_TIMEOUT
    except ValueError as error:
        raise EncryptionError(f"{path}.timeout: {error}") from error
    if timeout <= 0:
        raise EncryptionError(f"{path}.timeout: must be positive")
    # grpc needs 25 MB of memory: it is imported only with a plugin or etcd.
    from control.storage.kms.plugin import Plugin
    from control.storage.kms.provider import KmsProvider

    return KmsProvider(Plugin(name, endpoint, timeout))
