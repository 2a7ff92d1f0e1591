"""Upstream's conformance tests of definitions, published schemas, webhooks, policies, events, accounts and kubectl."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from control.openapi import definitions
from kube.json_object import Object
from tests.support.conformance_site import JSON_PATCH, MERGE, Site, condition, has, place, site, template
from tests.support.hollow import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("conformance-published")) as running:
        yield running


def definition(group: str, kind: str, schemas: dict[str, Object], labels: dict[str, str] | None = None) -> Object:
    plural = kind.lower() + "s"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    versions = [
        {"name": name, "served": True, "storage": index == 0, "schema": {"openAPIV3Schema": schema}}
        for index, (name, schema) in enumerate(schemas.items())
    ]
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    return {"metadata": {"name": f"{plural}.{group}", "labels": labels or {}}, "spec": spec}


async def define(at: Site, body: Object) -> str:
    await at.post(place("customresourcedefinitions"), body)
    path = place("customresourcedefinitions", "", body["metadata"]["name"])
    await at.settles(path, has("Established"))
    return path


OPEN: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
BAR = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "description": "Name of Bar."}},
}
KNOWN: Object = {
    "type": "object",
    "description": "Foo CRD for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of Foo",
            "properties": {"bars": {"type": "array", "description": "List of Bars", "items": BAR}},
        }
    },
}
NESTED: Object = {
    "type": "object",
    "properties": {"spec": {**OPEN, "description": "Specification of Waldo"}},
}


async def published(at: Site, name: str) -> Object | None:
    found: Object | None = (await at.read("/openapi/v2"))["definitions"].get(name)
    return found


async def test_definitions_are_published_under_every_version_that_is_served(at: Site) -> None:
    path = await define(at, definition("multi.example.com", "Foo", {"v2": KNOWN, "v3": KNOWN}))
    for version in ("v2", "v3"):
        found = await published(at, f"com.example.multi.{version}.Foo")
        assert found is not None and found["description"] == "Foo CRD for Testing"
        assert found["x-kubernetes-group-version-kind"] == [
            {"group": "multi.example.com", "kind": "Foo", "version": version}
        ]
        assert found["properties"]["spec"]["properties"]["bars"]["items"]["required"] == ["name"]
    rename = [
        {"op": "test", "path": "/spec/versions/1/name", "value": "v3"},
        {"op": "replace", "path": "/spec/versions/1/name", "value": "v4"},
    ]
    await at.patch(path, rename, JSON_PATCH)
    await at.settles(
        "/openapi/v2",
        lambda o: "com.example.multi.v4.Foo" in o["definitions"] and "com.example.multi.v3.Foo" not in o["definitions"],
    )
    assert await published(at, "com.example.multi.v2.Foo") is not None
    await at.change(path, lambda o: o["spec"]["versions"][1].update(served=False))
    await at.settles("/openapi/v2", lambda o: "com.example.multi.v4.Foo" not in o["definitions"])
    await at.delete(path)
    await at.settles("/openapi/v2", lambda o: "com.example.multi.v2.Foo" not in o["definitions"])


@pytest.mark.parametrize(("group", "schema"), [("root", OPEN), ("nested", NESTED), ("known", KNOWN)])
async def test_kubectl_checks_and_explains_what_is_published(at: Site, group: str, schema: Object) -> None:
    namespace = await at.namespace()
    path = await define(at, definition(f"{group}.example.com", "Waldo", {"v1": schema}))
    api = f"{group}.example.com/v1"
    good: Object = {"apiVersion": api, "kind": "Waldo", "metadata": {"name": "w"}, "spec": {"bars": [{"name": "b"}]}}
    for verb in ("create", "apply"):
        told = await at.kubectl("-n", namespace, verb, "-f", "-", input=json.dumps(good))
        assert "waldo" in told
        told = await at.kubectl("-n", namespace, "delete", "waldos", "w")
    odd = {**good, "spec": {"bars": [{"name": "b"}], "unknown": {"x": 1}}}
    if group == "known":
        for body, complaint in (
            (odd, 'unknown field "spec.unknown"'),
            ({**good, "spec": {"bars": [{}]}}, "spec.bars[0].name: Required value"),
        ):
            refused = await at.server.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(body), check=False)
            assert refused.returncode != 0 and complaint in refused.stderr
        assert "List of Bars" in await at.kubectl("explain", "waldos.spec", f"--api-version={api}")
        assert "Name of Bar." in await at.kubectl("explain", "waldos.spec.bars", f"--api-version={api}")
        unknown = await at.server.kubectl("explain", "waldos.spec.bars2", f"--api-version={api}", check=False)
        assert unknown.returncode != 0 and 'field "bars2" does not exist' in unknown.stderr
    else:
        await at.kubectl("-n", namespace, "apply", "-f", "-", input=json.dumps(odd))
    if group == "root":
        published = (await at.read("/openapi/v2"))["definitions"]["com.example.root.v1.Waldo"]
        # As upstream has it: whatever v2 named, its clients would take for all that there may be.
        gvk = {"group": "root.example.com", "version": "v1", "kind": "Waldo"}
        assert published == {"type": "object", "x-kubernetes-group-version-kind": [gvk]}
    explained = await at.kubectl("explain", "waldos", f"--api-version={api}")
    assert "KIND:       Waldo" in explained and "DESCRIPTION:" in explained
    built_in = definitions.load()["io.k8s.api.core.v1.ConfigMap"]["properties"]
    for field in ("apiVersion", "kind", "metadata"):
        words = built_in[field]["description"].split()
        assert " ".join(words[:12]) in " ".join(explained.split())
    await at.delete(path)


async def test_definitions_are_swept_by_label_and_their_status_is_written(at: Site) -> None:
    bodies = [definition("swept.example.com", kind, {"v1": OPEN}, {"set": "yes"}) for kind in ("Aa", "Bb", "Cc")]
    for body in bodies:
        await define(at, body)
    definitions = place("customresourcedefinitions", "", labelSelector="set=yes")
    assert len(await at.items(definitions)) == 3
    path = place("customresourcedefinitions", "", "aas.swept.example.com")
    assert has("Established")(await at.read(path + "/status"))
    updated = await at.change(path, lambda o: o["status"]["conditions"].append(condition("StatusUpdate")), "status")
    assert has("StatusUpdate")(updated)
    add = [{"op": "add", "path": "/status/conditions/-", "value": condition("StatusPatched")}]
    assert has("StatusPatched")(await at.patch(path + "/status", add, JSON_PATCH))
    assert has("StatusUpdate")(await at.read(path))
    await at.delete(definitions)
    await at.gone(definitions)


async def test_policies_are_written_read_and_swept_and_their_status_is_patched(at: Site) -> None:
    policies, path = place("validatingadmissionpolicies"), place("validatingadmissionpolicies", "", "p")
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"vap": "yes"}}},
        "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
        "validations": [
            {
                "expression": "variables.replicas > 1",
                "messageExpression": "'wants more than ' + string(variables.replicas)",
            }
        ],
    }
    async with at.watch(policies) as watch:
        await at.post(policies, {"metadata": {"name": "p", "labels": {"p": "x"}}, "spec": spec})
        await watch.until("ADDED")
        await at.settles(
            path, lambda o: o.get("status", {}).get("observedGeneration") == 1 and "typeChecking" in o["status"]
        )
        await at.patch(
            path, {"metadata": {"annotations": {"patched": "true"}}, "spec": {"failurePolicy": "Ignore"}}, MERGE
        )
        await watch.until("MODIFIED", lambda o: o["metadata"].get("annotations", {}).get("patched") == "true")
        patched = await at.patch(
            path + "/status",
            {
                "status": {
                    "conditions": [
                        {
                            **condition("PatchStatusFailed"),
                            "status": "False",
                            "lastTransitionTime": "2026-01-01T00:00:00Z",
                        }
                    ]
                }
            },
            MERGE,
        )
        assert has("PatchStatusFailed")(patched)
        updated = await at.change(path, lambda o: o["status"]["conditions"][0].update(status="True"), "status")
        assert updated["status"]["conditions"][0]["status"] == "True"
        binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
        await at.post(place("validatingadmissionpolicybindings"), binding)
        namespace = await at.namespace(vap="yes")
        labels = {"app": "d"}

        def deployment(name: str, replicas: int) -> Object:
            return {
                "metadata": {"name": name},
                "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels)},
            }

        async def refused() -> bool:
            # Each by a name of its own: the rule holds a moment after it was written.
            code, answer = await at.send("POST", place("deployments", namespace), deployment(f"one{next(numbers)}", 1))
            return code == 422 and "wants more than 1" in answer["message"]

        numbers = itertools.count()
        await eventually(refused)
        await at.post(place("deployments", namespace), deployment("two", 2))
        await at.delete(place("validatingadmissionpolicybindings", "", "b"))
        await at.delete(policies + "?labelSelector=p%3Dx")
        await watch.until("DELETED")


@pytest.mark.parametrize(("plural", "text"), [("events", "message"), ("events.k8s.io", "note")])
async def test_events_are_made_patched_given_a_series_and_swept(at: Site, plural: str, text: str) -> None:
    namespace = await at.namespace()
    new = plural != "events"
    events = (
        f"/apis/events.k8s.io/v1/namespaces/{namespace}/events" if new else f"/api/v1/namespaces/{namespace}/events"
    )
    time = "2017-09-19T13:49:16.000000Z"
    about = {"kind": "Pod", "namespace": namespace, "name": "x"}
    body: Object = {"metadata": {"name": "e", "labels": {"e": "x"}}, text: "first", "reason": "Test", "type": "Normal"}
    body["regarding" if new else "involvedObject"] = about
    who = {
        "reportingController": "test-controller",
        "reportingInstance": "test-node",
        "action": "Do",
        "eventTime": time,
    }
    body |= who if new else {"source": {"component": "test"}}
    made = await at.post(events, body)
    everywhere = events.replace(f"/namespaces/{namespace}", "")
    assert [e[text] for e in await at.items(everywhere + "?labelSelector=e%3Dx")] == ["first"]
    selector = "fieldSelector=reportingController%3Dtest-controller" if new else "fieldSelector=source%3Dtest"
    assert [e["metadata"]["name"] for e in await at.items(f"{events}?{selector}")] == ["e"]
    first = {"count": 2, "lastObservedTime": "2014-09-18T13:49:16.000000Z"}
    patch: Object = {"series": first} if new else {text: "second"}  # the newer group's note is immutable
    patched = await at.patch(f"{events}/e", patch)
    assert patched["series"]["count"] == 2 if new else patched[text] == "second"
    series = {"count": 100, "lastObservedTime": "2014-09-19T13:49:16.000000Z"}
    code, answer = await at.send("PUT", f"{events}/e", {**patched, "series": series})
    assert code == 200, answer
    assert (await at.read(f"{events}/e"))["series"]["count"] == 100
    await at.delete(f"{events}/e")
    for name in ("a", "b", "c"):
        await at.post(events, {**body, "metadata": {"name": name, "labels": {"e": "y"}}})
    await at.delete(events + "?labelSelector=e%3Dy")
    assert await at.items(events + "?labelSelector=e%3Dy") == []
    assert made["metadata"]["name"] == "e"


async def test_the_tokens_volume_is_added_unless_pod_or_account_opts_out(at: Site) -> None:
    namespace = await at.namespace()
    accounts = {"default": None, "mount": True, "nomount": False}
    for account, automount in accounts.items():
        if account != "default":
            await at.post(
                place("serviceaccounts", namespace),
                {"metadata": {"name": account}, "automountServiceAccountToken": automount},
            )
    for account, automount in accounts.items():
        for own in (None, True, False):
            spec: Object = template({}, serviceAccountName=account)["spec"]
            if own is not None:
                spec["automountServiceAccountToken"] = own
            name = f"{account}-{own}".lower()
            made = await at.post(place("pods", namespace), {"metadata": {"name": name}, "spec": spec})
            mounts = made["spec"]["containers"][0].get("volumeMounts", [])
            wanted = own if own is not None else automount is not False
            assert bool(mounts) == wanted, name
            assert all(m["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount" for m in mounts)
    async with at.watch(place("serviceaccounts", namespace)) as watch:
        await at.post(place("serviceaccounts", namespace), {"metadata": {"name": "sa", "labels": {"s": "x"}}})
        await watch.until("ADDED", lambda o: o["metadata"]["name"] == "sa")
        await at.patch(place("serviceaccounts", namespace, "sa"), {"automountServiceAccountToken": False})
        found = await at.items(place("serviceaccounts", "", labelSelector="s=x"))
        assert [o["automountServiceAccountToken"] for o in found] == [False]
        await at.change(
            place("serviceaccounts", namespace, "sa"), lambda o: o.update(automountServiceAccountToken=True)
        )
        await at.delete(place("serviceaccounts", namespace, labelSelector="s=x"))
        await watch.until("DELETED")


async def test_a_reviews_result_matches_what_impersonation_of_the_account_may(at: Site) -> None:
    namespace = await at.namespace()
    account = f"system:serviceaccount:{namespace}:default"
    spec = {
        "user": account,
        "resourceAttributes": {"namespace": namespace, "verb": "list", "resource": "configmaps", "version": "v1"},
    }
    for path in (
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        f"/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews",
    ):
        said = await at.post(path, {"metadata": {"namespace": namespace} if "local" in path else {}, "spec": spec})
        code, _ = await at.send("GET", place("configmaps", namespace), Impersonate_User=account)
        assert said["status"]["allowed"] == (code == 200) is False
    role = {"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}
    await at.post(place("roles", namespace), role)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    await at.post(
        place("rolebindings", namespace), {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    )
    said = await at.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
    code, _ = await at.send("GET", place("configmaps", namespace), Impersonate_User=account)
    assert said["status"]["allowed"] is True and code == 200


async def test_kubectl_describes_exposes_diffs_and_runs_dry(at: Site, tmp_path: Path) -> None:
    namespace = await at.namespace()
    kubectl = at.kubectl
    labels = {"app": "agnhost", "role": "primary"}
    pod = template(labels)
    pod["spec"]["containers"][0]["ports"] = [{"name": "server", "containerPort": 6379}]
    rc = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "agn", "labels": labels},
        "spec": {"replicas": 1, "selector": labels, "template": pod},
    }
    await kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(rc))
    await at.settles(place("replicationcontrollers", namespace, "agn"), lambda o: o["status"].get("readyReplicas") == 1)
    told = await kubectl("-n", namespace, "describe", "rc", "agn")
    for words in (
        "Name:",
        "Namespace:",
        "Selector:",
        "Labels:",
        "Annotations:",
        "Replicas:",
        "Pods Status:",
        "Pod Template:",
        "Image:",
        "Events:",
    ):
        assert words in told
    name = (await at.items(place("pods", namespace)))[0]["metadata"]["name"]
    told = await kubectl("-n", namespace, "describe", "pod", name)
    for words in ("Name:", "Node:", "Labels:", "role=primary", "Status:", "IP:", "Controlled By:", "Image:"):
        assert words in told
    told = await kubectl("describe", "node", "n0")
    for words in ("Name:", "Labels:", "Conditions:", "Capacity:", "Allocatable:", "Unschedulable:"):
        assert words in told
    told = await kubectl("describe", "namespace", namespace)
    assert "Status:" in told and "No resource quota." in told
    await kubectl("-n", namespace, "expose", "rc", "agn", "--name=rm2", "--port=1234", "--target-port=6379")
    await kubectl("-n", namespace, "expose", "service", "rm2", "--name=rm3", "--port=2345", "--target-port=6379")
    for service, port in (("rm2", 1234), ("rm3", 2345)):
        (shown,) = (await at.read(place("services", namespace, service)))["spec"]["ports"]
        assert (shown["port"], shown["targetPort"]) == (port, 6379)
    await kubectl("-n", namespace, "label", "pods", name, "testing-label=v")
    assert "v" in await kubectl("-n", namespace, "get", "pod", name, "-L", "testing-label", "--no-headers")
    await kubectl("-n", namespace, "label", "pods", name, "testing-label-")
    await kubectl("-n", namespace, "patch", "pod", name, "-p", '{"metadata":{"annotations":{"x":"y"}}}')
    assert (await at.read(place("pods", namespace, name)))["metadata"]["annotations"]["x"] == "y"
    await kubectl("-n", namespace, "run", "e2e", "--image=httpd", "--restart=Never", "--labels=run=e2e")
    change = '{"spec":{"containers":[{"name":"e2e","image":"busybox"}]}}'
    dry = await kubectl(
        "-n",
        namespace,
        "patch",
        "pod",
        "e2e",
        "-p",
        change,
        "--dry-run=server",
        "-o",
        "jsonpath={.spec.containers[0].image}",
    )
    assert dry == "busybox"
    live = await at.read(place("pods", namespace, "e2e"))
    assert live["spec"]["containers"][0]["image"] == "httpd"
    live["spec"]["containers"][0]["image"] = "busybox"
    await kubectl("-n", namespace, "replace", "-f", "-", input=json.dumps(live))
    assert (await at.read(place("pods", namespace, "e2e")))["spec"]["containers"][0]["image"] == "busybox"
    body: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": labels}, "template": template(labels)},
    }
    await kubectl("-n", namespace, "create", "-f", "-", input=json.dumps(body))
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox"
    found = await at.server.kubectl("-n", namespace, "diff", "-f", "-", input=json.dumps(body), check=False)
    assert found.returncode == 1 and "image: httpd" in found.stdout and "image: busybox" in found.stdout
    assert "v1" in (await kubectl("api-versions")).splitlines()
    assert "Kubernetes control plane" in await kubectl("cluster-info")
    version = json.loads(await kubectl("version", "-o", "json"))["serverVersion"]
    assert version["major"].isdigit() and version["minor"].isdigit()
    assert "Server Version: v1.36" in await kubectl("version")
    folder = tmp_path / "dump"
    await kubectl("cluster-info", "dump", "--namespaces", namespace, "--output-directory", str(folder))
    assert (folder / namespace / "pods.json").exists()


async def test_every_group_has_the_version_that_it_prefers(at: Site) -> None:
    for group in (await at.read("/apis"))["groups"]:
        preferred = group["preferredVersion"]["groupVersion"]
        assert preferred in [v["groupVersion"] for v in group["versions"]]
        assert (await at.read(f"/apis/{group['name']}"))["preferredVersion"]["groupVersion"] == preferred
        listing = await at.read(f"/apis/{preferred}")
        assert listing["groupVersion"] == preferred and all(r["name"] for r in listing["resources"])
