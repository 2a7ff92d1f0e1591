"""lightkube, unmodified: typed models, server-side apply, pages, watches and conditions, and generic resources."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig, codecs
from lightkube import operators as op
from lightkube.generic_resource import create_resources_from_crd, get_generic_resource
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.authorization_v1 import SelfSubjectAccessReview
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import PatchType

from tests.support.control import api_server
from tests.support.custom_resources import GROUP, definition, obj, version

pytestmark = pytest.mark.timeout(60)
LABELS = {"app": "light"}


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels=labels), data={"name": name})


def deployment(image: str, replicas: int | None = None) -> Deployment:
    pod = PodSpec(containers=[Container(name="c", image=image)])
    template = PodTemplateSpec(metadata=ObjectMeta(labels=LABELS), spec=pod)
    spec = DeploymentSpec(selector=LabelSelector(matchLabels=LABELS), template=template, replicas=replicas)
    return Deployment(metadata=ObjectMeta(name="light", namespace="default"), spec=spec)


def client_of(kubeconfig: str, manager: str = "light") -> Client:
    return Client(config=KubeConfig.from_file(kubeconfig), field_manager=manager)


def apply(client: Client, other: Client) -> None:
    """Fields have owners: another manager's conflict, and what an owner no longer applies is removed."""
    assert client.apply(deployment("i:1", 2)).spec.replicas == 2
    with pytest.raises(ApiError) as conflict:
        other.apply(deployment("i:2"))
    status = conflict.value.status
    assert (status.code, status.reason) == (409, "Conflict") and status.details is not None
    assert [c.field for c in status.details.causes or ()] == ['.spec.template.spec.containers[name="c"].image']
    assert other.apply(deployment("i:2"), force=True).spec.template.spec.containers[0].image == "i:2"
    assert client.apply(deployment("i:2")).spec.replicas == 1, "nobody owns the number: the default"
    scale = client.get(Deployment.Scale, "light", namespace="default")
    scale.spec = ScaleSpec(replicas=4)
    assert client.replace(scale, "light", namespace="default").spec.replicas == 4
    assert client.apply(deployment("i:3", 7), force=True, dry_run=True).spec.replicas == 7
    assert client.get(Deployment, "light").spec.replicas == 4


def objects(client: Client) -> None:
    for number in range(7):
        client.create(config_map(f"m{number}", of="light", even=str(number % 2 == 0).lower()))
    listed = client.list(ConfigMap, namespace="default", labels={"of": "light"}, chunk_size=3)
    assert [m.metadata.name for m in listed] == [f"m{n}" for n in range(7)] and int(listed.resourceVersion) > 0
    chosen = client.list(ConfigMap, namespace="default", labels={"even": op.not_in(["true"]), "of": op.exists()})
    assert [m.metadata.name for m in chosen] == ["m1", "m3", "m5"]
    named = client.list(ConfigMap, namespace="default", fields={"metadata.name": "m2"})
    assert [m.data for m in named] == [{"name": "m2"}]
    first = client.get(ConfigMap, "m0")
    client.patch(ConfigMap, "m0", {"data": {"name": None, "k": "v"}}, patch_type=PatchType.MERGE)
    client.patch(ConfigMap, "m0", [{"op": "add", "path": "/data/j", "value": "1"}], patch_type=PatchType.JSON)
    client.set(ConfigMap, "m0", labels={"even": None, "new": "yes"}, annotations={"a": "b"})
    found = client.get(ConfigMap, "m0")
    assert found.data == {"k": "v", "j": "1"} and found.metadata.labels == {"of": "light", "new": "yes"}
    with pytest.raises(ApiError) as stale:
        client.replace(first)
    assert stale.value.status.code == 409
    timer = threading.Timer(0.1, client.delete, (ConfigMap, "m1"))
    timer.start()
    watched = client.watch(
        ConfigMap, namespace="default", labels={"of": "light"}, resource_version=listed.resourceVersion
    )
    kinds = [(kind, found.metadata.name) for kind, found in (next(watched) for _ in range(4))]
    timer.join()
    assert kinds == [("MODIFIED", "m0")] * 3 + [("DELETED", "m1")]
    client.deletecollection(ConfigMap, namespace="default")
    assert list(client.list(ConfigMap, namespace="default", labels={"of": "light"})) == []
    with pytest.raises(ApiError, match='configmaps "m1" not found'):
        client.get(ConfigMap, "m1")
    review = client.create(
        SelfSubjectAccessReview.from_dict({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
    )
    assert review.status.allowed


def custom_resources(client: Client, made: dict[str, Any]) -> None:
    crd = client.create(CustomResourceDefinition.from_dict(made))
    client.wait(CustomResourceDefinition, crd.metadata.name, for_conditions=["Established"])
    create_resources_from_crd(crd)
    tool = get_generic_resource(f"{GROUP}/v1", "Tool")
    manifest = codecs.dump_all_yaml([codecs.from_dict(obj("Tool", "first", replicas=2))])
    (loaded,) = codecs.load_all_yaml(manifest)
    assert client.apply(loaded, namespace="default").spec["image"] == "busybox"
    client.apply(tool.Status(metadata=ObjectMeta(name="first"), status={"phase": "Fine"}), "first", namespace="default")
    assert client.get(tool, "first", namespace="default").status == {"phase": "Fine"}
    client.delete(tool, "first", namespace="default")
    assert list(client.list(tool, namespace="*")) == []


def work(kubeconfig: str, made: dict[str, Any]) -> None:
    client, other = client_of(kubeconfig), client_of(kubeconfig, "other")
    with client, other:
        assert client.get(Namespace, "default").status.phase == "Active"
        apply(client, other)
        objects(client)
        custom_resources(client, made)


async def test_synchronous_programs(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        made = definition("Tool", version(subresources={"status": {}}))
        await asyncio.to_thread(work, str(server.kubeconfig()), made)


async def test_asyncio_programs(tmp_path: Path) -> None:
    async with api_server(tmp_path, min_watch_timeout=1.0) as server:
        client = AsyncClient(config=KubeConfig.from_file(str(server.kubeconfig())), field_manager="light")
        await client.create(config_map("a", of="light"))
        seen = list[tuple[str, str]]()
        async for kind, found in client.watch(ConfigMap, labels={"of": "light"}, server_timeout=1):
            seen.append((kind, found.metadata.name))
            if len(seen) == 1:
                await asyncio.sleep(2)  # the server ends the watch meanwhile
                await client.create(config_map("b", of="light"))
            elif len(seen) == 2:
                await client.delete(ConfigMap, "a")
            else:
                break
        assert seen == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
        await client.close()
