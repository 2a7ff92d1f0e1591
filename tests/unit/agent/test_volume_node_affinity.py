"""Volumes of other nodes, which pods that name their node could mount here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.volumes.node_affinity import VolumeNodeAffinity
from agent.volumes.payload import VolumeError
from kube.api import core_v1
from kube.volume_binding import LOCAL_PATH_NODE, LOCAL_PATH_PROVISIONER, PROVISIONED_BY
from tests.support.lagging_api import LaggingAPI

HERE = {"kubernetes.io/hostname": "here"}


def volume(term: dict[str, Any] | None, mode: str = "Filesystem", node: str = "") -> core_v1.PersistentVolume:
    annotations = {PROVISIONED_BY: LOCAL_PATH_PROVISIONER, LOCAL_PATH_NODE: node} if node else {}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if term is not None else {}
    body = {"metadata": {"name": "pv", "annotations": annotations}, "spec": {"volumeMode": mode, **affinity}}
    return msgspec.convert(body, core_v1.PersistentVolume)


def on(key: str, value: str) -> dict[str, Any]:
    kind = "matchFields" if key == "metadata.name" else "matchExpressions"
    return {kind: [{"key": key, "operator": "In", "values": [value]}]}


def check(known: dict[str, str] | None, stored: dict[str, str] | None) -> tuple[VolumeNodeAffinity, LaggingAPI]:
    """Return the check on node `here` with the labels that the agent knows and those of the Node, if there is one."""
    api = LaggingAPI()
    if stored is not None:
        api.put(msgspec.convert({"metadata": {"name": "here", "labels": stored}}, core_v1.Node))
    return VolumeNodeAffinity(api.client(), "here", lambda: known), api


@pytest.mark.parametrize(
    "fits",
    [
        volume(None),
        volume(on("kubernetes.io/hostname", "here")),
        volume(on("metadata.name", "here")),
        volume(on("kubernetes.io/hostname", "here"), node="here"),
    ],
)
async def test_a_volume_of_this_node_is_set_up_without_a_request(fits: core_v1.PersistentVolume) -> None:
    affinity, api = check(HERE, None)
    await affinity.check(fits)
    assert api.requests == []


@pytest.mark.parametrize(
    ("other", "step"),
    [
        (volume(on("kubernetes.io/hostname", "other")), "MountVolume.NodeAffinity check"),
        (volume(on("metadata.name", "other"), "Block"), "MapVolume.NodeAffinity check"),
        (volume(on("kubernetes.io/hostname", "here"), node="other"), "MountVolume.NodeAffinity check"),
    ],
)
async def test_a_volume_of_another_node_is_refused(other: core_v1.PersistentVolume, step: str) -> None:
    affinity, _ = check(HERE, HERE)
    with pytest.raises(VolumeError, match="no matching NodeSelectorTerms") as error:
        await affinity.check(other)
    assert error.value.step == step


@pytest.mark.parametrize("known", [HERE, None])
async def test_labels_that_the_agent_does_not_know_yet_are_read(known: dict[str, str] | None) -> None:
    zone = volume(on("topology.disk.test/zone", "x"))
    await check(known, HERE | {"topology.disk.test/zone": "x"})[0].check(zone)
    with pytest.raises(VolumeError, match="error retrieving node: "):
        await check(known, None)[0].check(zone)
