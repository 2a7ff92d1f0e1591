"""Changes of CustomResourceDefinitions over a real server: names, versions, deletion, on both storage engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from control.custom import building, definition_controller
from control.custom.definition_controller import DefinitionController
from tests.support.control import ApiUnderTest
from tests.support.custom_resources import (
    DEFINITIONS,
    GROUP,
    conditions,
    definition,
    install,
    obj,
    post,
    server_on,
    settled,
    version,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "etcd"])
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiUnderTest]:
    async with server_on(request.param, tmp_path_factory.mktemp("api")) as api:
        yield api


async def test_defaults_that_come_later_show_on_what_is_there(server: ApiUnderTest) -> None:
    made = definition("Later")
    path = await install(server, made)
    await post(server, path, obj("Later"))
    name = made["metadata"]["name"]
    current = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
    schema = current["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["mode"] = {"type": "string", "default": "slow"}
    del schema["properties"]["spec"]["properties"]["image"]
    assert (await server.request("PUT", f"{DEFINITIONS}/{name}", current)).status == 200
    found = (await server.request("GET", f"{path}/a")).json
    assert found["spec"] == {"cronSpec": "* * *", "replicas": 1, "mode": "slow"}


async def test_a_name_that_is_taken_is_not_accepted_until_it_is_free(server: ApiUnderTest) -> None:
    first, second = definition("Taken", group="names.example.com"), definition("Other", group="names.example.com")
    await install(server, first)
    second["spec"]["names"]["shortNames"] = ["takens"]
    assert (await server.request("POST", DEFINITIONS, second)).status == 201
    name = second["metadata"]["name"]
    found = conditions(await settled(server, name))
    assert found == {"NamesAccepted": ("False", "ShortNamesConflict"), "Established": ("False", "NotAccepted")}
    assert (await server.request("GET", "/apis/names.example.com/v1/others")).status == 404
    assert (await server.request("DELETE", f"{DEFINITIONS}/{first['metadata']['name']}")).status == 200
    async with asyncio.timeout(90):
        while conditions(await settled(server, name))["Established"][0] != "True":
            await asyncio.sleep(0.01)
    assert (await server.request("GET", "/apis/names.example.com/v1/others")).status == 200


async def test_deleting_a_definition_deletes_its_objects_first(server: ApiUnderTest) -> None:
    made = definition("Doomed")
    path, name = await install(server, made), made["metadata"]["name"]
    held = obj("Doomed", "held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await post(server, path, held)
    await post(server, path, obj("Doomed", "free"))
    assert (await server.request("DELETE", f"{DEFINITIONS}/{name}")).status == 200
    async with asyncio.timeout(90):
        while [o["metadata"]["name"] for o in (await server.request("GET", path)).json["items"]] != ["held"]:
            await asyncio.sleep(0.01)
    found = await settled(server, name, "Terminating")
    assert conditions(found)["Terminating"] == ("True", "InstanceDeletionInProgress")
    late = await server.request("POST", path, obj("Doomed", "late"))
    assert late.status == 405
    assert late.json["message"] == "create not allowed while custom resource definition is terminating"
    merge = {"Content-Type": "application/merge-patch+json"}
    body = b'{"metadata":{"finalizers":null}}'
    assert (await server.request("PATCH", f"{path}/held", body, headers=merge)).status == 200
    async with asyncio.timeout(90):
        while (await server.request("GET", f"{DEFINITIONS}/{name}")).status != 404:
            await asyncio.sleep(0.01)
    assert (await server.request("GET", path)).status == 404
    await install(server, made)
    assert (await server.request("GET", path)).json["items"] == [], "a new definition of that name finds nothing old"


async def test_a_version_that_is_not_served_is_compiled_once_for_a_deletion(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, served = version("v1"), version("v2", storage=False)
    made = definition("Unserved", stored, served, group="unserved.example.com")
    path = (await install(server, made)).replace("/v1/", "/v2/")
    held = {**obj("Unserved", "held"), "apiVersion": "unserved.example.com/v2"}
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await post(server, path, held)
    name = made["metadata"]["name"]
    current = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
    current["spec"]["versions"][0]["served"] = False
    assert (await server.request("PUT", f"{DEFINITIONS}/{name}", current)).status == 200
    built, looks = 0, list[int]()
    build, look = building.build, DefinitionController._delete_objects

    def counted(given: Any, webhooks: Any) -> Any:
        nonlocal built
        built += 1
        return build(given, webhooks)

    async def looked(self: DefinitionController, name: str, marked: dict[str, int]) -> int:
        looks.append(len(marked))
        return await look(self, name, marked)

    monkeypatch.setattr(building, "build", counted)
    monkeypatch.setattr(DefinitionController, "_delete_objects", looked)
    monkeypatch.setattr(definition_controller, "RETRY", 0.01)
    assert (await server.request("DELETE", f"{DEFINITIONS}/{name}")).status == 200
    async with asyncio.timeout(90):
        while len(looks) < 10:
            await asyncio.sleep(0.01)
    # For the definition that is served, and the version that is not; again where its status has changed.
    assert built <= 4
    assert looks[:2] == [0, 0] and set(looks[2:]) == {1}  # the object is not decoded again
    body, merge = b'{"metadata":{"finalizers":null}}', {"Content-Type": "application/merge-patch+json"}
    assert (await server.request("PATCH", f"{path}/held", body, headers=merge)).status == 200
    async with asyncio.timeout(90):
        while (await server.request("GET", f"{DEFINITIONS}/{name}")).status != 404:
            await asyncio.sleep(0.01)


async def test_discovery_and_schemas_follow_at_once(server: ApiUnderTest) -> None:
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    served = version(subresources={"status": {}, "scale": scale})
    path = await install(server, definition("Found", served, group="found.example.com"))
    listed = (await server.request("GET", "/apis/found.example.com/v1")).json
    assert {r["name"] for r in listed["resources"]} == {"founds", "founds/status", "founds/scale"}
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    groups = (await server.request("GET", "/apis", headers=aggregated)).json["items"]
    group = next(g for g in groups if g["metadata"]["name"] == "found.example.com")
    assert group["versions"][0]["resources"][0]["responseKind"]["kind"] == "Found"
    index = (await server.request("GET", "/openapi/v3")).json["paths"]
    url = index["apis/found.example.com/v1"]["serverRelativeURL"]
    document = (await server.request("GET", url, headers={"Accept-Encoding": "identity"})).json
    schema = document["components"]["schemas"]["com.example.found.v1.Found"]
    assert schema["properties"]["spec"]["required"] == ["cronSpec"]
    assert path.replace("default", "{namespace}") in document["paths"]
    # kubectl takes any path of the kind to find out which patches it may send.
    patches = [operations["patch"] for operations in document["paths"].values() if "patch" in operations]
    kinds = [patch["x-kubernetes-group-version-kind"]["kind"] for patch in patches]
    assert sorted(kinds) == ["Found", "Found", "Scale"]
    assert not any("strategic" in type_ for patch in patches for type_ in patch["requestBody"]["content"])
    whole = (await server.request("GET", "/openapi/v2", headers={"Accept-Encoding": "identity"})).json
    assert "com.example.found.v1.Found" in whole["definitions"]
    await server.request("DELETE", f"{DEFINITIONS}/founds.found.example.com")
    async with asyncio.timeout(90):
        while (await server.request("GET", "/apis/found.example.com")).status != 404:
            await asyncio.sleep(0.01)


async def test_what_cannot_be_served_is_refused(server: ApiUnderTest) -> None:
    made = definition("Refused")
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["x"] = {}
    made["spec"]["versions"][0]["subresources"] = {"scale": {"specReplicasPath": ".status.x"}}
    found = await post(server, DEFINITIONS, made, 422)
    assert sorted((c["field"], c["message"]) for c in found["details"]["causes"]) == [
        ("spec.subresources.scale.specReplicasPath", 'Invalid value: ".status.x": should be a json path under .spec'),
        ("spec.subresources.scale.statusReplicasPath", "Required value"),
        (
            "spec.validation.openAPIV3Schema.properties[spec].properties[x].type",
            "Required value: must not be empty for specified object fields",
        ),
    ]


async def test_names_and_scope_stay_and_stored_versions_are_kept_until_migrated(server: ApiUnderTest) -> None:
    made = definition("Fixed", version("v1"), version("v2", storage=False))
    await install(server, made)
    name = made["metadata"]["name"]
    current = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
    current["spec"]["scope"] = "Cluster"
    answer = await server.request("PUT", f"{DEFINITIONS}/{name}", current)
    assert 'spec.scope: Invalid value: "Cluster": field is immutable' in answer.json["message"]
    current["spec"]["scope"] = "Namespaced"
    for each in current["spec"]["versions"]:
        each["storage"] = each["name"] == "v2"
    current = (await server.request("PUT", f"{DEFINITIONS}/{name}", current)).json
    current["spec"]["versions"] = [v for v in current["spec"]["versions"] if v["name"] == "v2"]
    answer = await server.request("PUT", f"{DEFINITIONS}/{name}", current)
    assert (
        answer.status == 422 and 'status.storedVersions[0]: Invalid value: "v1": missing from' in answer.json["message"]
    )
    merge = {"Content-Type": "application/merge-patch+json"}
    done = b'{"status":{"storedVersions":["v2"]}}'
    assert (await server.request("PATCH", f"{DEFINITIONS}/{name}/status", done, headers=merge)).status == 200
    fresh = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
    fresh["spec"]["versions"] = current["spec"]["versions"]
    assert (await server.request("PUT", f"{DEFINITIONS}/{name}", fresh)).status == 200


async def test_watches_end_when_what_they_watch_is_served_no_longer(server: ApiUnderTest) -> None:
    path = await install(server, definition("Ending"))
    async with server.session().get(f"{server.url}{path}?watch=true") as stream:
        await server.request("DELETE", f"{DEFINITIONS}/endings.{GROUP}")
        async with asyncio.timeout(90):
            assert await stream.content.read() == b""


async def test_a_changed_definition_ends_watches_and_nothing_is_gone_for_a_moment(server: ApiUnderTest) -> None:
    path = await install(server, definition("Changing"))
    await post(server, path, obj("Changing"))
    seen: set[int] = set()
    over = asyncio.Event()

    async def read() -> None:
        while not over.is_set():
            seen.add((await server.request("GET", f"{path}/a")).status)

    readers = [asyncio.create_task(read()) for _ in range(3)]
    async with server.session().get(f"{server.url}{path}?watch=true") as stream:
        for number in range(5):
            change = json.dumps({"spec": {"names": {"shortNames": [f"ch{number}"]}}}).encode()
            merge = {"Content-Type": "application/merge-patch+json"}
            answer = await server.request("PATCH", f"{DEFINITIONS}/changings.{GROUP}", change, headers=merge)
            assert answer.status == 200, answer.body
        async with asyncio.timeout(90):
            assert (await stream.content.read()).count(b"ADDED") == 1
    over.set()
    await asyncio.gather(*readers)
    assert seen == {200}


async def test_a_version_that_is_served_no_longer_is_gone_and_its_objects_are_not(server: ApiUnderTest) -> None:
    path = await install(server, definition("Hidden", version("v1"), version("v2", storage=False, deprecated=True)))
    await post(server, path, obj("Hidden"))
    newer = path.replace("/v1/", "/v2/")
    assert "v2 Hidden is deprecated" in (await server.request("GET", newer)).headers["Warning"]
    name = f"{DEFINITIONS}/hiddens.{GROUP}"
    current = (await server.request("GET", name)).json
    current["spec"]["versions"][0]["served"] = False
    assert (await server.request("PUT", name, current)).status == 200
    assert (await server.request("GET", path)).status == 404
    assert [o["metadata"]["name"] for o in (await server.request("GET", newer)).json["items"]] == ["a"]
