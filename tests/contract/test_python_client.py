"""The official Python client, unmodified, with custom resources: typed calls, the dynamic client, watches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, watch

from tests.contract.test_custom_resources import GROUP, definition, obj, settled, version
from tests.support.control import api_server


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


@pytest.mark.timeout(300)
async def test_the_python_client_works_with_custom_resources(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        made = definition("Python", version(subresources={"status": {}}))
        loop = asyncio.get_running_loop()

        def established() -> None:
            asyncio.run_coroutine_threadsafe(settled(server, made["metadata"]["name"], "Established"), loop).result(90)

        await asyncio.to_thread(work, str(server.kubeconfig()), made, established)
