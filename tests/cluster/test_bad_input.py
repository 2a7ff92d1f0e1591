"""Bad input gets upstream's status code, reason and message, and leaves nothing behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.cluster import BUSYBOX, WEB_IMAGE, Cluster, eventually
from tests.support.kube import events
from tests.support.raw import Raw

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; "
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture
def raw(shared: Cluster) -> Raw:
    return Raw(shared)


@pytest.fixture
def unchanged(shared: Cluster, ns: str, raw: Raw) -> Iterator[str]:
    """The path of a namespace in which nothing is written meanwhile: what is listed before and after is the same."""

    def everything() -> list[Any]:
        kinds = "configmaps,secrets,pods,services,deployments,serviceaccounts,endpoints"
        return [(o["kind"], o["metadata"]["name"], o["metadata"]["resourceVersion"]) for o in listed(kinds)]

    def listed(kinds: str) -> list[Any]:
        found: list[Any] = shared.get(kinds, "-n", ns)["items"]
        return found

    eventually(lambda: "kube-root-ca.crt" in str(listed("configmaps")), "the root CA's ConfigMap")
    raw.post(f"/api/v1/namespaces/{ns}/configmaps", config_map("have", data={"a": "1"}))
    before = everything()
    yield f"/api/v1/namespaces/{ns}"
    assert everything() == before


def config_map(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **more}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": BUSYBOX}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_wrong_types_are_refused_with_the_fields_path(raw: Raw, unchanged: str) -> None:
    cannot = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal'
    answer = raw.post(f"{unchanged}/configmaps", config_map("a", data=3))
    field = "Go struct field ConfigMap.data of type"
    assert answer.refusal == (400, "BadRequest", f"{cannot} number into {field} map[string]string")
    answer = raw.post(f"{unchanged}/configmaps", config_map("a", data={"k": 1}))
    assert answer.refusal == (400, "BadRequest", f"{cannot} number into {field} string")
    answer = raw.post(f"{unchanged}/pods", pod("p", terminationGracePeriodSeconds="soon"))
    assert answer.refusal[:2] == (400, "BadRequest")
    assert "cannot unmarshal string into Go struct field" in answer.refusal[2]
    assert "spec.terminationGracePeriodSeconds of type int64" in answer.refusal[2]
    answer = raw.post(f"{unchanged}/configmaps", [])
    assert answer.refusal[:2] == (400, "BadRequest")
    answer = raw.post(f"{unchanged}/configmaps", {**config_map("a"), "kind": "Secret"})
    assert answer.refusal[:2] == (400, "BadRequest")


def test_unknown_and_duplicate_fields_are_refused_strictly_or_warned_about(raw: Raw, unchanged: str) -> None:
    strict = f"{unchanged}/configmaps?fieldValidation=Strict"
    cannot = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error:'
    answer = raw.post(strict, config_map("a", bogus=1))
    assert answer.refusal == (400, "BadRequest", f'{cannot} unknown field "bogus"')
    twice = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}'
    assert raw.send("POST", strict, twice).refusal == (400, "BadRequest", f'{cannot} duplicate field "data"')
    nested = pod("p", containers=[{"name": "c", "image": BUSYBOX, "imagePullPolice": "Always"}])
    answer = raw.post(f"{unchanged}/pods?fieldValidation=Strict", nested)
    assert answer.refusal[2].endswith('unknown field "spec.containers[0].imagePullPolice"')
    warned = raw.post(f"{unchanged}/configmaps?fieldValidation=Warn&dryRun=All", config_map("a", bogus=1))
    assert (warned.code, warned.headers["warning"]) == (201, r'299 - "unknown field \"bogus\""')
    assert "bogus" not in warned.json
    ignored = raw.post(f"{unchanged}/configmaps?fieldValidation=Ignore&dryRun=All", config_map("a", bogus=1))
    assert (ignored.code, ignored.headers.get("warning")) == (201, None)


def test_kubectl_shows_what_is_wrong_with_a_manifest(shared: Cluster, unchanged: str, ns: str) -> None:
    def refused(manifest: str, *options: str) -> str:
        done = shared.kubectl("apply", "-n", ns, *options, "-f", "-", input=manifest, check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    good = pod("p")
    typo = json.loads(json.dumps(good).replace('"image"', '"imagge"'))
    reported = refused(yaml.safe_dump(typo))
    assert 'strict decoding error: unknown field "spec.containers[0].imagge"' in reported, reported
    wrong = {**good, "metadata": {"name": "Not_Good"}}
    assert f'The Pod "Not_Good" is invalid: metadata.name: Invalid value: "Not_Good": {SUBDOMAIN}' in refused(
        yaml.safe_dump(wrong)
    )
    # A mapping value inside a value: kubectl's own parser refuses it. An unknown kind is refused by discovery.
    assert "error parsing STDIN" in refused("kind: Pod: x")
    reported = refused("apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: wherry}\n")
    assert 'no matches for kind "Boat" in version "example.com/v1"' in reported
    reported = refused(yaml.safe_dump({**good, "spec": {}}))
    assert "spec.containers: Required value" in reported
    both = yaml.safe_dump(pod("p", containers=[{"name": "UPPER"}], restartPolicy="Sometimes"))
    reported = refused(both)
    assert 'spec.containers[0].name: Invalid value: "UPPER": a lowercase RFC 1123 label must consist of' in reported
    assert 'spec.restartPolicy: Unsupported value: "Sometimes": supported values:' in reported
    missing = shared.kubectl("apply", "-n", "nonsuch", "-f", "-", input=yaml.safe_dump(good), check=False)
    assert 'Error from server (NotFound): error when creating "STDIN": namespaces "nonsuch" not found' in missing.stderr


def test_names_and_required_fields_are_checked(raw: Raw, unchanged: str) -> None:
    for name in ("A_b", "..", "a/b", "-a", "a%2fb", "x" * 254):
        answer = raw.post(f"{unchanged}/configmaps", config_map(name))
        assert answer.refusal[:2] == (422, "Invalid"), name
        assert 'is invalid: metadata.name: Invalid value: "' in answer.refusal[2]
    answer = raw.post(f"{unchanged}/configmaps", config_map("A_b"))
    message = f'Invalid value: "A_b": {SUBDOMAIN}'
    assert answer.refusal[2] == f'ConfigMap "A_b" is invalid: metadata.name: {message}'
    assert answer.json["details"] == {
        "name": "A_b",
        "kind": "ConfigMap",
        "causes": [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.name"}],
    }
    answer = raw.post(f"{unchanged}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"})
    required = "metadata.name: Required value: name or generateName is required"
    assert answer.refusal == (422, "Invalid", f'ConfigMap "" is invalid: {required}')
    answer = raw.post(f"{unchanged}/pods", {**pod("p"), "spec": {}})
    assert answer.refusal == (422, "Invalid", 'Pod "p" is invalid: spec.containers: Required value')
    apps = unchanged.replace("/api/v1", "/apis/apps/v1")
    answer = raw.post(f"{apps}/deployments", {"metadata": {"name": "d"}, "spec": {}})
    assert answer.refusal[:2] == (422, "Invalid")
    assert {"spec.selector", "spec.template.spec.containers"} <= {
        cause["field"] for cause in answer.json["details"]["causes"]
    }
    answer = raw.post(f"{unchanged}/configmaps", {"metadata": {"name": "a", "namespace": "other"}})
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert answer.refusal == (400, "BadRequest", text)


def test_malformed_bodies_and_unknown_media_types_are_refused(raw: Raw, unchanged: str) -> None:
    path = f"{unchanged}/configmaps"
    for body in ('{"a":', "", '{"kind":"ConfigMap"}}', "\x7fELF"):
        answer = raw.send("POST", path, body)
        assert answer.refusal[:2] == (400, "BadRequest"), body
    assert raw.send("POST", path, '{"a":').refusal[2].startswith(UNRECOGNIZED)
    answer = raw.send("POST", path, "a: [", content_type="application/yaml")
    assert answer.refusal[:2] == (400, "BadRequest")
    answer = raw.send("POST", path, '{"metadata":' + '{"a":' * 20_000)
    assert answer.refusal[:2] == (400, "BadRequest")
    answer = raw.send("POST", path, "{}", content_type="text/plain")
    assert answer.refusal[:2] == (415, "UnsupportedMediaType")
    assert answer.refusal[2].startswith(
        "the body of the request was in an unknown format - accepted media types includ"
    )
    answer = raw.send("PATCH", f"{path}/have", "{}")
    assert answer.refusal[:2] == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in answer.refusal[2]
    answer = raw.get(path, headers={"Accept": "image/png"})
    assert answer.refusal[:2] == (406, "NotAcceptable")


def test_too_large_objects_are_refused(raw: Raw, unchanged: str) -> None:
    path = f"{unchanged}/configmaps"
    answer = raw.post(path, config_map("big", data={"a": "x" * 1_100_000}))
    assert answer.refusal[:2] == (422, "Invalid")
    assert answer.refusal[2].endswith("Too long: may not be more than 1048576 bytes")
    answer = raw.post(path, config_map("big", data={"a": "x" * 3_200_000}))
    assert answer.refusal == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
    noted = config_map("big")
    noted["metadata"]["annotations"] = {"a": "x" * 270_000}
    answer = raw.post(path, noted)
    assert answer.refusal[:2] == (422, "Invalid")
    assert answer.refusal[2].endswith("metadata.annotations: Too long: may not be more than 262144 bytes")


def test_what_is_not_there_is_not_found(raw: Raw, shared: Cluster, unchanged: str, ns: str) -> None:
    answer = raw.get(f"{unchanged}/configmaps/none")
    assert answer.refusal == (404, "NotFound", 'configmaps "none" not found')
    assert answer.json["details"] == {"name": "none", "kind": "configmaps"}
    answer = raw.send("DELETE", unchanged.replace("/api/v1", "/apis/apps/v1") + "/deployments/none")
    assert answer.refusal == (404, "NotFound", 'deployments.apps "none" not found')
    answer = raw.send("PUT", f"{unchanged}/configmaps/none", config_map("none"))
    assert answer.refusal == (404, "NotFound", 'configmaps "none" not found')
    answer = raw.post("/api/v1/namespaces/nonsuch/configmaps", config_map("a"))
    assert answer.refusal == (404, "NotFound", 'namespaces "nonsuch" not found')
    answer = raw.get(f"{unchanged}/nonsenses")
    assert answer.refusal == (404, "NotFound", "the server could not find the requested resource")
    for path in ("/nope", "/apis/none.example/v1/x", "/api/v2/pods"):
        assert raw.get(path).code == 404
    done = shared.kubectl("get", "pod", "none", "-n", ns, check=False)
    assert done.stderr == 'Error from server (NotFound): pods "none" not found\n'
    done = shared.kubectl("get", "boats", check=False)
    assert done.stderr == 'error: the server doesn\'t have a resource type "boats"\n'


def test_methods_that_are_not_served_are_refused(raw: Raw, unchanged: str) -> None:
    refused = (405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    assert raw.send("PUT", f"{unchanged}/configmaps", config_map("have")).refusal == refused
    assert raw.post(f"{unchanged}/configmaps/have", config_map("have")).refusal == refused
    assert raw.send("DELETE", "/api/v1/componentstatuses/etcd-0").refusal == refused


def test_conflicts_are_refused(raw: Raw, shared: Cluster, unchanged: str) -> None:
    path = f"{unchanged}/configmaps"
    assert raw.post(path, config_map("have")).refusal == (409, "AlreadyExists", 'configmaps "have" already exists')
    stale = config_map("have", data={"a": "2"})
    stale["metadata"]["resourceVersion"] = "1"
    cannot = 'Operation cannot be fulfilled on configmaps "have": '
    assert raw.send("PUT", f"{path}/have", stale).refusal == (409, "Conflict", cannot + MODIFIED)
    other = {"metadata": {"name": "have", "uid": "11111111-2222-3333-4444-555555555555"}}
    answer = raw.send("PUT", f"{path}/have", other)
    assert answer.refusal[:2] == (409, "Conflict")
    assert answer.refusal[2].startswith(cannot + "Precondition failed: UID in precondition: 11111111-")
    preconditions = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": "1"}}
    answer = raw.send("DELETE", f"{path}/have", preconditions)
    assert answer.refusal[:2] == (409, "Conflict")
    answer = raw.send("PUT", f"{path}/have", config_map("other"))
    text = "the name of the object (other) does not match the name on the URL (have)"
    assert answer.refusal == (400, "BadRequest", text)
    patch = [{"op": "test", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/a"}]
    answer = raw.send("PATCH", f"{path}/have", patch, content_type="application/json-patch+json")
    assert answer.refusal[:2] == (422, "Invalid")
    done = shared.kubectl("create", "configmap", "have", "-n", unchanged.rpartition("/")[2], check=False)
    assert done.stderr == 'error: failed to create configmap: configmaps "have" already exists\n'


def test_wrong_revisions_and_selectors_are_refused(raw: Raw, unchanged: str) -> None:
    path = f"{unchanged}/configmaps"
    answer = raw.get(f"{path}?resourceVersion=abc")
    assert answer.refusal[:2] == (400, "BadRequest")
    assert '"abc"' in answer.refusal[2]
    code, reason, message = raw.get(f"{path}?resourceVersion=999999999").refusal
    assert (code, reason) == (504, "Timeout")
    assert message.startswith("Timeout: Too large resource version: 999999999, current: ")
    answer = raw.get(f"{path}?resourceVersionMatch=Exact")
    assert answer.refusal[:2] == (422, "Invalid")
    assert answer.refusal[2].endswith("resourceVersionMatch is forbidden unless resourceVersion is provided")
    assert raw.get(f"{path}?continue=nonsense").refusal[:2] == (400, "BadRequest")
    assert raw.get(f"{path}?limit=some").refusal[:2] == (400, "BadRequest")
    answer = raw.get(f"{path}?labelSelector=a%20b%20c")
    parse = "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
    assert answer.refusal == (400, "BadRequest", parse)
    answer = raw.get(f"{path}?fieldSelector=data.a=1")
    assert answer.refusal[:2] == (400, "BadRequest")
    assert "field label not supported: data.a" in answer.refusal[2]
    stale = raw.get(f"{path}?watch=1&resourceVersion=999999999&timeoutSeconds=1")
    assert stale.code in (200, 504), "a revision of the future is waited for, then refused"
    assert "ADDED" not in stale.text


def test_immutable_fields_cannot_be_changed(shared: Cluster, raw: Raw, ns: str) -> None:
    path, merge = f"/api/v1/namespaces/{ns}", "application/merge-patch+json"
    raw.post(f"{path}/configmaps", config_map("fixed", immutable=True, data={"a": "1"}))
    answer = raw.send("PATCH", f"{path}/configmaps/fixed", {"data": {"a": "2"}}, content_type=merge)
    why = "data: Forbidden: field is immutable when `immutable` is set"
    assert answer.refusal == (422, "Invalid", f'ConfigMap "fixed" is invalid: {why}')
    shared.kubectl("create", "deployment", "web", f"--image={WEB_IMAGE}", "--replicas=0", "-n", ns)
    patch = '{"spec":{"selector":{"matchLabels":{"app":"other"}},"template":{"metadata":{"labels":{"app":"other"}}}}}'
    done = shared.kubectl("patch", "deployment", "web", "-n", ns, "--type=merge", "-p", patch, check=False)
    assert done.returncode == 1
    assert re.search(
        r'The Deployment "web" is invalid: spec\.selector: Invalid value: .*: field is immutable', done.stderr
    )
    shared.kubectl("create", "service", "clusterip", "web", "--tcp=80", "-n", ns)
    before = shared.get("service", "web", "-n", ns)["spec"]
    patch = '{"spec":{"clusterIP":"10.96.200.200","clusterIPs":["10.96.200.200"]}}'
    done = shared.kubectl("patch", "service", "web", "-n", ns, "-p", patch, check=False)
    assert 'spec.clusterIPs[0]: Invalid value: ["10.96.200.200"]: may not change once set' in done.stderr, done.stderr
    assert shared.get("service", "web", "-n", ns)["spec"] == before
    shared.kubectl("create", "secret", "generic", "s", "-n", ns)
    done = shared.kubectl("patch", "secret", "s", "-n", ns, "-p", '{"type":"kubernetes.io/tls"}', check=False)
    assert 'type: Invalid value: "kubernetes.io/tls": field is immutable' in done.stderr
    shared.kubectl("run", "p", f"--image={BUSYBOX}", "-n", ns, "--", "sleep", "1000")
    done = shared.kubectl("patch", "pod", "p", "-n", ns, "-p", '{"spec":{"hostname":"other"}}', check=False)
    assert "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`" in done.stderr
    answer = raw.send("PATCH", f"{path}/pods/p", {"metadata": {"uid": "x"}}, content_type=merge)
    why = 'metadata.uid: Invalid value: "x": field is immutable'
    assert answer.refusal == (422, "Invalid", f'Pod "p" is invalid: {why}')
    shared.kubectl("delete", "pod", "p", "-n", ns, "--grace-period=0", "--force", "--wait=false")


def test_who_shows_a_wrong_token_is_not_let_in(shared: Cluster, unchanged: str) -> None:
    for token in ("nonsense", "a.b.c", "abcdef.0123456789abcdef"):
        answer = Raw(shared, token=token).post(f"{unchanged}/configmaps", config_map("a"))
        assert answer.refusal == (401, "Unauthorized", "Unauthorized")
    config = yaml.safe_load(shared.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "nonsense"}
    wrong = shared.prefix / "wrong.kubeconfig"
    wrong.write_text(yaml.safe_dump(config))
    shared.kubectl("get", "pods")  # which resources there are is now in kubectl's cache
    done = shared.kubectl(f"--kubeconfig={wrong}", "get", "pods", check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("error: You must be logged in to the server (Unauthorized)\n"), done.stderr


def test_a_user_without_permissions_gets_the_missing_ones(shared: Cluster, raw: Raw, unchanged: str) -> None:
    ns = unchanged.rpartition("/")[2]
    joe: dict[str, Any] = {"headers": {"Impersonate-User": "joe"}}
    answer = raw.post(f"{unchanged}/configmaps", config_map("a"), **joe)
    where = f'in API group "" in the namespace "{ns}"'
    message = f'configmaps is forbidden: User "joe" cannot create resource "configmaps" {where}'
    assert answer.refusal == (403, "Forbidden", message)
    assert answer.json["details"] == {"kind": "configmaps"}
    answer = raw.get("/api/v1/nodes/node1", **joe)
    message = 'nodes "node1" is forbidden: User "joe" cannot get resource "nodes" in API group "" at the cluster scope'
    assert answer.refusal == (403, "Forbidden", message)
    answer = raw.get("/metrics", **joe)
    assert answer.refusal == (403, "Forbidden", 'forbidden: User "joe" cannot get path "/metrics"')
    # Rights come before existence: who may not see an object does not learn whether there is one.
    for name in ("have", "none"):
        code, _, message = raw.send("DELETE", f"{unchanged}/configmaps/{name}", **joe).refusal
        assert code == 403
        assert message.startswith(f'configmaps "{name}" is forbidden: User "joe" cannot delete')
    user = f"system:serviceaccount:{ns}:default"
    done = shared.kubectl("get", "secrets", "-n", ns, f"--as={user}", check=False)
    message = f'secrets is forbidden: User "{user}" cannot list resource "secrets" {where}'
    assert done.stderr == f"Error from server (Forbidden): {message}\n"


def test_an_image_that_is_not_there_is_tried_again_and_again(shared: Cluster, ns: str) -> None:
    image = "127.0.0.1:1/nowhere:1"
    shared.kubectl("run", "lost", f"--image={image}", "-n", ns)

    def reason() -> str:
        status = shared.get("pod", "lost", "-n", ns)["status"]
        assert status["phase"] == "Pending"
        waiting = status["containerStatuses"][0]["state"]["waiting"]
        return f"{waiting['reason']}: {waiting.get('message', '')}"

    eventually(lambda: reason().startswith("ErrImagePull: "), "ErrImagePull")
    eventually(lambda: reason().startswith(f'ImagePullBackOff: Back-off pulling image "{image}"'), "ImagePullBackOff")

    def reported() -> set[tuple[str, str, str]]:
        found = {(e["type"], e["reason"], e["message"]) for e in events(shared, ns, "lost")}
        assert ("Normal", "BackOff", f'Back-off pulling image "{image}"') in found, found
        assert ("Warning", "Failed", "Error: ImagePullBackOff") in found, found
        return found

    found = eventually(reported, "the back-off's events")
    assert ("Normal", "Pulling", f'Pulling image "{image}"') in found
    assert ("Warning", "Failed", "Error: ErrImagePull") in found
    assert any(
        t == "Warning" and r == "Failed" and m.startswith(f'Failed to pull image "{image}": ') for t, r, m in found
    )
    assert re.search(
        r"^lost +0/1 +(ImagePullBackOff|ErrImagePull) +0 ", shared.kubectl("get", "pods", "-n", ns).stdout, re.M
    )


def test_an_image_name_that_cannot_be_is_not_tried(shared: Cluster, ns: str) -> None:
    shared.kubectl("run", "odd", "--image=UPPER/Case:1", "-n", ns, check=False)
    manifest = pod("odd", containers=[{"name": "c", "image": "Not A Name!"}])
    shared.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(manifest))

    def reason() -> bool:
        status = shared.get("pod", "odd", "-n", ns)["status"]["containerStatuses"][0]
        waiting = status["state"]["waiting"]
        assert waiting["reason"] == "InvalidImageName", status
        return True

    eventually(reason, "InvalidImageName")
    found = {(e["reason"], e["message"]) for e in events(shared, ns, "odd")}
    assert any(
        r == "InspectFailed" and m.startswith('Failed to apply default image tag "Not A Name!": ') for r, m in found
    )
    assert ("Failed", "Error: InvalidImageName") in found
    assert "Pulling" not in {r for r, _ in found}


def test_a_container_that_cannot_be_configured_or_started_reports_the_reason(shared: Cluster, ns: str) -> None:
    missing = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "a"}}}
    containers = [{"name": "c", "image": BUSYBOX, "command": ["sleep", "1000"], "env": [missing]}]
    shared.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(pod("needs", containers=containers)))
    containers = [{"name": "c", "image": BUSYBOX, "command": ["/none/such"]}]
    shared.kubectl("apply", "-n", ns, "-f", "-", input=json.dumps(pod("cannot", containers=containers)))

    def waits() -> bool:
        waiting = shared.get("pod", "needs", "-n", ns)["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "none" not found'}
        return True

    eventually(waits, "CreateContainerConfigError")
    reported = ("Failed", 'Error: configmap "none" not found')
    eventually(lambda: reported in {(e["reason"], e["message"]) for e in events(shared, ns, "needs")}, "the event")

    def crashed() -> bool:
        status = shared.get("pod", "cannot", "-n", ns)["status"]["containerStatuses"][0]
        state = status["lastState"].get("terminated") or status["state"].get("terminated") or {}
        assert (state.get("reason"), state.get("exitCode")) == ("StartError", 128), status
        assert "/none/such" in state["message"]
        return True

    eventually(crashed, "StartError")
    shared.kubectl("create", "configmap", "none", "--from-literal=a=1", "-n", ns)
    eventually(
        lambda: "running" in str(shared.get("pod", "needs", "-n", ns)["status"]["containerStatuses"][0]) or None,
        "the container is created once what it needs is there",
        40,
    )
