"""A registry with the tests' images on one of the machines, for pods that pull although their image is there (`Always`)."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.host import ADDRESS
from tests.support.registry import Registry, registry

PORT = 5000
HOST = "registry.k8s.io"
OPTION = f"--registry-mirror={HOST}=http://{ADDRESS}:{PORT}"
"""Options of `wherry up` and `join`."""


@contextlib.contextmanager
def mirror(first: Cluster, archive: Path) -> Iterator[Registry]:
    """Run the registry on the first machine, with all images of the archive that registry.k8s.io has."""
    with registry(first, PORT, address=ADDRESS) as made:
        first.ctr("--namespace", "mirror", "images", "import", "--no-unpack", str(archive))
        for name in _names(archive):
            target = name.replace(f"{HOST}/", f"{made.host}/", 1)
            first.ctr("--namespace", "mirror", "images", "tag", "--force", name, target)
            first.ctr("--namespace", "mirror", "images", "push", "--plain-http", target)
        yield made


def _names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None, f"{archive} is no OCI layout"
        manifests = json.load(index)["manifests"]
    names = [manifest["annotations"]["io.containerd.image.name"] for manifest in manifests]
    return [name for name in names if name.startswith(f"{HOST}/")]
