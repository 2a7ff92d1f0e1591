"""Inputs without measure end at a limit with the right Status: never an error of the server, never a stall."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from control.decoding.yaml_document import MOST_VALUES
from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMESPACED = "/api/v1/namespaces/default"
CONFIG_MAPS, PODS = f"{NAMESPACED}/configmaps", f"{NAMESPACED}/pods"
NINES = "9" * 5000
DEPTHS = (500, 2990, 5000)
"""Levels below and beyond what a decoder reads by calling itself."""
JSON, YAML = {"Content-Type": "application/json"}, {"Content-Type": "application/yaml"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        await api.request("POST", CONFIG_MAPS, {"metadata": {"name": "here", "labels": {"n": "5"}}})
        await api.request("POST", f"{NAMESPACED}/serviceaccounts", {"metadata": {"name": "default"}})
        assert (await api.request("POST", PODS, POD)).status == 201
        yield api


POD: Object = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
TEMPLATE: Object = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def named(spec: Any, **more: Any) -> Object:
    return {"metadata": {"name": "limits"}, "spec": spec, **more}


def deep_token(levels: int) -> str:
    text = b'{"v":"meta.k8s.io/v1","rv":1,"start":"a","x":%b}' % (b"[" * levels + b"]" * levels)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def deep_secret(levels: int) -> Object:
    text = b'{"auths":%b}' % (b"[" * levels + b"]" * levels)
    data = {".dockerconfigjson": base64.b64encode(text).decode()}
    return {"metadata": {"name": "deep"}, "type": "kubernetes.io/dockerconfigjson", "data": data}


QUERIES = [
    (f"resourceVersion={NINES}", 400),
    ("resourceVersion=99999999999999999999", 400),
    (f"limit={NINES}", 400),
    (f"timeoutSeconds={NINES}", 400),
    (f"continue={NINES}", 400),
    *((f"continue={deep_token(levels)}", 400) for levels in DEPTHS),
    (f"labelSelector=n%3E{NINES}", 400),
    ("labelSelector=n%3E9223372036854775808", 400),
    (f"labelSelector=n%3E{quote('٣')}", 400),
    (f"labelSelector={'a%2C' * 5000}%21", 400),
    (f"labelSelector=a+in+%28{'b%2C' * 5000}", 400),
    (f"fieldSelector={'metadata.name%3Da%2C' * 1000}", 200),
    (f"fieldSelector={'a' * 5000}", 400),
    (f"watch=1&timeoutSeconds=1&resourceVersion={NINES}", 400),
]


@pytest.mark.parametrize(("query", "status"), QUERIES, ids=[query[:40] for query, _ in QUERIES])
async def test_queries(server: ApiUnderTest, query: str, status: int) -> None:
    answer = await server.request("GET", f"{CONFIG_MAPS}?{query}")
    assert answer.status == status, answer.body[:300]


NEVER: Object = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
JOB: Object = {"spec": {"template": NEVER}}
BATCH, POLICIES = (
    "/apis/batch/v1/namespaces/default",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
)
CREATED_PODS: Object = {
    "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]
}


def policy(expression: str) -> Object:
    return named({"matchConstraints": CREATED_PODS, "validations": [{"expression": expression}]})


def claim(expression: str) -> Object:
    exactly = {"deviceClassName": "a", "selectors": [{"cel": {"expression": expression}}]}
    return named({"devices": {"requests": [{"name": "a", "exactly": exactly}]}})


BODIES: list[tuple[str, str, Any, int]] = [
    ("a long integer", CONFIG_MAPS, b'{"metadata":{"name":"a","generation":%b}}' % NINES.encode(), 400),
    ("a long float", CONFIG_MAPS, b'{"metadata":{"name":"a","generation":0.%b}}' % NINES.encode(), 400),
    ("a great exponent", CONFIG_MAPS, b'{"metadata":{"name":"a","generation":1e%b}}' % NINES.encode(), 400),
    ("a deep body", CONFIG_MAPS, b'{"x":' * 100_000, 400),
    *(
        (f"a secret of {levels} levels", f"{NAMESPACED}/secrets", deep_secret(levels), 422)
        for levels in (*DEPTHS, 100_000)
    ),
    ("a large body", CONFIG_MAPS, b" " * (3 * 1024 * 1024 + 1), 413),
    (
        "a pod's cost",
        PODS,
        {**POD, "metadata": {"name": "a", "annotations": {"controller.kubernetes.io/pod-deletion-cost": NINES}}},
        422,
    ),
    ("a quantity", f"{NAMESPACED}/resourcequotas", named({"hard": {"pods": NINES}}), 400),
    ("an exponent", f"{NAMESPACED}/resourcequotas", named({"hard": {"pods": f"1e{NINES}"}}), 400),
    ("a time", CONFIG_MAPS, {"metadata": {"name": "a", "creationTimestamp": NINES}}, 400),
    ("an address", f"{NAMESPACED}/services", named({"ports": [{"port": 1}], "clusterIP": NINES}), 422),
    (
        "a range",
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        named({"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": f"10.0.0.0/{NINES}"}}]}]}),
        422,
    ),
    ("a name", CONFIG_MAPS, {"metadata": {"name": "a." * 100_000 + "a"}}, 422),
    ("a label", CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"a-" * 100_000: "b"}}}, 422),
    ("a schedule", f"{BATCH}/cronjobs", named({"schedule": f"{NINES} * * * *", "jobTemplate": JOB}), 422),
    ("a schedule of a duration", f"{BATCH}/cronjobs", named({"schedule": f"@every {NINES}", "jobTemplate": JOB}), 422),
    (
        "indexes",
        f"{BATCH}/jobs",
        named(
            {
                "completions": 3,
                "completionMode": "Indexed",
                "successPolicy": {"rules": [{"succeededIndexes": NINES}]},
                "template": NEVER,
            }
        ),
        422,
    ),
    (
        "a percentage",
        "/apis/apps/v1/namespaces/default/deployments",
        named(
            {
                "selector": {"matchLabels": {"a": "b"}},
                "template": TEMPLATE,
                "strategy": {"rollingUpdate": {"maxUnavailable": f"{NINES}%"}},
            }
        ),
        422,
    ),
    (
        "a percentage of a budget",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        named({"minAvailable": f"{NINES}%", "selector": {}}),
        422,
    ),
    (
        "a selector of devices",
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        claim(f"1 == {NINES}"),
        422,
    ),
    ("a policy", POLICIES, policy(f"{NINES} == 1"), 422),
    ("a pattern of a policy", POLICIES, policy("'a'.matches('" + "(a*)*" * 3000 + "')"), 422),
    (
        "a token's time",
        f"{NAMESPACED}/serviceaccounts/default/token",
        b'{"spec":{"expirationSeconds":%b}}' % NINES.encode(),
        400,
    ),
    (
        "a request for a certificate",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        named({"signerName": "a.b/c", "usages": ["any"], "request": "YWJj" * 50_000}),
        422,
    ),
    ("a node's range", "/api/v1/nodes", named({"podCIDR": NINES, "podCIDRs": [NINES]}), 422),
]


@pytest.mark.parametrize(("path", "body", "status"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
async def test_bodies(server: ApiUnderTest, path: str, body: Any, status: int) -> None:
    answer = await server.request("POST", f"{path}?dryRun=All", body, headers=JSON)
    assert answer.status == status, answer.body[:500]
    assert answer.json["kind"] == "Status" and answer.json["code"] == status


DOCUMENTS = [
    ("base 60", b"metadata: {name: a}\ndata: {a: 1" + b":59" * 60_000 + b"}\n", 201),
    ("a long integer", b"metadata: {name: a, generation: " + b"9" * 100_000 + b"}\n", 400),
    ("values", b"metadata: {name: a}\nx:\n" + b"- 1\n" * MOST_VALUES, 400),
    ("directives", b"%TAG !a! b\n" * 10_000 + b"---\na: 1\n", 400),
    ("aliases", b"a: &a b\nb: *a\n", 400),
    ("depth", b"[" * 100_000, 400),
]


@pytest.mark.parametrize(("body", "status"), [case[1:] for case in DOCUMENTS], ids=[case[0] for case in DOCUMENTS])
async def test_documents(server: ApiUnderTest, body: bytes, status: int) -> None:
    answer = await server.request("POST", f"{CONFIG_MAPS}?dryRun=All", body, headers=YAML)
    assert answer.status == status, answer.body[:500]
    if status >= 400:
        applied = await server.request("PATCH", f"{CONFIG_MAPS}/a?fieldManager=t&dryRun=All", body, headers=APPLY)
        assert applied.status == 400, applied.body[:500]


async def test_a_document_does_not_keep_others_waiting(server: ApiUnderTest) -> None:
    """The body of the longest kind is read meanwhile; a probe is answered many times."""
    body = b"metadata: {name: a}\nx:\n" + b"- {a: b}\n" * (MOST_VALUES // 3 - 2)
    reading = asyncio.ensure_future(server.request("POST", f"{CONFIG_MAPS}?dryRun=All", body, headers=YAML))
    slowest, answers = 0.0, 0
    while not reading.done():
        begin = time.monotonic()
        assert (await server.request("GET", "/livez")).status == 200
        slowest, answers = max(slowest, time.monotonic() - begin), answers + 1
    assert reading.result().status == 201
    assert answers >= 3 and slowest < 1, (answers, slowest)


PATCHES: list[tuple[str, Any, int]] = [
    ("a long index", [{"op": "test", "path": f"/data/{NINES}", "value": 1}], 422),
    ("a deep pointer", [{"op": "add", "path": "/a" * 100_000, "value": 1}], 422),
    ("operations", [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, 413),
    (
        "insertions at the front",
        [
            {"op": "add", "path": "/x", "value": [0] * 10_000},
            *[{"op": "add", "path": "/x/0", "value": 0}] * 9_000,
        ],
        413,
    ),
    (
        "a document in itself again and again",
        [{"op": "copy", "from": "", "path": "/data" + "/data" * i} for i in range(100)],
        422,
    ),
]


@pytest.mark.parametrize(("patch", "status"), [case[1:] for case in PATCHES], ids=[case[0] for case in PATCHES])
async def test_patches(server: ApiUnderTest, patch: Any, status: int) -> None:
    answer = await server.request("PATCH", f"{CONFIG_MAPS}/here?dryRun=All", patch, headers=JSON_PATCH)
    assert answer.status == status, answer.body[:500]


HEADERS: list[tuple[str, dict[str, str], int]] = [
    ("an Accept of qualities", {"Accept": f"a/b;q={NINES[:4000]}, application/json"}, 200),
    ("an Accept that is cut", {"Accept": f"a/b;q={NINES}, application/json"}, 406),
    ("an Accept of types", {"Accept": "a/b," * 1000}, 406),
    ("a user to be", {"Impersonate-User": "u" * 5000}, 403),
]


@pytest.mark.parametrize(("headers", "status"), [case[1:] for case in HEADERS], ids=[case[0] for case in HEADERS])
async def test_headers(server: ApiUnderTest, headers: dict[str, str], status: int) -> None:
    answer = await server.request("GET", CONFIG_MAPS, headers=headers)
    assert answer.status == status, answer.body[:500]


PLACES = [
    (f"{PODS}/p:{NINES}/proxy/", 400),
    (f"{NAMESPACED}/services/kubernetes:{NINES}/proxy/", 503),
    (f"/api/v1/nodes/n:{NINES}/proxy/", 400),
    (f"{PODS}/p/portforward?ports={NINES}", 400),
    (f"{PODS}/p/log?tailLines={NINES}", 400),
    (f"{PODS}/p/log?sinceSeconds={NINES}", 400),
]


@pytest.mark.parametrize(("path", "status"), PLACES, ids=[path[:60] for path, _ in PLACES])
async def test_numbers_in_paths(server: ApiUnderTest, path: str, status: int) -> None:
    answer = await server.request("GET", path)
    assert answer.status // 100 == status // 100, (answer.status, answer.body[:500])


async def test_warnings_end(server: ApiUnderTest) -> None:
    """Upstream: filters/warning.go, 4096 characters in all, then 256 of each."""
    body: Object = {"metadata": {"name": "a"}, **{"u" * 60 + str(i): 1 for i in range(5000)}}
    answer = await server.request("POST", f"{CONFIG_MAPS}?dryRun=All", body)
    found = answer.headers.getall("Warning")
    assert answer.status == 201 and 10 < len(found) <= 100 and sum(map(len, found)) < 8192
    long = await server.request(
        "POST", f"{CONFIG_MAPS}?dryRun=All", {"metadata": {"name": "a"}, "u" * 100_000: 1, "v": 1}
    )
    texts = long.headers.getall("Warning")
    assert long.status == 201 and len(texts) == 2 and max(map(len, texts)) < 300
