"""Admission is shown every request that writes or connects as upstream shows it: operation, kind, resource, options."""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.admission.webhooks.review import describe
from control.interfaces.admission import Attributes
from kube import pki
from kube.json_object import Object
from tests.contract.test_api_nodes import Node, cluster
from tests.contract.test_auth import created
from tests.support.control import ADMIN, ApiUnderTest
from tests.support.custom_resources import definition, install, obj, version

APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
SOCKET = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4.channel.k8s.io"}
LINUX = {"kubernetes.io/os": "linux"}
CORE, APPS = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
POD = f"{CORE}/pods/p"


def _signing() -> Object:
    request = base64.b64encode(pki.new_request(pki.new_key(), "jane", ())).decode()
    return {"request": request, "signerName": "example.com/signer", "usages": ["client auth"]}


class Shown:
    """Objects that admission received since the last check: (operation, kind, resource/subresource, name, options' kind)."""

    def __init__(self, api: ApiUnderTest) -> None:
        self.api, self.requests, self.objects, self.validated = api, [], [], 0  # type: ignore[var-annotated]
        chain = api.api.admission
        admit, validate = chain.admit, chain.validate

        async def admitted(attributes: Attributes) -> None:
            if attributes.user.name == ADMIN[0]:
                await self._note(attributes)
            await admit(attributes)

        async def checked(attributes: Attributes) -> None:
            self.validated += attributes.user.name == ADMIN[0]
            await validate(attributes)

        chain.admit, chain.validate = admitted, checked  # type: ignore[method-assign]

    async def _note(self, attributes: Attributes) -> None:
        request, new, old = await describe(attributes.requested or attributes.resource, attributes)
        kind = request["kind"]
        resource = request["resource"]["resource"]
        path = f"{resource}/{request['subResource']}" if "subResource" in request else resource
        assert request["kind"] == request["requestKind"] and request["resource"] == request["requestResource"]
        group = f"{kind['group']}/" if kind["group"] else ""
        self.requests.append(
            (
                request["operation"],
                f"{group}{kind['version']} {kind['kind']}",
                path,
                request.get("name", ""),
                (request["options"] or {}).get("kind", ""),
            )
        )
        self.objects.append(copy.deepcopy((new, old)))

    def taken(self) -> list[tuple[str, ...]]:
        found, self.requests = self.requests, []
        assert self.validated == len(found), "validation is shown what mutation was"
        self.validated = 0
        return found


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ApiUnderTest, Node, Shown]]:
    async with cluster(tmp_path) as (api, node), asyncio.timeout(120):
        node.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        await sent(api, 200, "PATCH", "/api/v1/nodes/n", {"metadata": {"labels": LINUX}}, **MERGE_HEADER)
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        await created(api, f"{APPS}/deployments", {"metadata": {"name": "d"}, "spec": {**spec, "replicas": 1}})
        await created(
            api, f"{CORE}/replicationcontrollers", {"metadata": {"name": "r"}, "spec": {"template": template}}
        )
        await created(api, f"{CORE}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
        for name in ("free", "free2", "gone", "gone2"):
            await created(api, f"{CORE}/pods", {"metadata": {"name": name}, "spec": template["spec"]})
        yield api, node, Shown(api)


async def sent(api: ApiUnderTest, status: int, method: str, path: str, body: Any = None, **headers: str) -> Any:
    answer = await api.request(method, path, body, headers={k.replace("_", "-"): v for k, v in headers.items()})
    assert answer.status == status, answer.body
    return answer


async def test_what_is_created_and_not_stored_is_shown(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    api, _, shown = served
    target = {"target": {"kind": "Node", "name": "n"}}
    binding = {"apiVersion": "v1", "kind": "Binding", **target}
    await sent(api, 201, "POST", f"{CORE}/pods/free/binding", {**binding, "metadata": {"name": "free"}})
    assert shown.taken() == [("CREATE", "v1 Binding", "pods/binding", "free", "CreateOptions")]
    await sent(api, 201, "POST", f"{CORE}/bindings", {**binding, "metadata": {"name": "free2"}})
    assert shown.taken() == [("CREATE", "v1 Binding", "bindings", "free2", "CreateOptions")]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    for name, query in (("gone", ""), ("gone2", "?dryRun=All")):
        await sent(api, 201, "POST", f"{CORE}/pods/{name}/eviction{query}", {**eviction, "metadata": {"name": name}})
        assert shown.taken() == [("CREATE", "policy/v1 Eviction", "pods/eviction", name, "CreateOptions")]
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    await sent(api, 201, "POST", f"{CORE}/serviceaccounts/default/token", token)
    kind = "authentication.k8s.io/v1 TokenRequest"
    assert shown.taken() == [("CREATE", kind, "serviceaccounts/token", "default", "CreateOptions")]


async def test_reviews_are_shown(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    api, _, shown = served
    access = {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    own = {"resourceAttributes": access["resourceAttributes"]}
    for group, place, plural, kind, spec in (
        ("authentication", "", "tokenreviews", "TokenReview", {"token": "x"}),
        ("authentication", "", "selfsubjectreviews", "SelfSubjectReview", {}),
        ("authorization", "", "subjectaccessreviews", "SubjectAccessReview", access),
        ("authorization", "/namespaces/default", "localsubjectaccessreviews", "LocalSubjectAccessReview", access),
        ("authorization", "", "selfsubjectaccessreviews", "SelfSubjectAccessReview", own),
        ("authorization", "", "selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"}),
    ):
        sent_object = {"spec": spec} if spec else {}
        await sent(api, 201, "POST", f"/apis/{group}.k8s.io/v1{place}/{plural}", sent_object)
        assert shown.taken() == [("CREATE", f"{group}.k8s.io/v1 {kind}", plural, "", "CreateOptions")]


async def test_the_scale_of_a_workload_is_shown_as_a_scale(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    api, _, shown = served
    scaled = {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
    custom = await install(api, definition("CronTab", version(subresources=scaled)))
    await created(api, custom, obj("CronTab", "t", replicas=1))
    shown.taken()
    for path, resource, name in (
        (f"{APPS}/deployments/d", "deployments/scale", "d"),
        (f"{CORE}/replicationcontrollers/r", "replicationcontrollers/scale", "r"),
        (f"{custom}/t", "crontabs/scale", "t"),
    ):
        await sent(api, 200, "PATCH", f"{path}/scale", {"spec": {"replicas": 3}}, Content_Type=MERGE["Content-Type"])
        assert shown.taken() == [("UPDATE", "autoscaling/v1 Scale", resource, name, "UpdateOptions")]
        new, old = shown.objects[-1]
        assert (new["kind"], new["spec"]["replicas"], old["spec"]["replicas"]) == ("Scale", 3, 1)
        whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 2}}
        if "stable" not in path:
            whole["metadata"] = {"name": name, "namespace": "default"}
        await sent(api, 200, "PUT", f"{path}/scale", whole)
        assert shown.taken() == [("UPDATE", "autoscaling/v1 Scale", resource, name, "UpdateOptions")]
        assert (await sent(api, 200, "GET", path)).json["spec"]["replicas"] == 2


async def test_parts_of_an_object_are_shown_with_the_whole_of_it(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    api, _, shown = served
    for part in ("status", "ephemeralcontainers", "resize"):
        pod = (await sent(api, 200, "GET", POD)).json
        await sent(api, 200, "PUT", f"{POD}/{part}", pod)
        await sent(api, 200, "PATCH", f"{POD}/{part}", {}, Content_Type=MERGE["Content-Type"])
        assert shown.taken() == [("UPDATE", "v1 Pod", f"pods/{part}", "p", "UpdateOptions")] * 2, part
    namespace = (await sent(api, 200, "GET", "/api/v1/namespaces/default")).json
    await sent(api, 200, "PUT", "/api/v1/namespaces/default/finalize", namespace)
    assert shown.taken() == [("UPDATE", "v1 Namespace", "namespaces/finalize", "default", "UpdateOptions")]
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    await created(api, requests, {"metadata": {"name": "c"}, "spec": _signing()})
    shown.taken()
    signing = (await sent(api, 200, "GET", f"{requests}/c")).json
    signing["status"] = {"conditions": [{"type": "Denied", "status": "True", "reason": "no"}]}
    await sent(api, 200, "PUT", f"{requests}/c/approval", signing)
    await sent(api, 200, "PATCH", f"{requests}/c/status", {}, **MERGE_HEADER)
    kind, plural = "certificates.k8s.io/v1 CertificateSigningRequest", "certificatesigningrequests"
    assert shown.taken() == [
        ("UPDATE", kind, f"{plural}/{part}", "c", "UpdateOptions") for part in ("approval", "status")
    ]


async def test_connections_are_shown_with_their_options(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    api, _, shown = served
    for path, kind, resource, name, options in (
        (f"{POD}/exec?command=id&stdout=1", "PodExecOptions", "pods/exec", "p", {"command": ["id"], "stdout": True}),
        (f"{POD}/attach?stdin=1", "PodAttachOptions", "pods/attach", "p", {"stdin": True}),
        (f"{POD}/portforward?ports=80", "PodPortForwardOptions", "pods/portforward", "p", {"ports": [80]}),
    ):
        await api.request("POST", path, headers=SOCKET)
        assert shown.taken() == [("CONNECT", f"v1 {kind}", resource, name, "")]
        assert shown.objects[-1] == ({"kind": kind, "apiVersion": "v1", **options}, None)
    for path, kind, resource, name, proxied in (
        ("/api/v1/nodes/n/proxy/stats/", "NodeProxyOptions", "nodes/proxy", "n", {"path": "/stats/"}),
        ("/api/v1/nodes/n/proxy", "NodeProxyOptions", "nodes/proxy", "n", {}),
        (f"{CORE}/pods/http:p:80/proxy/x", "PodProxyOptions", "pods/proxy", "http:p:80", {"path": "/x"}),
        (f"{CORE}/services/s/proxy/", "ServiceProxyOptions", "services/proxy", "s", {"path": "/"}),
    ):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            await api.request(method, path)
            assert shown.taken() == [("CONNECT", f"v1 {kind}", resource, name, "")], (method, path)
            assert shown.objects[-1] == ({"kind": kind, "apiVersion": "v1", **proxied}, None)
    refused = await sent(api, 400, "POST", f"{POD}/exec?command=id&stdout=1&dryRun=All")
    assert refused.json["message"] == "dryRun is not supported"


async def test_admission_gets_whole_objects_with_the_options_of_the_write(
    served: tuple[ApiUnderTest, Node, Shown],
) -> None:
    api, _, shown = served
    seen: list[Object] = []
    admit = api.api.admission.admit

    async def noting(attributes: Attributes) -> None:
        seen.append(dict(attributes.options))
        await admit(attributes)

    api.api.admission.admit = noting  # type: ignore[method-assign]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    path, meta = f"{CORE}/configmaps", {"apiVersion": "meta.k8s.io/v1"}
    await sent(api, 201, "POST", f"{path}?fieldManager=f&fieldValidation=Strict", made)
    await sent(api, 200, "PATCH", f"{path}/m?dryRun=All", {}, **MERGE_HEADER)
    await sent(api, 200, "PATCH", f"{path}/m?fieldManager=g&force=true", made, **APPLY_HEADER)
    made["metadata"] = {"name": "k"}
    await sent(api, 201, "PATCH", f"{path}/k?fieldManager=g", made, **APPLY_HEADER)
    await sent(api, 200, "PUT", f"{path}/k", {**made, "data": {"a": "b"}})
    await sent(api, 200, "DELETE", f"{path}/k", {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    assert seen == [
        {"kind": "CreateOptions", **meta, "fieldManager": "f", "fieldValidation": "Strict"},
        {"kind": "UpdateOptions", **meta, "dryRun": ["All"]},
        {"kind": "UpdateOptions", **meta, "fieldManager": "g"},
        {"kind": "CreateOptions", **meta, "fieldManager": "g"},
        {"kind": "UpdateOptions", **meta},
        {"kind": "DeleteOptions", **meta, "gracePeriodSeconds": 0, "propagationPolicy": "Background"},
    ]
    v1 = "v1 ConfigMap", "configmaps"
    assert [request[:4] for request in shown.taken()] == [
        ("CREATE", *v1, "m"),
        ("UPDATE", *v1, "m"),
        ("UPDATE", *v1, "m"),
        ("CREATE", *v1, "k"),
        ("UPDATE", *v1, "k"),
        ("DELETE", *v1, "k"),
    ]


MERGE_HEADER = {"Content_Type": MERGE["Content-Type"]}
APPLY_HEADER = {"Content_Type": APPLY["Content-Type"]}


async def test_what_admission_makes_of_a_request_is_carried_out(served: tuple[ApiUnderTest, Node, Shown]) -> None:
    """Stands for mutating webhooks and policies, which change the object that they are shown."""
    api, _, _ = served
    admit = api.api.admission.admit

    async def changing(attributes: Attributes) -> None:
        await admit(attributes)
        found = attributes.obj or {}
        if found.get("kind") == "Scale":
            found["spec"] = {"replicas": 7}
        if found.get("kind") == "Binding":
            found["metadata"].setdefault("annotations", {})["by"] = "admission"
        if found.get("kind") == "Eviction":
            found["deleteOptions"] = {"preconditions": {"uid": "another"}}

    api.api.admission.admit = changing  # type: ignore[method-assign]
    scale = await sent(api, 200, "PATCH", f"{APPS}/deployments/d/scale", {"spec": {"replicas": 3}}, **MERGE_HEADER)
    assert scale.json["spec"]["replicas"] == 7
    assert (await sent(api, 200, "GET", f"{APPS}/deployments/d")).json["spec"]["replicas"] == 7
    binding = {"metadata": {"name": "free"}, "target": {"kind": "Node", "name": "n"}}
    await sent(api, 201, "POST", f"{CORE}/pods/free/binding", binding)
    assert (await sent(api, 200, "GET", f"{CORE}/pods/free")).json["metadata"]["annotations"] == {"by": "admission"}
    await sent(api, 409, "POST", f"{CORE}/pods/gone/eviction", {"metadata": {"name": "gone"}})
    await sent(api, 200, "GET", f"{CORE}/pods/gone")
