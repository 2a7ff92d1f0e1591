"""OCI images as archives that `wherry image load` reads: one layout with all images, each layer in it once."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
_CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a layer, or a link, or with a name that ends in a slash a folder."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""


@dataclass(slots=True)
class Layout:
    """Content of the archive: blobs by digest, and the images' manifests."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def blob(self, content: bytes, kind: str) -> dict[str, Any]:
        """Keep a blob and return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add(
        self, name: str, layers: Sequence[bytes], run: Sequence[str] = (), arguments: Sequence[str] = (), user: str = ""
    ) -> None:
        """Add an image; `run` is its entry point and `arguments` its command."""
        settings = {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            **({"Entrypoint": list(run)} if run else {}),
            **({"Cmd": list(arguments)} if arguments else {}),
            **({"User": user} if user else {}),
        }
        sums = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        config = {
            "created": _CREATED,
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": sums},
            "history": [{"created": _CREATED, "created_by": name} for _ in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(as_json(config), CONFIG),
            "layers": [self.blob(layer, LAYER) for layer in layers],
        }
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        self.manifests.append({**self.blob(as_json(manifest), MANIFEST), "annotations": names})

    def write(self, path: Path) -> None:
        """Write the layout as a tar archive."""
        with tarfile.open(path, "w") as tar:
            _add(tar, "oci-layout", File(as_json({"imageLayoutVersion": "1.0.0"})))
            _add(tar, "index.json", File(as_json({"schemaVersion": 2, "manifests": self.manifests})))
            for digest, content in self.blobs.items():
                _add(tar, f"blobs/sha256/{digest}", File(content))


def read(path: Path, mode: int = 0o644) -> File:
    """Return a file as it is on this machine."""
    return File(path.read_bytes(), mode)


def layer(files: Mapping[str, File]) -> bytes:
    """Make a layer of files by their paths, which have no leading slash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, file in files.items():
            _add(tar, name, file)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, file: File) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = file.mode
    if file.link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, file.link, 0o777
        return tar.addfile(entry)
    if name.endswith("/"):
        entry.type = tarfile.DIRTYPE
        return tar.addfile(entry)
    entry.size = len(file.content)
    return tar.addfile(entry, io.BytesIO(file.content))


def as_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
