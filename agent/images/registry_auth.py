"""Matches registry credentials to images, by upstream's rules (pkg/credentialprovider/keyring.go).

A secret holds a docker configuration, a map from registry (host, optional port, optional path; patterns are allowed
in the parts of the host) to credentials. All that match are tried, the longest first.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from agent.images import host_patterns, names
from cri.messages import AuthConfig
from kube.api import core_v1

_DEFAULT_REGISTRIES = ("index.docker.io", "registry-1.docker.io")
"""Names under which secrets have Docker Hub, besides that in names of images."""
LONGEST, MOST = 255, 500
"""Characters of an address and of a host, and credentials that are read of a file and compared with one image."""
_KEYS = {"kubernetes.io/dockerconfigjson": ".dockerconfigjson", "kubernetes.io/dockercfg": ".dockercfg"}
"""By type of secret: the key of its docker configuration."""

NODE, SECRET, ACCOUNT = "node", "secret", "serviceaccount"


@dataclass(frozen=True, slots=True)
class Source:
    """The source of credentials: the node, a Secret, or a service account; the latter two by their coordinates."""

    kind: str
    uid: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        kinds = {NODE: "of the node", SECRET: "of the secret", ACCOUNT: "of the service account"}
        return f"credentials {kinds[self.kind]} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials for the images below a registry's address."""

    address: str
    username: str
    password: str
    identity_token: str = ""
    source: Source = Source(NODE)

    def digest(self) -> str:
        """Return a digest that identifies these credentials without revealing them."""
        text = json.dumps([self.username, self.password, self.identity_token])
        return hashlib.sha256(text.encode()).hexdigest()

    def auth(self) -> AuthConfig:
        """Return what PullImage is given; without the address, as upstream: containerd takes only a URL for one."""
        return AuthConfig(username=self.username, password=self.password, identity_token=self.identity_token)


def sources(found: Iterable[Credential]) -> str:
    """Return where credentials come from, each source once, at most three."""
    named = list(dict.fromkeys(str(credential.source) for credential in found))
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return f"with {', '.join(named[:3])}{more}" if named else "without credentials"


def credentials(secrets: Iterable[core_v1.Secret]) -> list[Credential]:
    """Read the credentials of the secrets; a secret of another type or form holds none."""
    return [credential for secret in secrets for credential in of_secret(secret)]


def text_of(secret: core_v1.Secret) -> str:
    """Return a pull secret's docker configuration in base64, "" where it has none or is of another type."""
    return (secret.data.get(_KEYS.get(secret.type or "", "")) or "") if secret.data else ""


def of_secret(secret: core_v1.Secret) -> list[Credential]:
    """Read the credentials of one secret, as `docker_config` does."""
    metadata = secret.metadata
    source = Source(SECRET, metadata.uid or "", metadata.namespace or "", metadata.name or "")
    try:
        text = base64.b64decode(text_of(secret))
        if secret.type == "kubernetes.io/dockercfg":
            return _entries(json.loads(text), source)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return []
    return docker_config(text, source)


def docker_config(text: bytes, source: Source) -> list[Credential]:
    """Read the first MOST entries of a docker configuration file; one that cannot be read holds none."""
    try:
        return _entries(json.loads(text).get("auths") or {}, source)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return []


def _entries(entries: dict[str, Any], source: Source) -> list[Credential]:
    read = (_credential(address, entry, source) for address, entry in islice(entries.items(), MOST))
    return [credential for credential in read if credential is not None]


def _credential(address: str, entry: dict[str, Any], source: Source) -> Credential | None:
    """Read an entry; None if it has another form or a longer address. Upstream fails the pull, here the others are tried."""
    if len(address) > LONGEST:
        return None
    try:
        username, password = entry.get("username", ""), entry.get("password", "")
        if not username and entry.get("auth"):
            username, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        token = entry.get("identitytoken", "")
        for text in (username, password, token):
            str.encode(text)  # JSON may hold other values than strings, and surrogates that cannot be sent
    except (ValueError, AttributeError, TypeError):
        return None
    return Credential(normal(address), username, password, token, source)


def normal(address: str) -> str:
    """Reduce an address to host[:port][/path], without a bare API version at its end."""
    address = address.removeprefix("https://").removeprefix("http://").rstrip("/")
    for version in ("/v1", "/v2"):
        address = address.removesuffix(version)
    host, slash, path = address.partition("/")
    return f"{names.DEFAULT_REGISTRY}{slash}{path}" if host in _DEFAULT_REGISTRIES else address


def matching(image: str, known: Iterable[Credential]) -> list[Credential]:
    """Return the credentials for an image, the longest address first; only the first MOST are considered."""
    host, path = names.split(image)
    chosen = [c for c in islice(known, MOST) if _matches(c.address, host, path)]
    return sorted(chosen, key=lambda c: len(c.address), reverse=True)


def matches(address: str, image: str) -> bool:
    """Return whether an address (host with * within its parts, optional port and path) matches an image."""
    return _matches(normal(address), *names.split(image))


def _matches(address: str, host: str, path: str) -> bool:
    if len(address) > LONGEST or len(host) > LONGEST:
        return False
    wanted_host, _, wanted_path = address.partition("/")
    if not path.startswith(wanted_path):
        return False
    wanted_name, _, wanted_port = wanted_host.partition(":")
    name, _, port = host.partition(":")
    if wanted_port != port:
        return False
    parts, wanted_parts = name.split("."), wanted_name.split(".")
    return len(parts) == len(wanted_parts) and all(
        host_patterns.matches(part, wanted) for part, wanted in zip(parts, wanted_parts, strict=True)
    )
