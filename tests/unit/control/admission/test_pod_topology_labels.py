"""Pods that name their node carry its zone and region from the beginning, the others once they are bound."""

from __future__ import annotations

import pytest

from control.admission.pod_topology_labels import PodTopologyLabels
from control.auth.user import UserInfo
from control.interfaces.admission import Attributes
from kube import resources
from kube.api import core_v1
from tests.support.lookup import Objects

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.mark.parametrize(
    ("node", "labels"),
    [
        ("n1", {"app": "a", ZONE: "z", REGION: "r"}),
        ("unknown", {"app": "a", ZONE: "mine"}),
        (None, {"app": "a", ZONE: "mine"}),
    ],
)
async def test_the_nodes_labels_are_the_pods(node: str | None, labels: dict[str, str]) -> None:
    there = {"metadata": {"name": "n1", "labels": {ZONE: "z", REGION: "r", "other": "o"}}}
    pod = {"metadata": {"labels": {"app": "a", ZONE: "mine"}}, "spec": {"nodeName": node} if node else {}}
    request = Attributes(
        resource=resources.of(core_v1.Pod),
        operation="CREATE",
        user=UserInfo("u"),
        namespace="default",
        name="p",
        obj=pod,
    )
    plugin = PodTopologyLabels(Objects(("nodes", there)))
    assert plugin.handles(request)
    await plugin.admit(request)
    assert pod["metadata"]["labels"] == labels


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        ({"kind": "Node", "name": "n1"}, {"app": "a", ZONE: "z", REGION: "r"}),
        ({"kind": "Node", "name": "unknown"}, {"app": "a"}),
        ({"kind": "Machine", "name": "n1"}, {"app": "a"}),
    ],
)
async def test_a_binding_gets_the_nodes_labels(target: dict[str, str], labels: dict[str, str]) -> None:
    there = {"metadata": {"name": "n1", "labels": {ZONE: "z", REGION: "r"}}}
    binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"labels": {"app": "a"}}, "target": target}
    request = Attributes(
        resource=resources.of(core_v1.Pod),
        operation="CREATE",
        user=UserInfo("u"),
        namespace="default",
        name="p",
        subresource="binding",
        obj=binding,
    )
    plugin = PodTopologyLabels(Objects(("nodes", there)))
    assert plugin.handles(request)
    await plugin.admit(request)
    assert binding["metadata"]["labels"] == labels  # type: ignore[index]
