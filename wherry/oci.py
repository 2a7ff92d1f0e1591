"""A container image from a handful of files, as an OCI layout in a tar that containerd imports.

The same input gives the same bytes and digests: times and owners are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def archive(path: Path, name: str, entrypoint: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Write an image with executable `files` (path without leading slash -> content) as a tar."""
    layer = _tar({file: (content, 0o755) for file, content in files.items()})
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    configuration = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint)},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(_json(configuration), "config.v1+json"),
        "layers": [blob(gzip.compress(layer, mtime=0), "layer.v1.tar+gzip")],
    }
    reference = blob(_json(manifest), "manifest.v1+json")
    reference["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    whole = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "manifests": [reference]}),
        **blobs,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_tar({name: (content, 0o644) for name, content in whole.items()}))


def digest(path: Path) -> str:
    """Return the digest of the image in an archive, "sha256:...", by which containerd knows its manifest."""
    with tarfile.open(path) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        return str(json.load(index)["manifests"][0]["digest"])


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
