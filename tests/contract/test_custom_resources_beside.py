"""Custom resources beside other things: conversion webhooks, other servers, restarts, controllers, the real kubectl."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import (
    DEFINITIONS,
    GROUP,
    conditions,
    definition,
    install,
    obj,
    post,
    settled,
    version,
)
from tests.support.etcd import etcd
from tests.support.webhook import webhook

MERGE = {"Content-Type": "application/merge-patch+json"}


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 90) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


def converted(request: Object) -> Object:
    """v1 has spec.image; v2 has it as spec.container.image."""
    found = []
    for one in request["objects"]:
        new = json.loads(json.dumps(one))
        spec = new["spec"]
        if request["desiredAPIVersion"].endswith("v2"):
            spec["container"] = {"image": spec.pop("image", "")}
        else:
            spec["image"] = (spec.pop("container", None) or {}).get("image", "")
        new["apiVersion"] = request["desiredAPIVersion"]
        new["metadata"]["annotations"] = {"converted": "yes"}
        new["metadata"]["ownerReferences"] = [{"kind": "Ignored"}]
        found.append(new)
    return {"result": {"status": "Success"}, "convertedObjects": found}


def of_two_versions(kind: str, client: Object, review: str = "v1") -> Object:
    newer = version("v2", storage=False)
    spec = newer["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["image"]
    spec["properties"]["container"] = {"type": "object", "properties": {"image": {"type": "string"}}}
    newer["selectableFields"] = [{"jsonPath": ".spec.container.image"}]
    made = definition(kind, version("v1"), newer)
    made["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": [review], "clientConfig": client},
    }
    return made


async def test_a_webhook_converts_what_is_read_written_listed_and_watched(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path) as server:
        hook.answers["/convert"] = converted
        path = await install(server, of_two_versions("Converted", hook.client("/convert")))
        newer = path.replace("/v1/", "/v2/")
        await post(server, path, obj("Converted", "a", image="one"))
        found = (await server.request("GET", f"{newer}/a")).json
        assert (found["apiVersion"], found["spec"]["container"]) == (f"{GROUP}/v2", {"image": "one"})
        assert found["metadata"]["annotations"] == {"converted": "yes"} and "ownerReferences" not in found["metadata"]
        made = obj("Converted", "b", f"{GROUP}/v2", container={"image": "two"})
        assert (await post(server, newer, made))["spec"]["container"] == {"image": "two"}
        assert (await server.request("GET", f"{path}/b")).json["spec"]["image"] == "two"
        hook.received.clear()
        listed = (await server.request("GET", newer)).json
        assert [o["spec"]["container"]["image"] for o in listed["items"]] == ["one", "two"]
        await server.request("GET", newer)
        assert sum(len(request["objects"]) for _, request in hook.received) <= 1, "what was converted once is kept"
        async with server.session().get(f"{server.url}{newer}?watch=true&resourceVersion=0") as stream:
            events = [json.loads(await stream.content.readline()) for _ in range(2)]
            assert [e["object"]["spec"]["container"]["image"] for e in events] == ["one", "two"]
        patch = b'{"spec":{"container":{"image":"three"}}}'
        assert (await server.request("PATCH", f"{newer}/a", patch, headers=MERGE)).status == 200
        assert (await server.request("GET", f"{path}/a")).json["spec"]["image"] == "three"


async def test_a_webhook_gets_the_review_version_that_it_accepts(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path) as server:
        hook.answers["/convert"] = lambda request: {**converted(request), "uid": ""}
        path = await install(server, of_two_versions("Older", hook.client("/convert"), "v1beta1"))
        await post(server, path, obj("Older", "a", image="one"))
        found = (await server.request("GET", f"{path.replace('/v1/', '/v2/')}/a")).json
        assert found["spec"]["container"] == {"image": "one"}
        assert hook.versions == {"apiextensions.k8s.io/v1beta1"}
        unknown = of_two_versions("Unknown", hook.client("/convert"), "v9")
        refused = await server.request("POST", DEFINITIONS, unknown)
        assert "must include at least one of v1, v1beta1" in refused.json["message"]


async def test_fields_that_a_webhook_makes_can_be_selected(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path) as server:
        hook.answers["/convert"] = converted
        path = await install(server, of_two_versions("Chosen", hook.client("/convert")))
        newer = path.replace("/v1/", "/v2/")
        for name, image in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "one")):
            await post(server, path, obj("Chosen", name, image=image))
        ones = f"{newer}?fieldSelector=spec.container.image%3Done"
        listed = (await server.request("GET", ones)).json
        assert [o["metadata"]["name"] for o in listed["items"]] == ["a", "c", "d"]
        page = (await server.request("GET", f"{ones}&limit=2")).json
        assert [o["metadata"]["name"] for o in page["items"]] == ["a", "c"]
        rest = (await server.request("GET", f"{ones}&limit=2&continue={page['metadata']['continue']}")).json
        assert [o["metadata"]["name"] for o in rest["items"]] == ["d"] and "continue" not in rest["metadata"]
        both = (await server.request("GET", f"{ones},metadata.name!%3Da")).json
        assert [o["metadata"]["name"] for o in both["items"]] == ["c", "d"]
        since = listed["metadata"]["resourceVersion"]
        async with server.session().get(f"{server.url}{ones}&watch=true&resourceVersion={since}") as stream:
            for name, image in (("b", "one"), ("a", "two"), ("c", "one")):
                body = {"spec": {"image": image}, "metadata": {"labels": {"seen": "yes"}}}
                await server.request("PATCH", f"{path}/{name}", body, headers=MERGE)
            await server.request("DELETE", f"{path}/d")
            await server.request("DELETE", f"{path}/a")
            await server.request("DELETE", f"{path}/c")
            events = [json.loads(await stream.content.readline()) for _ in range(5)]
        reported = [
            (e["type"], e["object"]["metadata"]["name"], e["object"]["spec"]["container"]["image"]) for e in events
        ]
        assert reported == [
            ("ADDED", "b", "one"),
            ("DELETED", "a", "one"),
            ("MODIFIED", "c", "one"),
            ("DELETED", "d", "one"),
            ("DELETED", "c", "one"),
        ]


async def test_objects_are_moved_to_a_new_storage_version_with_kubectl(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path) as server:
        hook.answers["/convert"] = converted
        made = of_two_versions("Moved", hook.client("/convert"))
        path = await install(server, made)
        name, newer = made["metadata"]["name"], path.replace("/v1/", "/v2/")
        for each in ("a", "b"):
            await post(server, path, obj("Moved", each, image=each))
        for each in made["spec"]["versions"]:
            each["storage"] = each["name"] == "v2"
        patch = json.dumps({"spec": {"versions": made["spec"]["versions"]}})
        await server.kubectl("patch", "crd", name, "--type=merge", f"-p={patch}")
        assert (await server.request("GET", f"{DEFINITIONS}/{name}")).json["status"]["storedVersions"] == ["v1", "v2"]
        objects = (await server.kubectl("get", f"moveds.v2.{GROUP}", "-o", "json")).stdout
        await server.kubectl("replace", "-f", "-", input=objects)
        page = await server.api.store.list(f"/registry/{GROUP}/moveds/", 0, "", 10)
        assert [json.loads(item.value)["apiVersion"] for item in page.items] == [f"{GROUP}/v2"] * 2
        status = '-p={"status":{"storedVersions":["v2"]}}'
        await server.kubectl("patch", "crd", name, "--subresource=status", "--type=merge", status)
        patch = json.dumps(
            {"spec": {"versions": made["spec"]["versions"][1:], "conversion": {"strategy": "None", "webhook": None}}}
        )
        await server.kubectl("patch", "crd", name, "--type=merge", f"-p={patch}")
        hook.received.clear()
        listed = (await server.request("GET", newer)).json["items"]
        assert [o["spec"]["container"]["image"] for o in listed] == ["a", "b"] and not hook.received


def with_metadata(changes: Object, request: Object) -> Object:
    """Convert by renaming, with other metadata."""
    made = [
        {**one, "apiVersion": request["desiredAPIVersion"], "metadata": one["metadata"] | changes}
        for one in request["objects"]
    ]
    return {"result": {"status": "Success"}, "convertedObjects": made}


FAILURES: dict[str, tuple[Any, str]] = {
    "refuses": (
        lambda request: {"result": {"status": "Failure", "message": "not today"}},
        "conversion webhook for stable.example.com/v1, Kind=Bad failed: not today",
    ),
    "loses objects": (
        lambda request: {"result": {"status": "Success"}, "convertedObjects": []},
        "conversion webhook for stable.example.com/v1, Kind=Bad returned 0 objects, expected 1",
    ),
    "keeps the version": (
        lambda request: {"result": {"status": "Success"}, "convertedObjects": request["objects"]},
        "conversion webhook for stable.example.com/v1, Kind=Bad returned invalid converted object at index 0: invalid "
        "groupVersion (expected stable.example.com/v2, received stable.example.com/v1)",
    ),
    **{
        name: (
            partial(with_metadata, metadata),
            "conversion webhook for stable.example.com/v1, Kind=Bad returned invalid metadata in object at index 0: "
            + message,
        )
        for name, metadata, message in (
            ("labels a list", {"labels": [1]}, "invalid metadata.labels of type []interface {} in converted object"),
            ("labels a number", {"labels": 5}, "invalid metadata.labels of type int64 in converted object"),
            (
                "a label a map",
                {"labels": {"a": {}}},
                "metadata.labels[a] must be a string, but is map[string]interface {}",
            ),
            ("a label null", {"labels": {"a": None}}, "metadata.labels[a] must be a string, but is <nil>"),
            ("a wrong label", {"labels": {"a b": "c"}}, 'metadata.labels: Invalid value: "a b": '),
            (
                "an annotation true",
                {"annotations": {"a": True}},
                "metadata.annotations[a] must be a string, but is bool",
            ),
        )
    },
    "answers nonsense": (b"[]", "conversion webhook for stable.example.com/v1, Kind=Bad failed: invalid response"),
}


async def test_a_failing_webhook_is_reported_and_affects_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook, api_server(tmp_path) as server:
        path = await install(server, of_two_versions("Bad", hook.client("/convert")))
        await post(server, path, obj("Bad"))
        newer = path.replace("/v1/", "/v2/")
        for name, (answer, message) in FAILURES.items():
            hook.answers["/convert"] = answer
            found = await server.request("GET", f"{newer}/a")
            assert found.status == 500 and found.json["message"].startswith(message), (name, found.json)
            assert (await server.request("GET", newer)).status == 500
        assert (await server.request("GET", f"{path}/a")).status == 200
        name = "bads.stable.example.com"
        assert (await server.request("DELETE", f"{DEFINITIONS}/{name}")).status == 200, "nor does it hold up a deletion"
        await until(lambda: _gone(server, f"{DEFINITIONS}/{name}"))


async def _gone(server: ApiUnderTest, path: str) -> bool:
    return (await server.request("GET", path)).status == 404


async def test_a_definition_made_at_one_server_is_served_at_another_and_after_a_restart(tmp_path: Path) -> None:
    async with etcd(tmp_path / "etcd") as cluster:
        more: Object = {"store": "etcd", "etcd_servers": tuple(cluster.servers)}
        async with api_server(tmp_path / "a", **more) as a:
            async with api_server(tmp_path / "b", **more) as b:
                path = await install(a, definition("Shared"))
                await post(b, path, obj("Shared"))
                assert (await a.request("GET", f"{path}/a")).json["spec"]["image"] == "busybox"
                groups = (await b.request("GET", "/apis")).json["groups"]
                assert GROUP in [group["name"] for group in groups]
                assert (await b.request("DELETE", f"{DEFINITIONS}/shareds.{GROUP}")).status == 200
                await until(lambda: _gone(a, path))
                await install(a, definition("Kept"))
                await post(a, path.replace("shareds", "kepts"), obj("Kept"))
        async with api_server(tmp_path / "a", **more) as again:
            kept = path.replace("shareds", "kepts")
            assert [o["metadata"]["name"] for o in (await again.request("GET", kept)).json["items"]] == ["a"]


async def test_a_deletion_under_way_goes_on_after_a_restart(tmp_path: Path) -> None:
    name = f"halfs.{GROUP}"
    async with api_server(tmp_path) as server:
        path = await install(server, definition("Half"))
        held = obj("Half")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await post(server, path, held)
        await server.request("DELETE", f"{DEFINITIONS}/{name}")
        found = await settled(server, name, "Terminating")
        assert conditions(found)["Terminating"][0] == "True"
    async with api_server(tmp_path) as server:
        assert (
            await server.request("PATCH", f"{path}/a", b'{"metadata":{"finalizers":null}}', headers=MERGE)
        ).status == 200
        await until(lambda: _gone(server, f"{DEFINITIONS}/{name}"))


async def test_controllers_treat_custom_resources_as_all_others(tmp_path: Path) -> None:
    async with api_server(tmp_path, enable_controllers=True) as server:
        path = await install(server, definition("Owned"))
        quota = {
            "metadata": {"name": "few"},
            "spec": {"hard": {f"count/owneds.{GROUP}": "2"}},
        }
        space = "/api/v1/namespaces"
        await post(server, space, {"metadata": {"name": "room"}})
        await post(server, f"{space}/room/resourcequotas", quota)

        async def counted() -> bool:
            status = (await server.request("GET", f"{space}/room/resourcequotas/few")).json.get("status") or {}
            return bool(status.get("hard"))

        await until(counted)
        there = path.replace("default", "room")
        parent = await post(server, there, obj("Owned", "parent"))
        child = obj("Owned", "child")
        owner = {"apiVersion": f"{GROUP}/v1", "kind": "Owned", "name": "parent", "uid": parent["metadata"]["uid"]}
        child["metadata"]["ownerReferences"] = [owner]
        await post(server, there, child)
        third = await server.request("POST", there, obj("Owned", "third"))
        assert third.status == 403 and "exceeded quota: few" in third.json["message"]
        assert (await server.request("DELETE", f"{there}/parent")).status == 200
        await until(lambda: _gone(server, f"{there}/child"))
        await server.request("DELETE", f"{space}/room/resourcequotas/few")
        await post(server, there, obj("Owned", "left"))
        await server.request("DELETE", f"{space}/room")
        await until(lambda: _gone(server, f"{space}/room"))
        assert (await server.request("GET", path.replace("namespaces/default/", ""))).json["items"] == []


MANIFEST = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, singular: crontab, kind: CronTab, shortNames: [ct], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Spec, type: string, jsonPath: .spec.cronSpec}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [cronSpec]
            x-kubernetes-validations:
            - {rule: "!has(self.image) || self.image != 'forbidden'", message: not this image}
            properties:
              cronSpec: {type: string, description: When it runs.}
              image: {type: string}
              replicas: {type: integer, minimum: 0, maximum: 10, default: 1}
          status:
            type: object
            properties: {replicas: {type: integer}}
"""
CRONTAB = """
apiVersion: stable.example.com/v1
kind: CronTab
metadata: {name: mine, namespace: default}
spec: {cronSpec: "* * * * */5", image: one}
"""


@pytest.mark.timeout(300)
async def test_kubectl_works_with_custom_resources(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:

        async def kubectl(*arguments: str, input: str = "") -> str:
            return (await server.kubectl(*arguments, input=input)).stdout

        async def refused(*arguments: str, input: str = "") -> str:
            result = await server.kubectl(*arguments, input=input, check=False)
            assert result.returncode != 0, result.stdout
            return result.stderr

        await kubectl("apply", "-f", "-", input=MANIFEST)
        await kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=90s")
        assert "created" in await kubectl("apply", "-f", "-", input=CRONTAB)
        assert "unchanged" in await kubectl("apply", "-f", "-", input=CRONTAB)
        assert "configured" in await kubectl("apply", "-f", "-", input=CRONTAB.replace("one", "two"))
        rows = (await kubectl("get", "ct")).splitlines()
        assert rows[0].split() == ["NAME", "SPEC", "REPLICAS", "AGE"]
        assert rows[1].split()[:-1] == ["mine", "*", "*", "*", "*", "*/5", "1"]
        assert "crontab.stable.example.com/mine" in await kubectl("get", "all")
        await kubectl("scale", "ct/mine", "--replicas=3")
        await kubectl("patch", "ct", "mine", "--type=merge", "-p", '{"spec":{"image":"three"}}')
        await kubectl("label", "ct", "mine", "a=b")
        await kubectl("patch", "ct", "mine", "--subresource=status", "--type=merge", "-p", '{"status":{"replicas":3}}')
        found = json.loads(await kubectl("get", "ct", "mine", "-o", "json"))
        assert found["spec"] == {"cronSpec": "* * * * */5", "image": "three", "replicas": 3}
        assert found["status"] == {"replicas": 3} and found["metadata"]["generation"] == 4
        assert "When it runs." in await kubectl("explain", "ct.spec.cronSpec")
        assert "Cron Spec:" in await kubectl("describe", "ct", "mine")
        assert "not this image" in await refused("apply", "-f", "-", input=CRONTAB.replace("one", "forbidden"))
        assert 'unknown field "spec.imag"' in await refused("apply", "-f", "-", input=CRONTAB.replace("image", "imag"))
        assert "serverside-applied" in await kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", input=CRONTAB
        )
        assert (
            "+  image: two"
            in (await server.kubectl("diff", "-f", "-", input=CRONTAB.replace("one", "two"), check=False)).stdout
        )
        await kubectl("delete", "crd", "crontabs.stable.example.com", "--timeout=90s")
        assert "the server" in await refused("get", "crontabs"), "kubectl may still have it in its discovery cache"


async def test_a_definition_that_nobody_would_let_in_today_breaks_nothing(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        await install(server, definition("Fine"))
        name = f"broken.{GROUP}"
        bad = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "uid": "u"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": "broken", "kind": "Broken"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"properties": 5}}}
                ],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        }
        key = f"/registry/apiextensions.k8s.io/customresourcedefinitions/{name}"
        await server.api.store.create(key, json.dumps(bad).encode())
        without = json.dumps({**bad, "metadata": {"name": f"worse.{GROUP}", "uid": "w"}, "spec": {"group": GROUP}})
        await server.api.store.create(key.replace("broken", "worse"), without.encode())

        async def seen() -> bool:
            return (await server.request("GET", f"{DEFINITIONS}/{name}")).status == 200

        await until(seen)
        listed = (await server.request("GET", f"/apis/{GROUP}/v1")).json
        assert [r["name"] for r in listed["resources"]] == ["fines"]
        assert (await server.request("GET", f"/apis/{GROUP}/v1/namespaces/default/fines")).status == 200
        assert (await server.request("GET", f"/apis/{GROUP}/v1/namespaces/default/broken")).status == 404
        await install(server, definition("After"))
