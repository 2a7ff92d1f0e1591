"""Upstream's conformance tests of the API machinery and of scheduling, step by step (docs/conformance.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kube.json_object import Object
from tests.support.conformance_site import APPLY, MERGE, Site, condition, has, place, site, template

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("conformance-machinery")) as running:
        yield running


def pod(name: str, requests: Object | None = None, limits: Object | None = None, **spec: Any) -> Object:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    containers = [{"name": "c", "image": "httpd", "resources": resources}]
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": containers, **spec}}


async def test_the_status_of_a_namespace_and_its_finalizers(at: Site) -> None:
    name = await at.namespace()
    path = place("namespaces", "", name)
    assert (await at.read(path + "/status"))["status"]["phase"] == "Active"
    patch = {"metadata": {"annotations": {"patched": "yes"}}, "status": {"conditions": [condition("StatusPatch")]}}
    patched = await at.patch(path + "/status", patch, MERGE)
    assert patched["metadata"]["annotations"]["patched"] == "yes" and has("StatusPatch")(patched)
    updated = await at.change(path, lambda o: o["status"]["conditions"].append(condition("StatusUpdate")), "status")
    assert has("StatusUpdate")(updated) and updated["status"]["phase"] == "Active"
    added = await at.change(path, lambda o: o["spec"]["finalizers"].append("e2e.example.com/fake"), "finalize")
    assert added["spec"]["finalizers"] == ["kubernetes", "e2e.example.com/fake"]
    removed = await at.change(path, lambda o: o["spec"].update(finalizers=["kubernetes"]), "finalize")
    assert removed["spec"]["finalizers"] == ["kubernetes"]
    updated = await at.change(path, lambda o: o["metadata"]["labels"].update(updated="yes"))
    assert updated["metadata"]["labels"]["updated"] == "yes"
    await at.delete(path)
    await at.gone(path)


async def quota(at: Site, namespace: str, hard: Object, name: str = "q", **spec: Any) -> str:
    path = place("resourcequotas", namespace, name)
    await at.post(place("resourcequotas", namespace), {"metadata": {"name": name}, "spec": {"hard": hard, **spec}})
    await at.settles(path, lambda q: q.get("status", {}).get("hard") == hard)
    return path


def used(**wanted: str) -> Any:
    names = {
        key.replace("__", ".").replace("_", "/") if "__" in key or "_" in key else key: v for key, v in wanted.items()
    }
    return lambda q: all(q["status"]["used"].get(key) == value for key, value in names.items())


async def test_a_quota_counts_pods_and_their_requests(at: Site) -> None:
    namespace = await at.namespace()
    dongle = "requests.example.com/dongle"
    path = await quota(
        at, namespace, {"pods": "5", "cpu": "1", "memory": "500Mi", "ephemeral-storage": "50Gi", dongle: "3"}
    )
    asked = {"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
    await at.post(place("pods", namespace), pod("p", asked, {"example.com/dongle": "2"}))
    expected = {"pods": "1", "cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", dongle: "2"}
    await at.settles(path, lambda q: q["status"]["used"] == expected)
    message = await at.refused(403, "POST", place("pods", namespace), pod("big", {"cpu": "600m", "memory": "100Mi"}))
    assert "exceeded quota: q" in message
    more = {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
    message = await at.refused(403, "POST", place("pods", namespace), pod("ext", more, {"example.com/dongle": "2"}))
    assert "requested: ephemeral-storage=30Gi,requests.example.com/dongle=2" in message
    live = await at.read(place("pods", namespace, "p"))
    live["metadata"].pop("resourceVersion")  # the pod may have been bound meanwhile
    live["spec"]["containers"][0]["resources"]["requests"] = {
        "cpu": "100m",
        "memory": "100Mi",
        "ephemeral-storage": "10Gi",
    }
    code, _ = await at.send("PUT", place("pods", namespace, "p"), live)
    assert code in (403, 422)
    assert (await at.read(path))["status"]["used"] == expected
    await at.delete(place("pods", namespace, "p"), gracePeriodSeconds=0)
    await at.settles(path, lambda q: q["status"]["used"]["pods"] == q["status"]["used"]["cpu"] == "0")


async def test_a_quota_counts_services_by_kind_and_other_objects(at: Site) -> None:
    namespace = await at.namespace()
    hard = {
        "services": "10",
        "services.nodeports": "1",
        "services.loadbalancers": "1",
        "configmaps": "10",
        "secrets": "10",
    }
    more = {
        "replicationcontrollers": "10",
        "count/replicasets.apps": "5",
        "resourcequotas": "1",
        "persistentvolumeclaims": "10",
    }
    path = await quota(at, namespace, {**hard, **more})
    services = place("services", namespace)

    def service(name: str, kind: str, **spec: Any) -> Object:
        return {"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}], **spec}}

    await at.post(services, service("a", "ClusterIP"))
    await at.post(services, service("np", "NodePort"))
    balanced = service("lb", "LoadBalancer", allocateLoadBalancerNodePorts=True)
    assert "services.nodeports=1" in await at.refused(403, "POST", services, balanced)
    await at.post(place("configmaps", namespace), {"metadata": {"name": "c"}})
    await at.post(place("secrets", namespace), {"metadata": {"name": "s"}})
    labels = {"app": "x"}
    spec = {"replicas": 0, "template": template(labels)}
    controller = {"metadata": {"name": "rc"}, "spec": {**spec, "selector": labels}}
    await at.post(place("replicationcontrollers", namespace), controller)
    await at.post(
        place("replicasets", namespace),
        {"metadata": {"name": "rs"}, "spec": {**spec, "selector": {"matchLabels": labels}}},
    )
    wanted = {"services": "2", "services.nodeports": "1", "configmaps": "2", "secrets": "1", "resourcequotas": "1"}
    wanted |= {"replicationcontrollers": "1", "count/replicasets.apps": "1"}
    await at.settles(path, lambda q: wanted.items() <= q["status"]["used"].items())
    for plural, name in (("services", "a"), ("services", "np"), ("replicasets", "rs"), ("secrets", "s")):
        await at.delete(place(plural, namespace, name))
    freed = {"services": "0", "services.nodeports": "0", "count/replicasets.apps": "0", "secrets": "0"}
    await at.settles(path, lambda q: freed.items() <= q["status"]["used"].items())
    for plural, name in (("configmaps", "c"), ("replicationcontrollers", "rc")):
        before = int((await at.read(path))["status"]["used"][plural])
        await at.delete(place(plural, namespace, name))
        await at.settles(path, lambda q, p=plural, n=str(before - 1): q["status"]["used"][p] == n)  # type: ignore[misc]


async def test_scopes_of_quotas_part_pods(at: Site) -> None:
    namespace = await at.namespace()
    scopes = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort")
    paths = {s: await quota(at, namespace, {"pods": "5"}, s.lower(), scopes=[s]) for s in scopes}
    cases = [
        (pod("a", {"cpu": "500m"}, {"cpu": "1"}), {"NotTerminating", "NotBestEffort"}),
        (pod("b", activeDeadlineSeconds=3600), {"Terminating", "BestEffort"}),
    ]
    for body, counted in cases:
        await at.post(place("pods", namespace), body)
        for scope, path in paths.items():
            await at.settles(path, lambda q, n=str(int(scope in counted)): q["status"]["used"]["pods"] == n)  # type: ignore[misc]
        await at.delete(place("pods", namespace, body["metadata"]["name"]), gracePeriodSeconds=0)
        for path in paths.values():
            await at.settles(path, lambda q: q["status"]["used"]["pods"] == "0")


async def test_the_status_of_a_quota_is_written_by_hand_until_its_spec_changes(at: Site) -> None:
    namespace = await at.namespace()
    path = await quota(at, namespace, {"cpu": "500m", "memory": "500Mi"})
    async with at.watch(place("resourcequotas", namespace)) as watch:
        await at.change(path, lambda q: q["status"].update(hard={"cpu": "1", "memory": "1Gi"}), "status")
        await watch.until("MODIFIED", lambda q: q["status"]["hard"] == {"cpu": "1", "memory": "1Gi"})
        patched = await at.patch(
            path + "/status", {"status": {"hard": {"cpu": "2"}}, "spec": {"hard": {"cpu": "9"}}}, MERGE
        )
        assert patched["spec"]["hard"]["cpu"] == "500m" and patched["status"]["hard"]["cpu"] == "2"
        await at.patch(path, {"metadata": {"labels": {"q": "x"}}, "spec": {"hard": {"memory": "750Mi"}}})
        await watch.until("MODIFIED", lambda q: q["status"]["hard"] == {"cpu": "500m", "memory": "750Mi"})
        assert len(await at.items(place("resourcequotas", "", labelSelector="q=x"))) == 1
        await at.delete(place("resourcequotas", namespace, labelSelector="q=x"))
        await watch.until("DELETED")


async def test_a_circle_of_owners_is_collected(at: Site) -> None:
    namespace = await at.namespace()
    made = [await at.post(place("pods", namespace), pod(f"pod{n}")) for n in range(3)]
    for n in range(3):
        owner = made[n - 1]["metadata"]
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
        blocking = {**reference, "controller": True, "blockOwnerDeletion": True}
        await at.patch(place("pods", namespace, f"pod{n}"), {"metadata": {"ownerReferences": [blocking]}})
    await at.delete(place("pods", namespace, "pod0"), propagationPolicy="Foreground")
    await at.gone(place("pods", namespace))


async def test_a_pod_with_another_owner_stays_when_one_waits_for_its_dependents(at: Site) -> None:
    namespace = await at.namespace()
    controllers = place("replicationcontrollers", namespace)
    gone, stays = (
        {"metadata": {"name": n}, "spec": {"replicas": r, "selector": {"rc": n}, "template": template({"rc": n})}}
        for n, r in (("gone", 4), ("stays", 0))
    )
    await at.post(controllers, gone)
    owner = (await at.post(controllers, stays))["metadata"]
    await at.settles(f"{controllers}/gone", lambda o: o["status"].get("readyReplicas") == 4)
    pods = await at.items(place("pods", namespace))
    kept = [p["metadata"]["name"] for p in pods[:2]]
    reference = {"apiVersion": "v1", "kind": "ReplicationController", "name": "stays", "uid": owner["uid"]}
    for name in kept:
        await at.patch(place("pods", namespace, name), {"metadata": {"ownerReferences": [reference]}})
    uid = (await at.read(f"{controllers}/gone"))["metadata"]["uid"]
    await at.delete(f"{controllers}/gone", propagationPolicy="Foreground", preconditions={"uid": uid})
    await at.gone(f"{controllers}/gone")
    left = await at.items(place("pods", namespace))
    assert [p["metadata"]["name"] for p in left] == sorted(kept)
    assert all("deletionTimestamp" not in p["metadata"] for p in left)


async def test_limits_are_laid_on_pods_and_checked(at: Site) -> None:
    namespace = await at.namespace()
    limit = {
        "type": "Container",
        "min": {"cpu": "50m", "memory": "100Mi", "ephemeral-storage": "100Gi"},
        "max": {"cpu": "500m", "memory": "500Mi", "ephemeral-storage": "500Gi"},
        "default": {"cpu": "500m", "memory": "500Mi", "ephemeral-storage": "500Gi"},
        "defaultRequest": {"cpu": "100m", "memory": "200Mi", "ephemeral-storage": "200Gi"},
    }
    ranges, path = place("limitranges", namespace), place("limitranges", namespace, "l")
    async with at.watch(ranges) as watch:
        await at.post(ranges, {"metadata": {"name": "l", "labels": {"l": "x"}}, "spec": {"limits": [limit]}})
        await watch.until("ADDED")
        made = await at.post(place("pods", namespace), pod("none"))
        resources = made["spec"]["containers"][0]["resources"]
        assert resources == {"limits": limit["default"], "requests": limit["defaultRequest"]}
        partial = pod("part", {"memory": "150Mi"}, {"cpu": "300m", "ephemeral-storage": "150Gi"})
        resources = (await at.post(place("pods", namespace), partial))["spec"]["containers"][0]["resources"]
        assert resources["requests"] == {"cpu": "300m", "memory": "150Mi", "ephemeral-storage": "150Gi"}
        assert resources["limits"] == {"cpu": "300m", "memory": "500Mi", "ephemeral-storage": "150Gi"}
        await at.change(path, lambda o: o["spec"]["limits"][0]["min"].update(cpu="9m", memory="49Mi"))
        await at.post(place("pods", namespace), pod("small", {"cpu": "10m", "memory": "50Mi"}))
        big = pod("big", {"cpu": "600m"}, {"cpu": "600m"})
        assert "maximum cpu usage per Container is 500m" in await at.refused(403, "POST", place("pods", namespace), big)
        await at.patch(path, {"spec": {"limits": [{**limit, "max": {"cpu": "2"}}]}})
        assert len(await at.items(place("limitranges", "", labelSelector="l=x"))) == 1
        await at.delete(ranges + "?labelSelector=l%3Dx")
        await watch.until("DELETED")


async def test_pods_share_a_host_port_only_where_address_or_protocol_differ(at: Site) -> None:
    namespace = await at.namespace()

    def on(name: str, ip: str, protocol: str) -> Object:
        body = pod(name, nodeSelector={"kubernetes.io/hostname": "n0"})
        port = {"hostPort": 54321, "containerPort": 8080, "protocol": protocol, "hostIP": ip}
        body["spec"]["containers"][0]["ports"] = [port]
        return body

    for name, ip, protocol in (("a", "127.0.0.1", "TCP"), ("b", "10.0.0.9", "TCP"), ("c", "10.0.0.9", "UDP")):
        await at.post(place("pods", namespace), on(name, ip, protocol))
        await at.settles(place("pods", namespace, name), lambda p: p["status"].get("phase") == "Running")
    await at.post(place("pods", namespace), on("d", "0.0.0.0", "TCP"))
    found = await at.settles(place("pods", namespace, "d"), has("PodScheduled"))
    (told,) = found["status"]["conditions"]
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert "didn't have free ports for the requested pod ports" in told["message"]


async def test_a_priority_class_changes_all_but_its_value(at: Site) -> None:
    classes, path = place("priorityclasses"), place("priorityclasses", "", "p1")
    await at.post(classes, {"metadata": {"name": "p1"}, "value": 1, "description": "a"})
    live = await at.read(path)
    message = await at.refused(422, "PUT", path, {**live, "value": 2})
    assert "may not be changed in an update" in message
    changed = await at.ok("PUT", path, {**live, "description": "b"})
    assert changed["description"] == "b"
    code, _ = await at.send("PATCH", path, b'{"value": 3}', Content_Type=MERGE)
    assert code == 422
    await at.patch(path, {"metadata": {"annotations": {"x": "y"}}})
    await at.delete(path)


async def test_a_preempted_pod_has_the_disruption_target_condition(at: Site) -> None:
    namespace = await at.namespace()
    await at.post(place("priorityclasses"), {"metadata": {"name": "high"}, "value": 1000})
    victim = pod("victim", {"cpu": "3"}, nodeSelector={"kubernetes.io/hostname": "n1"})
    victim["metadata"]["finalizers"] = ["example.com/test"]
    await at.post(place("pods", namespace), victim)
    await at.settles(place("pods", namespace, "victim"), lambda p: p["status"].get("phase") == "Running")
    await at.post(
        place("pods", namespace),
        pod("preemptor", {"cpu": "3"}, priorityClassName="high", nodeSelector={"kubernetes.io/hostname": "n1"}),
    )
    found = await at.settles(place("pods", namespace, "victim"), lambda p: "deletionTimestamp" in p["metadata"])
    (told,) = (c for c in found["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
    assert 1 <= told["observedGeneration"] < found["metadata"]["generation"]
    await at.patch(place("pods", namespace, "victim"), {"metadata": {"finalizers": None}}, MERGE)
    await at.settles(place("pods", namespace, "preemptor"), lambda p: p["status"].get("phase") == "Running")


async def test_the_root_ca_is_made_mended_and_made_anew(at: Site) -> None:
    namespace = await at.namespace()
    path = place("configmaps", namespace, "kube-root-ca.crt")
    first = await at.settles(path, lambda o: "BEGIN CERTIFICATE" in o["data"]["ca.crt"])
    await at.delete(path)
    await at.settles(path, lambda o: o["metadata"]["uid"] != first["metadata"]["uid"])
    await at.change(path, lambda o: o.update(data={"ca.crt": ""}))
    await at.settles(path, lambda o: o["data"] == first["data"])


async def test_what_is_no_object_has_no_table(at: Site) -> None:
    body = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    await at.refused(406, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body, Accept=accept)


async def test_a_list_whose_revision_is_compacted_goes_on_from_the_last_key(at: Site) -> None:
    namespace = await at.namespace()
    path = place("podtemplates", namespace)
    many = [{"metadata": {"name": f"t-{n:04}"}, "template": template({})} for n in range(40)]
    await asyncio.gather(*(at.post(path, body) for body in many))
    first = await at.read(path + "?limit=10")
    assert first["metadata"]["remainingItemCount"] == 30
    store = at.server.api.store
    await at.post(place("configmaps", namespace), {"metadata": {"name": "later"}})
    await store.compact(await store.current_revision())
    for cached in at.server.api.registry.caches():
        cached.recent._changes.clear()
        cached.recent.floor = await store.current_revision()
    token = first["metadata"]["continue"]
    code, expired = await at.send("GET", f"{path}?limit=10&continue={token}")
    assert (code, expired["reason"]) == (410, "Expired")
    names, token, revisions = [t["metadata"]["name"] for t in first["items"]], expired["metadata"]["continue"], set()
    while token:
        page = await at.read(f"{path}?limit=10&continue={token}")
        names += [t["metadata"]["name"] for t in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
        assert page["metadata"].get("remainingItemCount", 0) == 40 - len(names)
    assert names == [f"t-{n:04}" for n in range(40)]
    assert len(revisions) == 1 and revisions != {first["metadata"]["resourceVersion"]}


EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
KNOWN = {
    "foo": {"type": "string"},
    "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$"},
}
SCHEMAS: dict[str, Object] = {
    "closed": {"type": "object", "properties": {"spec": {"type": "object", "properties": KNOWN}}},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "inside": {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {**KNOWN, "template": EMBEDDED},
            }
        },
    },
}
BODY = """
apiVersion: {name}.example.com/v1
kind: Noxu
metadata:
  name: mytest
  {metadata}
{root}
spec:
  {spec}
  foo: foo1
  cronSpec: "* * * * */5"
"""
APPLIED = [
    ("closed", {}, ""),
    ("open", {"spec": "unknown: uk1"}, ""),
    ("closed", {"root": "unknownField: unknown"}, ".unknownField: field not declared in schema"),
    ("inside", {"metadata": "unknownMeta: unknown"}, ".metadata.unknownMeta: field not declared in schema"),
    ("inside", {"spec": "foo: foo2"}, 'key "foo" already set in map'),
]


@pytest.mark.parametrize(("schema", "parts", "complaint"), APPLIED, ids=lambda value: str(value)[:20])
async def test_custom_resources_are_applied_strictly(
    at: Site, schema: str, parts: dict[str, str], complaint: str
) -> None:
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMAS[schema]}}]
    names = {"plural": "noxus", "singular": "noxu", "kind": "Noxu", "listKind": "NoxuList"}
    path = place("customresourcedefinitions", "", f"noxus.{schema}.example.com")
    if await at.get(path) is None:
        spec = {"group": f"{schema}.example.com", "scope": "Cluster", "names": names, "versions": versions}
        await at.post(
            place("customresourcedefinitions"), {"metadata": {"name": f"noxus.{schema}.example.com"}, "spec": spec}
        )
        await at.settles(path, has("Established"))
    body = BODY.format(name=schema, **{"metadata": "", "root": "", "spec": "", **parts})
    where = f"/apis/{schema}.example.com/v1/noxus/mytest?fieldManager=m&fieldValidation=Strict"
    code, answer = await at.send("PATCH", where, body.encode(), Content_Type=APPLY)
    if complaint:
        assert code >= 400 and complaint in answer["message"], answer
    else:
        assert code in (200, 201), answer
