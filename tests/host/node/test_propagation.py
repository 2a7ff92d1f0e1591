"""Later mounts are visible as mount propagation says, and trust bundles show their current content."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.volumes import mounts, trust_bundles
from kube import pki
from kube.errors import StatusError
from kube.json_object import Object
from kube.process import run
from tests.support.control import ApiUnderTest, api_server
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, eventually

PATH = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles"
KIND = {"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path / "control", feature_gates={"ClusterTrustBundleProjection": True}) as server:
        yield server


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a mount of its own, shared as a machine's folders are."""
    folder = tmp_path / "shared"
    (folder / "below").mkdir(parents=True)
    yield folder
    for point in mounts.mount_points(folder):
        mounts.unmount(point)


def container(name: str, propagation: str, **more: Any) -> Object:
    mount = {"name": "data", "mountPath": "/data", "mountPropagation": propagation}
    return {"name": name, "image": BUSYBOX_IMAGE, "command": ["sleep", "1000"], "volumeMounts": [mount], **more}


async def test_mounts_propagate_according_to_the_mount_propagation(node: NodeUnderTest, shared: Path) -> None:
    await run(["mount", "--bind", str(shared), str(shared)])
    await run(["mount", "--make-shared", str(shared)])
    containers = [
        container("alone", "None"),
        container("sees", "HostToContainer"),
        container("shows", "Bidirectional", securityContext={"privileged": True}),
    ]
    volume = {"name": "data", "hostPath": {"path": str(shared), "type": "Directory"}}
    await node.create("web", {"containers": containers, "volumes": [volume]})
    pod = await node.ready("web")
    await run(["mount", "-t", "tmpfs", "later", str(shared / "below")])
    (shared / "below" / "file").write_text("x")
    look = ("sh", "-c", "ls /data/below")
    assert await node.execute(pod, *look, container="sees") == "file\n"
    assert await node.execute(pod, *look, container="alone") == ""
    await node.execute(
        pod,
        "sh",
        "-c",
        "mkdir /data/inner && mount -t tmpfs inside /data/inner && touch /data/inner/made",
        container="shows",
    )
    assert (shared / "inner" / "made").exists(), "the machine sees it"
    await node.delete("web")
    await node.gone("web")
    assert (shared / "below" / "file").exists(), "the pod's end takes nothing of the machine's away"


async def test_mounts_below_the_agents_folder_pass_between_pods_whatever_the_machines_own_mount_is(
    node: NodeUnderTest,
) -> None:
    """As upstream's test "should propagate mounts within defined scopes"."""
    folder = node.config.root_dir / "test"
    folder.mkdir()
    privileged = {"securityContext": {"privileged": True}}
    volume = {"name": "data", "hostPath": {"path": str(folder), "type": "Directory"}}
    pods = {"master": "Bidirectional", "slave": "HostToContainer", "private": "None"}
    for name, propagation in pods.items():
        (folder / name).mkdir()
        await node.create(name, {"containers": [container("main", propagation, **privileged)], "volumes": [volume]})
    made = {name: await node.ready(name) for name in pods}
    for name in pods:
        command = f"mount -t tmpfs t /data/{name} && echo {name} > /data/{name}/file"
        await node.execute(made[name], "sh", "-c", command)
    (folder / "host").mkdir()
    await run(["mount", "-t", "tmpfs", "t", str(folder / "host")])
    (folder / "host/file").write_text("host\n")
    look = ("sh", "-c", "cat /data/*/file 2>/dev/null || true")
    assert {name: (await node.execute(made[name], *look)).split() for name in pods} == {
        "master": ["host", "master"],
        "slave": ["host", "master", "slave"],
        "private": ["private"],
    }
    assert sorted(each.parent.name for each in folder.glob("*/file")) == ["host", "master"]
    await node.stop()
    before = mounts.mount_points(node.config.root_dir)
    await node.start()
    assert sorted(mounts.mount_points(node.config.root_dir)) == sorted(before), "a second time nothing is mounted"


async def send(node: NodeUnderTest, method: str, path: str, body: Object, kind: str = "application/json") -> None:
    await node.client.call(method, path, body=json.dumps(body).encode(), content_type=kind)


async def served(node: NodeUnderTest) -> None:
    """Have the kind served, which v1.36 does not by itself, and nodes read it."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": "clustertrustbundles", "singular": "clustertrustbundle", "kind": "ClusterTrustBundle"}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": anything}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "clustertrustbundles.certificates.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {"group": "certificates.k8s.io", "scope": "Cluster", "names": names, "versions": [version]},
    }
    await send(node, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": ["clustertrustbundles"], "verbs": ["get", "list"]}
    group = "/apis/rbac.authorization.k8s.io/v1"
    await send(node, "POST", f"{group}/clusterroles", {"metadata": {"name": "bundles"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bundles"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
    binding = {"metadata": {"name": "bundles"}, "roleRef": reference, "subjects": [subject]}
    await send(node, "POST", f"{group}/clusterrolebindings", binding)

    async def there() -> bool:
        try:
            await node.client.call("GET", PATH)
        except StatusError:
            return False
        return True

    await eventually(there, "the kind is served")


async def test_a_trust_bundle_is_a_file_that_follows_it(node: NodeUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_bundles, "CACHE_SECONDS", 0.0)
    first, second = (pki.new_ca(name, datetime.now(UTC)).cert_pem.decode() for name in ("one", "two"))
    await served(node)
    body = {**KIND, "metadata": {"name": "roots"}, "spec": {"trustBundle": first}}
    await send(node, "POST", PATH, body)
    sources = [
        {"clusterTrustBundle": {"name": "roots", "path": "roots.pem"}},
        {"clusterTrustBundle": {"name": "none", "path": "none.pem", "optional": True}},
    ]
    reader = container("main", "None")
    volume = {"name": "data", "projected": {"sources": sources}}
    await node.create("web", {"containers": [reader], "volumes": [volume]})
    pod = await node.ready("web")
    assert await node.execute(pod, "cat", "/data/roots.pem") == first
    assert await node.execute(pod, "ls", "/data") == "roots.pem\n"
    await send(node, "PATCH", f"{PATH}/roots", {"spec": {"trustBundle": second}}, "application/merge-patch+json")
    # A pod is looked at once a minute for that, and when it changes.
    await node.client.patch(type(pod), "web", "default", {"metadata": {"annotations": {"look": "now"}}})

    async def changed() -> bool:
        return await node.execute(pod, "cat", "/data/roots.pem") == second

    await eventually(changed, "the new bundle is in the file")
    missing = {"name": "data", "projected": {"sources": [{"clusterTrustBundle": {"name": "none", "path": "x"}}]}}
    await node.create("waits", {"containers": [reader], "volumes": [missing]})
    assert "none" in await node.event("waits", "FailedMount")
