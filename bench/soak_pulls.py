"""Image pulls of a soak while containerd's disk is full: from a real registry, of images that the disk has no room for.

Each pod must run once the disk has space. It is critical and bound to the node, so that pressure on the disk neither evicts nor
keeps it away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from bench.soak_api import apply
from bench.soak_disks import Disk
from tests.support import images
from tests.support.cluster import Cluster, eventually
from tests.support.disks import MI
from tests.support.registry import Registry, registry

PORT, IMAGES = 5000, 6
IMAGE_BYTES, LEFT = 8 * MI, 4 * MI
RUN_SECONDS = 330.0
"""Time for a pod after the last fault: pulls are retried after five minutes in the end."""


class Pulls:
    """Pods whose images do not fit at first."""

    def __init__(self, made: Cluster, served: Registry, disk: Disk, namespace: str) -> None:
        self._made, self._served, self._disk, self._namespace = made, served, disk, namespace
        self._pods: list[str] = []

    def start(self) -> None:
        """Fill the disk and create a pod with an image that was not pulled yet, or that was removed to free space."""
        number = len(self._pods)
        self._disk.fill(LEFT)
        image = f"{self._served.host}/large:{number % IMAGES}"
        container = {"name": "c", "image": image, "imagePullPolicy": "Always", "command": ["sleep", "100000"]}
        spec = {
            "containers": [container],
            "nodeName": self._made.node,
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 1,
        }
        metadata = {"name": f"pulls-{number}", "labels": {"churn": "yes"}}
        apply(self._made, self._namespace, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self._pods.append(metadata["name"])  # type: ignore[arg-type]

    def waiting(self) -> list[str]:
        """Wait until all pods run; return those that do not, with their status."""

        def missing() -> list[str]:
            found = self._made.get("pods", "-n", self._namespace)["items"]
            by_name = {pod["metadata"]["name"]: pod["status"] for pod in found}
            phases = {name: by_name.get(name, {}) for name in self._pods}
            return [f"{name}: {status}" for name, status in phases.items() if status.get("phase") != "Running"]

        with contextlib.suppress(AssertionError):
            eventually(lambda: not missing(), "the pods run", RUN_SECONDS, every=2)
        return missing()


@contextlib.contextmanager
def large_images(made: Cluster) -> Iterator[Registry]:
    """Run a registry on the machine with images that containerd no longer has."""
    with registry(made, PORT) as served:
        for number in range(IMAGES):
            name = f"{served.host}/large:{number}"
            served.push(images.Image(name, files={"large": os.urandom(IMAGE_BYTES)}))
            made.ctr("--namespace", "push", "images", "rm", "--sync", name)
        yield served
