"""Images as OCI layouts: digests, sizes and the same bytes for the same input."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from wherry import oci


def tree(path: Path) -> bytes:
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("bin/sh")
        entry.size = 3 << 20
        tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path.read_bytes()


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry))}


def blob(found: dict[str, bytes], reference: dict[str, Any]) -> bytes:
    content = found[f"blobs/{reference['digest'].replace(':', '/')}"]
    assert len(content) == reference["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == reference["digest"]
    return content


@pytest.mark.parametrize("kind", ["files", "tree"])
def test_every_reference_leads_to_its_blob(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    if kind == "tree":
        layer = tree(tmp_path / "tree.tar")
        oci.archive_tree(path, "localhost/a:1", {"Entrypoint": ["/bin/sh"]}, tmp_path / "tree.tar")
    else:
        oci.archive(path, "localhost/a:1", ["/bin/sh"], {"bin/sh": b"program"})
    found = members(path)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (reference,) = json.loads(found["index.json"])["manifests"]
    assert reference["annotations"]["io.containerd.image.name"] == "localhost/a:1"
    manifest = json.loads(blob(found, reference))
    configuration = json.loads(blob(found, manifest["config"]))
    (compressed,) = manifest["layers"]
    plain = gzip.decompress(blob(found, compressed))
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    assert configuration["config"] == {"Entrypoint": ["/bin/sh"]} and configuration["os"] == "linux"
    assert kind == "files" or plain == layer
    assert len(found) == 5 and oci.digest(path) == reference["digest"]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    tree(tmp_path / "tree.tar")
    for name in ("one", "two"):
        oci.archive_tree(tmp_path / name, "localhost/a:1", {}, tmp_path / "tree.tar")
        oci.archive(tmp_path / f"{name}.files", "localhost/a:1", ["/a"], {"a": b"program"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one.files").read_bytes() == (tmp_path / "two.files").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "one.files", "tree.tar", "two", "two.files"]
