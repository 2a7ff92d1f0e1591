"""Garbage collection beside resources that cannot be listed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from control.controllers.garbage import collector, resource_monitors
from control.controllers.garbage.metadata import MetadataClient
from control.http.exchange import Request
from control.server.pipeline import Pipeline
from tests.support.control import ApiUnderTest, api_server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"name": name, "served": True, "storage": storage, "schema": schema}


def definition() -> dict[str, Any]:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "ex.io", "scope": "Namespaced", "names": names, "versions": [version("v1", storage=True)]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.ex.io"},
        "spec": spec,
    }


async def orphaned(api: ApiUnderTest, name: str) -> None:
    """Make an object whose owner is then deleted."""
    owner = (await api.request("POST", CONFIGMAPS, {"metadata": {"name": f"{name}-owner"}})).json
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": f"{name}-owner",
        "uid": owner["metadata"]["uid"],
    }
    made = await api.request("POST", CONFIGMAPS, {"metadata": {"name": name, "ownerReferences": [reference]}})
    assert made.status == 201
    await api.request("DELETE", f"{CONFIGMAPS}/{name}-owner")


async def collected(api: ApiUnderTest, name: str) -> None:
    async with asyncio.timeout(30):
        while (await api.request("GET", f"{CONFIGMAPS}/{name}")).status != 404:
            await asyncio.sleep(0.05)


async def test_a_dead_conversion_webhook_holds_up_only_its_own_resource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "SYNC_SECONDS", 1.0)
    async with api_server(tmp_path) as api:
        assert (await api.request("POST", DEFINITIONS, definition())).status == 201
        async with asyncio.timeout(30):
            thing = {"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": {"name": "t"}}
            while (await api.request("POST", "/apis/ex.io/v1/namespaces/default/things", thing)).status != 201:
                await asyncio.sleep(0.05)
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:9/convert"}}
        changed = {
            "versions": [version("v1", storage=False), version("v2", storage=True)],
            "conversion": {"strategy": "Webhook", "webhook": webhook},
        }
        answer = await api.request(
            "PATCH",
            f"{DEFINITIONS}/things.ex.io",
            json.dumps({"spec": changed}).encode(),
            headers={"content-type": "application/merge-patch+json"},
        )
        assert answer.status == 200
        async with asyncio.timeout(30):
            while (await api.request("GET", "/apis/ex.io/v2/things")).status != 500:
                await asyncio.sleep(0.05)
        await orphaned(api, "one")
    async with api_server(tmp_path, enable_controllers=True) as api:
        await collected(api, "one")
        await orphaned(api, "two")
        await collected(api, "two")


async def test_an_unforeseen_error_of_one_resource_holds_up_only_its_own_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, failed = MetadataClient.list, list[str]()

    async def fail(client: MetadataClient, *rest: Any, **more: Any) -> Any:
        if client._resource.plural == "podtemplates":
            failed.append(client._resource.plural)
            raise TypeError("a bug")
        return await listed(client, *rest, **more)

    monkeypatch.setattr(MetadataClient, "list", fail)
    monkeypatch.setattr(collector, "SYNC_SECONDS", 1.0)
    monkeypatch.setattr(resource_monitors, "FAILED_SECONDS", 0.1)
    async with api_server(tmp_path, enable_controllers=True) as api:
        await orphaned(api, "one")
        await collected(api, "one")
        assert len(failed) > 1


async def test_an_owners_name_leads_to_no_other_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may ask the proxies of pods and nodes for anything; who writes owner references may not."""
    requested: list[str] = []
    answer = Pipeline.answer

    async def record(pipeline: Pipeline, request: Request, *rest: Any) -> Any:
        requested.append(request.path)
        return await answer(pipeline, request, *rest)

    monkeypatch.setattr(Pipeline, "answer", record)
    names = {
        "Pod": ["web:80/proxy/x", "web/log", ".."],
        "Node": ["n1:10250/proxy/containerLogs/kube-system/etcd/etcd", "n1%2Fproxy"],
        "Namespace": ["kube-system/secrets/token"],
    }
    async with api_server(tmp_path, enable_controllers=True) as api:
        for number, (owner_kind, name) in enumerate(
            (kind, name) for kind, several in names.items() for name in several
        ):
            owner = {"apiVersion": "v1", "kind": owner_kind, "name": name, "uid": f"{number}"}
            made = {"metadata": {"name": f"of-{number}", "ownerReferences": [owner]}}
            assert (await api.request("POST", CONFIGMAPS, made)).status == 201
        await orphaned(api, "orphan")
        await collected(api, "orphan")
        left = (await api.request("GET", CONFIGMAPS)).json["items"]
        assert {f"of-{number}" for number in range(6)} <= {each["metadata"]["name"] for each in left}
    ends = tuple(f"/{name}" for several in names.values() for name in (*several, "n1/proxy"))
    assert not [path for path in requested if path.endswith(ends)]
