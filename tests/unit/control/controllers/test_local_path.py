"""Volumes of the local-path provisioner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.local_path import plan
from kube.api import core_v1
from kube.volume_binding import LOCAL_PATH_FOLDER


def claim(**spec: Any) -> core_v1.PersistentVolumeClaim:
    body = {
        "metadata": {"name": "data", "namespace": "shop", "uid": "u1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }
    return msgspec.convert(body, core_v1.PersistentVolumeClaim)


def node(folder: str = "/var/lib/kubelet/local-path") -> core_v1.Node:
    annotations = {LOCAL_PATH_FOLDER: folder} if folder else {}
    labels = {"kubernetes.io/hostname": "host-a"}
    return msgspec.convert({"metadata": {"name": "a", "labels": labels, "annotations": annotations}}, core_v1.Node)


def test_a_claim_becomes_a_folder_on_its_node() -> None:
    volume = plan.volume_for(claim(), plan.storage_class(), node())
    assert volume.metadata.name == "pvc-u1" and volume.metadata.finalizers == [plan.FINALIZER]
    assert volume.spec.local is not None and volume.spec.local.path == "/var/lib/kubelet/local-path/pvc-u1"
    assert volume.spec.capacity == {"storage": "1Gi"} and volume.spec.persistent_volume_reclaim_policy == "Delete"
    assert volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == "u1"
    assert plan.host_of(volume) == "host-a" and plan.serves(node(), volume) and plan.is_ours(volume)
    assert not plan.is_done_with(volume)


@pytest.mark.parametrize(
    ("spec", "folder", "why"),
    [
        ({"accessModes": ["ReadWriteMany"]}, "/v", "cannot be ReadWriteMany"),
        ({"volumeMode": "Block"}, "/v", "no block device"),
        ({"selector": {}}, "/v", "chosen by labels"),
        ({"volumeAttributesClassName": "gold"}, "/v", "volumeAttributesClassName is not supported"),
        ({}, "", "node a does not say where it keeps volumes"),
    ],
)
def test_what_a_folder_cannot_be_is_refused(spec: dict[str, Any], folder: str, why: str) -> None:
    with pytest.raises(plan.CannotProvision, match=why):
        plan.volume_for(claim(**spec), plan.storage_class(), node(folder))
