"""Pods with volumes of the test's CSI driver, in few words."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agent.volumes import mounts
from control.controllers.attach_detach import AttachDetachController
from control.controllers.context import Context
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.json_object import Object
from tests.support.csi_driver import CSIDriver
from tests.support.csi_sidecars import Sidecars
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest

NAME = "disk.csi.test"
CLASS = "disks"


@contextlib.contextmanager
def short_place() -> Iterator[Path]:
    """A folder with a short path, for sockets; nothing is left mounted below it."""
    with tempfile.TemporaryDirectory(prefix="csi-") as name:
        try:
            yield Path(name)
        finally:
            for point in mounts.mount_points(Path(name)):
                mounts.unmount(point)


@contextlib.asynccontextmanager
async def controllers(client: Client) -> AsyncIterator[None]:
    """The attach/detach controller alone."""
    context = Context(client)
    controller = AttachDetachController(context)
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks.append(asyncio.create_task(context.recorders.run()))
    tasks.append(asyncio.create_task(controller.run()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def driver_on(
    node: NodeUnderTest, place: Path, *, sidecars: bool = True, about: Object | None = None, **facts: Any
) -> AsyncIterator[CSIDriver]:
    """A driver that is registered with the node, and known to the cluster as `about` says."""
    driver = CSIDriver(NAME, place / "driver", **facts)
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME}, "spec": about or {}}
    if about is not None:
        await node.client.create(msgspec.convert(body, storage_v1.CSIDriver))
    async with driver.serving(node.config.plugins_registry_dir) as registration:
        async with asyncio.timeout(30):
            assert await registration.registration_errors.get() == ""
        task = asyncio.create_task(Sidecars(node.client, driver).run()) if sidecars else None
        try:
            yield driver
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def claim(client: Client, name: str, size: str = "1Gi", mode: str = "Filesystem", **spec: Any) -> Object:
    """Make a volume of the driver with its claim, bound to each other as the binder does."""
    modes = spec.pop("accessModes", ["ReadWriteOnce"])
    source = {"driver": NAME, "volumeHandle": f"h-{name}", "fsType": "ext4", **spec.pop("csi", {})}
    body: Object = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "volumeName": f"pv-{name}",
            "volumeMode": mode,
            "storageClassName": CLASS,
        },
    }
    made = await client.create(msgspec.convert(body, core_v1.PersistentVolumeClaim))
    reference = {"namespace": "default", "name": name, "uid": made.metadata.uid, "kind": "PersistentVolumeClaim"}
    volume = {
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": modes,
            "volumeMode": mode,
            "claimRef": reference,
            "storageClassName": CLASS,
            "csi": source,
            **spec,
        },
    }
    await client.create(msgspec.convert(volume, core_v1.PersistentVolume))
    made.status = core_v1.PersistentVolumeClaimStatus(phase="Bound", access_modes=modes, capacity={"storage": size})
    await client.update_status(made)
    return {"name": "data", "persistentVolumeClaim": {"claimName": name}}


def does(command: str) -> Object:
    """Return the part of a container that does something, is Ready once that is done, and stays."""
    probe = {"exec": {"command": ["test", "-e", "/tmp/done"]}, "periodSeconds": 1}
    return {"command": ["sh", "-c", f"{command}; touch /tmp/done; sleep 1000"], "readinessProbe": probe}


def spec(volume: Object, command: str = ":", **changes: Any) -> Object:
    """Return a pod with a volume at /data whose container does something and stays."""
    container: Object = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        **does(command),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        **changes.pop("container", {}),
    }
    return {"containers": [container], "volumes": [volume], **changes}
