"""Hash of a container's definition: the annotation `io.kubernetes.container.hash`, by which an agent recognizes its own.

It is the number that upstream's kubelet writes (`HashContainer`), so that either may follow the other on a node with
running pods: the 32-bit FNV-1a of name and image, as their JSON's bytes are printed by Go.
"""

from __future__ import annotations

import hashlib

import msgspec

from kube.api import core_v1
from kube.bounded_cache import bounded_cache

_OFFSET, _PRIME = 0x811C9DC5, 0x01000193
_ESCAPED = ((b"&", b"\\u0026"), (b"<", b"\\u003c"), (b">", b"\\u003e"))
"""Characters that Go's JSON encoder escapes, with their escapes."""
_LONGEST = 1200
"""Maximum length of an image name. Longer names cannot exist and are not hashed completely, which would take long."""


def container_hash(container: core_v1.Container | core_v1.EphemeralContainer) -> str:
    """Return the hash of a definition: a change of name or image means a restart."""
    return _of(container.name, container.image or "")


def is_hash_of(hash: str, container: core_v1.Container | core_v1.EphemeralContainer) -> bool:
    """Return whether a container was made of this definition, also by an agent from before the hash was upstream's."""
    return hash in (container_hash(container), _former(container.name, container.image or ""))


@bounded_cache(16384, _LONGEST)
def _of(name: str, image: str) -> str:
    text = _json(name, image)
    if len(text) > _LONGEST:
        return _former(name, image)
    for plain, escaped in _ESCAPED:
        text = text.replace(plain, escaped)
    found = _OFFSET
    for byte in f"([]uint8)[{' '.join(map(str, text))}]".encode():
        found = (found ^ byte) * _PRIME & 0xFFFFFFFF
    return f"{found:x}"


@bounded_cache(16384, _LONGEST)
def _former(name: str, image: str) -> str:
    return hashlib.sha256(_json(name, image)).hexdigest()[:8]


def _json(name: str, image: str) -> bytes:
    return msgspec.json.encode({"image": image, "name": name})
