"""A claim that asks for more: told that its driver has to act, or given more at once where it is a folder of Wherry's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kube.api import core_v1, storage_v1
from kube.client import Client
from tests.support.control import api_server
from tests.support.hollow import eventually, running

Claim = core_v1.PersistentVolumeClaim


async def bound(client: Client, name: str, provisioner: str, source: dict[str, Any]) -> None:
    """Make a class of a provisioner, a claim of it, and the claim's volume."""
    storage = {"metadata": {"name": name}, "provisioner": provisioner, "allowVolumeExpansion": True}
    await client.create(msgspec.convert(storage, storage_v1.StorageClass))
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {**common, "resources": {"requests": size}}}
    claim = await client.create(msgspec.convert(body, Claim))
    reference = {"namespace": "default", "name": name, "uid": claim.metadata.uid}
    node = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [node]}]}}
    metadata = {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": provisioner}}
    spec = {**common, **source, "capacity": size, "claimRef": reference, "nodeAffinity": affinity}
    await client.create(msgspec.convert({"metadata": metadata, "spec": spec}, core_v1.PersistentVolume))
    await eventually(lambda: has(client, name, "1Gi"))


async def has(client: Client, name: str, size: str) -> bool:
    status = (await client.get(Claim, name, "default")).status
    return status.phase == "Bound" and status.capacity == {"storage": size}


async def grow(client: Client, name: str, size: str) -> None:
    spec = {"spec": {"resources": {"requests": {"storage": size}}}}
    await client.patch(Claim, name, "default", spec)


async def test_a_growing_claim_gets_a_condition_for_the_component_to_act_and_a_local_folder_grows_immediately(
    tmp_path: Path,
) -> None:
    async with api_server(tmp_path) as server:
        client = server.client()
        async with running(server.controllers()):
            await bound(client, "disk", "disk.csi.test", {"csi": {"driver": "disk.csi.test", "volumeHandle": "h"}})
            await bound(client, "folder", "wherry/local-path", {"local": {"path": "/var/lib/none"}})
            await grow(client, "folder", "2Gi")
            await eventually(lambda: has(client, "folder", "2Gi"))
            volume = await client.get(core_v1.PersistentVolume, "folder")
            assert volume.spec.capacity == {"storage": "2Gi"}
            await grow(client, "disk", "2Gi")

            async def is_reported() -> bool:
                events = (await client.list(core_v1.Event, "default")).items
                return (
                    "disk",
                    "Normal",
                    "ExternalExpanding",
                    "waiting for an external controller to expand this PVC",
                ) in [(e.involved_object.name, e.type, e.reason, e.message) for e in events]

            await eventually(is_reported)
            assert await has(client, "disk", "1Gi"), "it is not larger before its driver says so"
