"""Pod templates of a Deployment: their hash, and whether two are the same.

The hash becomes the label pod-template-hash and the end of the ReplicaSet's name, so it must be the same for the same
template in every process and version: FNV-1a over the template's JSON with sorted keys (upstream hashes Go's memory
layout, which cannot be reproduced; only the alphabet and the length class are shared).
"""

from __future__ import annotations

import asyncio

import msgspec

from kube.api import core_v1

HASH_LABEL = "pod-template-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
BYTES_PER_YIELD = 4096
_encoder = msgspec.json.Encoder(order="sorted")


async def fnv32a(data: bytes) -> int:
    """Return the FNV-1a hash of 32 bits. A template of 1.5 MB takes 0.1 s, during which others continue."""
    value = 2166136261
    for start in range(0, len(data), BYTES_PER_YIELD):
        if start:
            await asyncio.sleep(0)
        for byte in data[start : start + BYTES_PER_YIELD]:
            value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def safe_encode(text: str) -> str:
    """Write a string in 27 letters and digits that spell no word (apimachinery's rand.SafeEncodeString)."""
    return "".join(_ALPHABET[byte % 27] for byte in text.encode())


async def template_hash(template: core_v1.PodTemplateSpec, collision_count: int | None) -> str:
    """Return the hash of a template; a rising collision count gives another one for the same template."""
    data = _encoder.encode(template)
    if collision_count is not None:
        data += collision_count.to_bytes(8, "little", signed=True)
    return safe_encode(str(await fnv32a(data)))


def same_template(a: core_v1.PodTemplateSpec, b: core_v1.PodTemplateSpec) -> bool:
    """Compare two templates, leaving the hash label aside."""
    return same_as(without_hash(a), b)


def same_as(bare: core_v1.PodTemplateSpec, template: core_v1.PodTemplateSpec) -> bool:
    """Compare a template without the hash label with one that may have it. Only the latter's labels are copied, if at all."""
    labels = template.metadata.labels
    return len(labels) - (HASH_LABEL in labels) == len(bare.metadata.labels) and bare == without_hash(template)


def without_hash(template: core_v1.PodTemplateSpec) -> core_v1.PodTemplateSpec:
    labels = template.metadata.labels
    if HASH_LABEL not in labels:
        return template
    kept = {name: value for name, value in labels.items() if name != HASH_LABEL}
    metadata = msgspec.structs.replace(template.metadata, labels=kept)
    return msgspec.structs.replace(template, metadata=metadata)
