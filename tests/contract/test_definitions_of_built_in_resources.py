"""Definitions that have the name, the group version or the place in the store of a built-in resource."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest

from control.custom.definitions import DEFINITIONS as KIND
from control.registry import updating
from control.registry.context import SERVER, Context
from control.storage import codec
from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import DEFINITIONS, definition, install, obj, post, settled, version

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
OVERLAPPING = ("customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io")


def protected(plural: str, kind: str, group: str, *versions: str, scope: str = "Cluster") -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    parts = [version(v, schema=schema, storage=v == versions[0]) for v in versions]
    made = definition(kind, *parts, group=group, scope=scope)
    made["spec"]["names"]["plural"] = plural
    made["metadata"] = {
        "name": f"{plural}.{group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
    }
    return made


async def names(server: ApiUnderTest, path: str) -> set[str]:
    answer = await server.request("GET", path)
    assert answer.status == 200, answer.body
    return {item["metadata"]["name"] for item in answer.json["items"]}


async def gone(server: ApiUnderTest, path: str) -> None:
    async with asyncio.timeout(90):
        while (await server.request("GET", path)).status != 404:
            await asyncio.sleep(0.01)


async def stored(server: ApiUnderTest, kind: str, name: str, parts: Object, prefix: str = KIND.storage_prefix) -> None:
    """Write an object into the store, as a definition of this place let users do."""
    value = {"kind": kind, "metadata": {"name": name, "uid": f"u-{name}"}, **parts}
    value.setdefault("apiVersion", "apiextensions.k8s.io/v2")
    await server.api.registry.store.create(f"{prefix}{name}", codec.encode(value))
    await server.api.registry.cache.wait_current()


@pytest.mark.parametrize("name", OVERLAPPING)
async def test_a_definition_whose_objects_would_be_those_of_a_built_in_resource_is_refused(
    tmp_path: Path, name: str
) -> None:
    plural, _, group = name.partition(".")
    async with api_server(tmp_path) as server:
        for of in ("v1", "v2"):
            refused = await post(server, DEFINITIONS, protected(plural, "Foo", group, of), 422)
            assert [c["field"] for c in refused["details"]["causes"]] == ["spec.names.plural"]
            assert "are stored by the built-in resource" in refused["message"]


@pytest.mark.parametrize("name", OVERLAPPING)
async def test_a_stored_definition_of_a_built_in_resource_serves_nothing_and_its_deletion_deletes_nothing_else(
    tmp_path: Path, name: str
) -> None:
    plural, _, group = name.partition(".")
    made = protected(plural, "Foo", group, "v2")
    async with api_server(tmp_path) as server:
        path = await install(server, definition("Kept"))
        await post(server, path, obj("Kept"))
        made["metadata"] |= {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        accepted = {**made["spec"]["names"], "singular": "foo", "listKind": "FooList"}
        made["spec"]["names"] = accepted
        conditions = [{"type": t, "status": "True", "reason": "NoConflicts"} for t in ("NamesAccepted", "Established")]
        made["status"] = {"conditions": conditions, "acceptedNames": accepted, "storedVersions": ["v2"]}
        await stored(server, "CustomResourceDefinition", name, copy.deepcopy(made))
        services, definitions = await names(server, SERVICES), await names(server, DEFINITIONS)
        assert name in definitions
        body = {"apiVersion": f"{group}/v2", "kind": "Foo", "metadata": {"name": "x.y"}}
        await post(server, f"/apis/{group}/v2/{plural}", body, 404)
        found = (await server.request("GET", "/apis", headers=AGGREGATED)).json
        assert "v2" not in {
            v["version"] for g in found["items"] if g["metadata"]["name"] == group for v in g["versions"]
        }
        assert (await server.request("DELETE", f"{DEFINITIONS}/{name}")).status == 200
        await gone(server, f"{DEFINITIONS}/{name}")
        assert await names(server, SERVICES) == services and f"v2.{group}" not in services
        assert await names(server, DEFINITIONS) == definitions - {name}
        assert (await server.request("GET", f"{path}/a")).status == 200
        await install(server, definition("Later"))


BOGUS: list[Object] = [
    {},
    {"spec": []},
    {"spec": {"group": "example.org"}, "status": {"conditions": [{"type": "Established", "status": "True"}]}},
    {"spec": {"group": ["a"], "names": {}, "versions": {}}, "status": "x"},
    {
        "spec": {
            "group": "example.org",
            "scope": "Cluster",
            "names": {"plural": "bars", "kind": "Bar", "shortNames": {}},
            "versions": [{"name": "v1", "served": True, "storage": True}],
        },
        "status": {"conditions": 5, "acceptedNames": {"plural": [], "kind": {}}},
    },
    {"apiVersion": "apiextensions.k8s.io/v1beta1", "spec": "x"},
]


FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


async def test_objects_that_are_no_definitions_break_neither_discovery_nor_other_definitions(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        path = await install(server, definition("Kept"))
        for index, parts in enumerate(BOGUS):
            await stored(server, "Bar", f"x{index}.example.org", parts)
        await stored(server, "CustomResourceDefinition", "x9.example.org", BOGUS[-1])
        of_pods = protected("default", "Bar", "pods", "v1")
        established = [{"type": "Established", "status": "True"}]
        await stored(server, "Bar", "default.pods", {"spec": of_pods["spec"], "status": {"conditions": established}})
        assert (await server.request("GET", "/apis/pods/v1/default")).status == 404
        for _ in range(2):  # as it is, and with what the server itself has changed
            for shown in ("/apis", "/openapi/v2", "/openapi/v3", "/apis/stable.example.com/v1", DEFINITIONS, path):
                answer = await server.request("GET", shown, headers=AGGREGATED if shown == "/apis" else None)
                assert answer.status == 200, (shown, answer.body)
            made = definition("Bar", group="example.org")
            await install(server, made)
            assert (await server.request("DELETE", f"{DEFINITIONS}/bars.example.org")).status == 200
            await gone(server, f"{DEFINITIONS}/bars.example.org")
        marked = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FINALIZER], "name": "m.example.org"}
        await stored(server, "Bar", "m.example.org", {"metadata": {**marked, "uid": "m"}})
        await gone(server, f"{DEFINITIONS}/m.example.org")
        for name in sorted(await names(server, DEFINITIONS) - {"kepts.stable.example.com"}):
            assert (await server.request("DELETE", f"{DEFINITIONS}/{name}")).status == 200
            await gone(server, f"{DEFINITIONS}/{name}")
        assert await names(server, DEFINITIONS) == {"kepts.stable.example.com"}


async def test_objects_that_are_no_api_services_do_not_stop_those_of_definitions_and_extensions(tmp_path: Path) -> None:
    prefix = "/registry/apiregistration.k8s.io/apiservices/"
    async with api_server(tmp_path) as server:
        for index, spec in enumerate(([], "x", {"service": "x"}, {"version": "v1", "service": {"name": "a"}})):
            parts = {"apiVersion": "apiregistration.k8s.io/v2", "spec": spec, "status": {"conditions": 5}}
            await stored(server, "Bar", f"x{index}.example.org", parts, prefix)
        await install(server, definition("Kept"))
        async with asyncio.timeout(90):
            while "v1.stable.example.com" not in await names(server, SERVICES):
                await asyncio.sleep(0.01)
        spec = {
            "group": "z.example.org",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": "none"},
        }
        await post(server, SERVICES, {"metadata": {"name": "v1.z.example.org"}, "spec": spec})
        async with asyncio.timeout(90):
            while not (await server.request("GET", f"{SERVICES}/v1.z.example.org")).json.get("status"):
                await asyncio.sleep(0.01)


async def test_names_that_a_status_claims_do_not_move_a_definitions_objects(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        path = await install(server, definition("Kept"))
        other = definition("Other")
        await install(server, other)
        await post(server, path, obj("Kept"))

        async def claim(old: Object | None) -> Object:
            assert old is not None
            old["status"]["acceptedNames"]["plural"] = "kepts"
            return old

        name = other["metadata"]["name"]
        await updating.update(server.api.registry, Context(SERVER), KIND, "", name, claim, subresource="status")
        found = server.api.resources.custom.find("stable.example.com", "v1", "others")
        assert found is not None and found.storage_prefix == "/registry/stable.example.com/others/"
        await settled(server, name)


async def test_a_definition_in_a_group_version_of_the_server_is_not_served_beside_its_kinds(tmp_path: Path) -> None:
    """As upstream's TestCRDShadowGroup; its other versions are served."""
    async with api_server(tmp_path) as server:
        before = (await server.request("GET", "/apis/networking.k8s.io/v1")).json
        services = await names(server, SERVICES)
        made = protected("zzzs", "NetworkPolicy", "networking.k8s.io", "v1", "v2", scope="Namespaced")
        await install(server, made)
        for plural, kind, group in (
            ("clusterroles", "ClusterRole", "rbac.authorization.k8s.io"),
            ("metricses", "PodMetrics", "metrics.k8s.io"),
        ):
            of = "v1beta1" if group == "metrics.k8s.io" else "v1"
            await install(server, protected(plural, kind, group, of, scope="Namespaced"))
        assert (await server.request("GET", "/apis/networking.k8s.io/v1")).json == before
        found = (await server.request("GET", "/apis", headers=AGGREGATED)).json
        shown = [
            (group["metadata"]["name"], v["version"], r["resource"], r["scope"])
            for group in found["items"]
            for v in group["versions"]
            for r in v["resources"]
        ]
        assert ("networking.k8s.io", "v2", "zzzs", "Namespaced") in shown
        assert {"zzzs", "metricses"} & {r for _, v, r, _ in shown if v != "v2"} == set()
        assert [s for _, _, r, s in shown if r == "clusterroles"] == ["Cluster"]
        one = {"kind": "NetworkPolicy", "metadata": {"name": "deny"}}
        places = "/apis/networking.k8s.io/{}/namespaces/default/zzzs"
        await post(server, places.format("v1"), {"apiVersion": "networking.k8s.io/v1", **one}, 404)
        await post(server, places.format("v2"), {"apiVersion": "networking.k8s.io/v2", **one})
        kinds = (await server.request("GET", "/openapi/v3/apis/networking.k8s.io/v1")).json
        assert not [path for path in kinds["paths"] if "zzzs" in path]
        swagger = (await server.request("GET", "/openapi/v2")).json
        assert not [path for path in swagger["paths"] if "v1/" in path and "zzzs" in path]
        resource = await server.api.resources.lookup.resource_of("networking.k8s.io/v1", "NetworkPolicy")
        assert resource is not None and resource.plural == "networkpolicies"
        async with asyncio.timeout(90):
            while (listed := await names(server, SERVICES)) != services | {"v2.networking.k8s.io"}:
                await asyncio.sleep(0.01)
        assert "v1.networking.k8s.io" in listed
        assert (await server.request("DELETE", f"{DEFINITIONS}/zzzs.networking.k8s.io")).status == 200
        await gone(server, f"{DEFINITIONS}/zzzs.networking.k8s.io")
        left = await server.api.registry.store.list("/registry/networking.k8s.io/zzzs/")
        assert not left.items
