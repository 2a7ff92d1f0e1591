"""kr8s, unmodified: its synchronous and its asyncio interface, with built-in kinds and custom resources."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import kr8s
import pytest
import yaml
from kr8s.objects import ConfigMap, Deployment, Namespace, new_class, objects_from_files

from tests.support.control import api_server
from tests.support.custom_resources import GROUP, definition, install, obj, version

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported"),  # newer than kr8s knows
]
TEMPLATE = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": TEMPLATE},
}


def config_map(name: str, api: Any, **data: str) -> ConfigMap:
    return ConfigMap({"metadata": {"name": name, "labels": {"of": "kr8s"}}, "data": data}, namespace="default", api=api)


def work(kubeconfig: str, folder: Path) -> None:
    """Everything that is synchronous; kr8s runs a loop of its own in a thread for it."""
    api = kr8s.api(kubeconfig=kubeconfig)
    assert api.version()["minor"] == "36" and api.whoami() == "kubernetes-admin"
    assert api.lookup_kind("deploy") == ("deployment.apps/v1", "deployments", True)
    assert {"configmaps", "deployments", "customresourcedefinitions"} <= {each["name"] for each in api.api_resources()}
    namespace = Namespace({"metadata": {"name": "kr8s"}}, api=api)
    namespace.create()
    namespace.wait("jsonpath='{.status.phase}'=Active", timeout=30)

    for number in range(3):
        config_map(f"m{number}", api, n=str(number)).create()
    with pytest.raises(kr8s.ServerError, match='configmaps "m0" already exists') as twice:
        config_map("m0", api).create()
    assert twice.value.response is not None and twice.value.response.status_code == 409
    names = [m.name for m in api.get("configmaps", namespace="default", label_selector={"of": "kr8s"})]
    assert names == ["m0", "m1", "m2"]
    (second,) = api.get("cm", "m1", namespace="default")
    second.patch({"data": {"more": "1"}})
    second.patch([{"op": "remove", "path": "/data/n"}], type="json")
    second.label({"seen": "yes"})
    second.label("of-")
    second.annotate({"by": "tests"})
    second.refresh()
    assert dict(second.data) == {"more": "1"} and dict(second.labels) == {"seen": "yes"}
    assert dict(second.annotations) == {"by": "tests"}
    assert not config_map("nothing", api).exists()
    with pytest.raises(kr8s.NotFoundError):
        ConfigMap.get("nothing", namespace="default", api=api)

    (folder / "deployment.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    (deployment,) = objects_from_files(folder / "deployment.yaml", api=api)
    assert isinstance(deployment, Deployment)
    deployment.create()
    deployment.scale(3)
    assert deployment.replicas == 3
    deployment.adopt(second)
    second.refresh()
    assert second.metadata.ownerReferences[0].uid == deployment.metadata.uid

    seen = list[tuple[str, str]]()
    timer = threading.Timer(0.1, config_map("m3", api).create)
    timer.start()
    for kind, found in api.watch("configmaps", namespace="default", label_selector="of=kr8s"):
        seen.append((kind, found.name))
        if len(seen) == 3:
            found.delete()
        if kind == "DELETED":
            break
    timer.join()
    assert seen == [("ADDED", "m0"), ("ADDED", "m2"), ("ADDED", "m3"), ("DELETED", "m3")]

    tool = new_class("Tool", version=f"{GROUP}/v1", namespaced=True)
    first = tool(obj("Tool", "first", replicas=1), namespace="default", api=api)
    first.create()
    first.patch({"status": {"phase": "Fine"}}, subresource="status")
    assert first.status.phase == "Fine" and first.spec.image == "busybox"
    with pytest.raises(kr8s.ServerError, match=r"spec\.replicas"):
        first.patch({"spec": {"replicas": 99}})
    first.delete()
    first.wait("delete", timeout=30)


async def test_synchronous_programs(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        await install(server, definition("Tool", version(subresources={"status": {}})))
        await asyncio.to_thread(work, str(server.kubeconfig()), tmp_path)


async def test_asyncio_programs(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        api = await kr8s.asyncio.api(kubeconfig=str(server.kubeconfig()))
        made = [
            await kr8s.asyncio.objects.ConfigMap(
                {"metadata": {"name": f"a{number:02}", "labels": {"of": "kr8s"}}, "data": {"n": str(number)}},
                namespace="default",
                api=api,
            )
            for number in range(25)
        ]
        await asyncio.gather(*(each.create() for each in made))
        found = [each.name async for each in api.get("configmaps", namespace="default", label_selector="of=kr8s")]
        assert found == [each.name for each in made]
        events = made[3].watch()
        next_event = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)  # it watches from the version that the object has now
        await made[3].patch({"data": {"n": "other"}})
        kind, changed = await next_event
        assert (kind, changed.data.n) == ("MODIFIED", "other")
        await made[3].delete()
        assert (await anext(events))[0] == "DELETED"
        await events.aclose()
        assert not await made[3].exists()
