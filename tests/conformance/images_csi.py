"""The images of the CSI drivers and their sidecars that upstream's v1.36 names, where the given programs include them."""

from __future__ import annotations

from tests.conformance.image_parts import ImageSources
from tests.conformance.oci import Layout, layer

_STORAGE = "registry.k8s.io/sig-storage"
_SIDECARS = {
    "csi-attacher": "v4.11.0",
    "csi-external-health-monitor-controller": "v0.17.0",
    "csi-node-driver-registrar": "v2.16.0",
    "csi-provisioner": "v6.1.1",
    "csi-resizer": "v2.1.0",
    "csi-snapshotter": "v8.5.0",
    "livenessprobe": "v2.18.0",
}
"""Programs by the names of their images, with the versions that upstream's manifests name."""
_DRIVER, _DRIVER_VERSION = "hostpathplugin", "v1.17.1"


def add_all(made: Layout, parts: ImageSources) -> None:
    for name, version in _SIDECARS.items():
        if parts.has(name):
            made.add(f"{_STORAGE}/{name}:{version}", [parts.busybox, layer({name: parts.program(name)})], [f"/{name}"])
    if parts.has(_DRIVER):
        # It calls mount and losetup.
        layers = [parts.debian, layer({_DRIVER: parts.program(_DRIVER)})]
        made.add(f"{_STORAGE}/{_DRIVER}:{_DRIVER_VERSION}", layers, [f"/{_DRIVER}"])
