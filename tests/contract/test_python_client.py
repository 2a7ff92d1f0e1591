"""The official Python client, unmodified, with custom resources: typed calls, the dynamic client, watches."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch

from tests.support.control import api_server
from tests.support.custom_resources import GROUP, definition, obj, settled, version


def work(kubeconfig: str, made: dict[str, Any], established: Any) -> None:
    """Everything that the client does, as its users write it; it blocks, so it runs in a thread."""
    api = config.new_client_from_config(kubeconfig)
    client.ApiextensionsV1Api(api).create_custom_resource_definition(made)
    established()
    objects = client.CustomObjectsApi(api)
    place = (GROUP, "v1", "default", "pythons")
    first = objects.create_namespaced_custom_object(*place, obj("Python", "first"))
    assert first["spec"]["image"] == "busybox"
    seen = []
    stream = watch.Watch()
    for event in stream.stream(objects.list_namespaced_custom_object, *place, timeout_seconds=90):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if len(seen) == 1:
            objects.create_namespaced_custom_object(*place, obj("Python", "second"))
        elif len(seen) == 2:
            objects.delete_namespaced_custom_object(*place, "second")
        else:
            stream.stop()
    assert seen == [("ADDED", "first"), ("ADDED", "second"), ("DELETED", "second")]
    patched = objects.patch_namespaced_custom_object(*place, "first", {"spec": {"replicas": 4}})
    assert patched["spec"]["replicas"] == 4
    with pytest.raises(client.ApiException) as refused:
        objects.patch_namespaced_custom_object(*place, "first", {"spec": {"replicas": 99}})
    assert refused.value.status == 422
    objects.patch_namespaced_custom_object_status(*place, "first", {"status": {"phase": "Fine"}})
    found = dynamic.DynamicClient(api).resources.get(api_version=f"{GROUP}/v1", kind="Python")
    assert found.get(name="first", namespace="default").status.phase == "Fine"
    applied = obj("Python", "third", replicas=2)
    made_too = found.server_side_apply(body=applied, namespace="default", field_manager="tests")
    assert made_too.spec.replicas == 2 and [i.metadata.name for i in found.get(namespace="default").items] == [
        "first",
        "third",
    ]
    found.delete(name="first", namespace="default")
    client.ApiextensionsV1Api(api).delete_custom_resource_definition(made["metadata"]["name"])


def work_with_built_in_kinds(kubeconfig: str) -> None:
    """Typed and dynamic calls for built-in kinds: pages, watches that go on, patches, conflicts, status and scale."""
    api = config.new_client_from_config(kubeconfig)
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
    assert client.VersionApi(api).get_code().minor == "36"
    for number in range(3):
        meta = client.V1ObjectMeta(name=f"map-{number}", labels={"of": "python"})
        core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=meta, data={"n": str(number)}))
    page = core.list_namespaced_config_map("default", label_selector="of=python", limit=2)
    rest = core.list_namespaced_config_map(
        "default", label_selector="of=python", limit=2, _continue=page.metadata._continue
    )
    assert [m.metadata.name for m in (*page.items, *rest.items)] == ["map-0", "map-1", "map-2"]
    first = core.read_namespaced_config_map("map-0", "default")
    core.patch_namespaced_config_map("map-0", "default", {"data": {"n": "9"}})
    first.data["n"] = "5"
    with pytest.raises(client.ApiException) as conflict:
        core.replace_namespaced_config_map("map-0", "default", first)
    assert (conflict.value.status, json.loads(conflict.value.body)["reason"]) == (409, "Conflict")
    seen, stream = [], watch.Watch()
    since = page.metadata.resource_version
    for event in stream.stream(core.list_namespaced_config_map, "default", resource_version=since, timeout_seconds=60):
        seen.append((event["type"], event["object"].metadata.name, event["object"].data))
        stream.stop()
    assert seen == [("MODIFIED", "map-0", {"n": "9"})]
    labels = {"app": "p"}
    pod = client.V1PodSpec(containers=[client.V1Container(name="c", image="i")])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod)
    spec = client.V1DeploymentSpec(replicas=1, selector=client.V1LabelSelector(match_labels=labels), template=template)
    apps.create_namespaced_deployment("default", client.V1Deployment(metadata=client.V1ObjectMeta(name="d"), spec=spec))
    assert apps.patch_namespaced_deployment_scale("d", "default", {"spec": {"replicas": 4}}).spec.replicas == 4
    apps.patch_namespaced_deployment_status("d", "default", {"status": {"replicas": 2}})
    found = apps.read_namespaced_deployment("d", "default")
    assert (found.spec.replicas, found.status.replicas, found.spec.strategy.type) == (4, 2, "RollingUpdate")
    requested = client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="get", resource="pods")
        )
    )
    assert client.AuthorizationV1Api(api).create_self_subject_access_review(requested).status.allowed
    maps = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    events = maps.watch(namespace="default", name="map-1", timeout=60)
    assert next(events)["object"].data.n == "1"
    core.delete_namespaced_config_map("map-1", "default")
    assert next(events)["type"] == "DELETED"
    core.delete_collection_namespaced_config_map("default", label_selector="of=python")
    assert core.list_namespaced_config_map("default", label_selector="of=python").items == []


@pytest.mark.timeout(300)
async def test_the_python_client_works_with_built_in_kinds(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        await asyncio.to_thread(work_with_built_in_kinds, str(server.kubeconfig()))


@pytest.mark.timeout(300)
async def test_the_python_client_works_with_custom_resources(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        made = definition("Python", version(subresources={"status": {}}))
        loop = asyncio.get_running_loop()

        def established() -> None:
            asyncio.run_coroutine_threadsafe(settled(server, made["metadata"]["name"], "Established"), loop).result(90)

        await asyncio.to_thread(work, str(server.kubeconfig()), made, established)
