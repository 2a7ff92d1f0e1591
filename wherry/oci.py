"""A container image from a handful of files or a tar, as an OCI layout in a tar that containerd imports.

The same input gives the same bytes and digests: times and owners are fixed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def archive(path: Path, name: str, entrypoint: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Write an image with executable `files` (path without leading slash -> content) as a tar."""
    layer = _tar({file: (content, 0o755) for file, content in files.items()})
    compressed = gzip.compress(layer, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as target:
        reference = _reference(compressed, "layer.v1.tar+gzip")
        _write(target, name, {"Entrypoint": list(entrypoint)}, layer, reference, io.BytesIO(compressed))


def archive_tree(path: Path, name: str, config: Mapping[str, object], tree: Path) -> None:
    """Write an image with one layer, `tree`, a tar that may be larger than memory; `config` has Entrypoint and others."""
    with tempfile.TemporaryFile(dir=path.parent) as compressed, tree.open("rb") as layer, path.open("wb") as target:
        with gzip.GzipFile(filename="", fileobj=compressed, mode="wb", compresslevel=6, mtime=0) as stream:
            shutil.copyfileobj(layer, stream, 1 << 20)
        reference = _reference(compressed, "layer.v1.tar+gzip")
        _write(target, name, config, layer, reference, compressed)


def _write(
    target: IO[bytes],
    name: str,
    config: Mapping[str, object],
    layer: bytes | IO[bytes],
    reference: dict[str, object],
    compressed: IO[bytes],
) -> None:
    configuration = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)[0]]},
    }
    described = _json(configuration)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _reference(described, "config.v1+json"),
            "layers": [reference],
        }
    )
    whole = _reference(manifest, "manifest.v1+json")
    whole["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    with tarfile.open(fileobj=target, mode="w") as tar:
        for file, content in (
            ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
            ("index.json", _json({"schemaVersion": 2, "manifests": [whole]})),
            (_blob(described), described),
            (f"blobs/{str(reference['digest']).replace(':', '/')}", compressed),
            (_blob(manifest), manifest),
        ):
            entry = tarfile.TarInfo(file)
            entry.size = len(content) if isinstance(content, bytes) else int(str(reference["size"]))
            tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else content)


def _reference(content: bytes | IO[bytes], kind: str) -> dict[str, object]:
    """Return what names a blob; a file is left at its beginning."""
    digest, size = _digest(content)
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": size}


def _digest(content: bytes | IO[bytes]) -> tuple[str, int]:
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    found, size = hashlib.sha256(), 0
    file.seek(0)
    while block := file.read(1 << 20):
        found.update(block)
        size += len(block)
    file.seek(0)
    return f"sha256:{found.hexdigest()}", size


def _blob(content: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


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
