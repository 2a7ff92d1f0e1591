"""Cache of the credentials in pull secrets, parsed once for each version of a secret.

A pod may name many secrets of a megabyte each, and each of its containers needs them. The least recently used ones are dropped
first, and of one pod's secrets only a limited amount of text and number of entries are parsed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from agent.images import registry_auth
from agent.images.registry_auth import MOST, Credential
from kube.api import core_v1

LARGEST = 4 * 1024 * 1024
"""Characters of base64 that are read of one pod's secrets; those after it count as having no credentials."""
KEPT = 16 * 1024 * 1024
"""Bytes, about, of the credentials that are kept."""
_EACH = 512
"""Bytes, about, of a credential beside its text."""

_Key = tuple[str, str, str, str]


class PullSecrets:
    """Reads pull secrets; safe to use from several threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, tuple[int, list[Credential]]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def matching(self, image: str, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        """Return the credentials for an image, those with the longest address first. Takes up to a second: not for the loop."""
        return registry_auth.matching(image, self.read(secrets))

    def read(self, secrets: Sequence[core_v1.Secret]) -> list[Credential]:
        """Return the first MOST credentials of a pod's secrets, of their first LARGEST characters."""
        found: list[Credential] = []
        room = LARGEST
        for secret in secrets:
            room -= len(registry_auth.text_of(secret))
            if room < 0 or len(found) >= MOST:
                break
            found += self._of(secret)
        return found[:MOST]

    def _of(self, secret: core_v1.Secret) -> list[Credential]:
        metadata = secret.metadata
        version = metadata.resource_version or ""
        key = metadata.namespace or "", metadata.name or "", metadata.uid or "", version
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][1]
        found = registry_auth.of_secret(secret)
        if version:
            self._keep(key, len(registry_auth.text_of(secret)) + _EACH * (len(found) + 1), found)
        return found

    def _keep(self, key: _Key, size: int, found: list[Credential]) -> None:
        with self._lock:
            if key in self._kept:  # another thread has read it meanwhile
                return
            self._kept[key] = size, found
            self._size += size
            while self._size > KEPT:
                _, (dropped, _) = self._kept.popitem(last=False)
                self._size -= dropped
