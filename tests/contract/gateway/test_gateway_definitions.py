"""The definitions of the Gateway API on a real API server: accepted and refused objects, kubectl, other versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from control.controllers import manager
from control.controllers.gateway import definitions
from kube.api import meta_v1, networking_v1
from kube.gateway.ingresses import DEFAULT_CLASS
from tests.contract.gateway.conftest import GROUP, GatewayCluster
from tests.support.control import ApiUnderTest, api_server
from tests.support.gateways import backend, gateway, listener, parent, route, rule
from tests.support.hollow import eventually, running

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def installed(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    """A server with the definitions and no controllers."""
    async with api_server(tmp_path) as server:
        for each in definitions.load():
            assert (await server.request("POST", DEFINITIONS, each.as_object())).status == 201
        for each in definitions.load():

            async def served(name: str = each.name) -> bool:
                found = (await server.request("GET", f"{DEFINITIONS}/{name}")).json
                return any(
                    c["type"] == "Established" and c["status"] == "True" for c in found["status"].get("conditions", ())
                )

            await eventually(served)
        yield server


async def refusal(server: ApiUnderTest, body: dict[str, Any]) -> str:
    """Return why the server refuses an object, "" if it does not."""
    plural = {"Gateway": "gateways", "HTTPRoute": "httproutes", "ReferenceGrant": "referencegrants"}[body["kind"]]
    answer = await server.request("POST", f"{GROUP}/namespaces/default/{plural}?dryRun=All", body)
    return "" if answer.status == 201 else str(answer.json["message"])


def body(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "default"}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def of_listeners(*listeners: dict[str, Any], **more: Any) -> dict[str, Any]:
    return body("Gateway", {"gatewayClassName": "wherry", "listeners": list(listeners), **more})


def of_rules(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return body("HTTPRoute", {"parentRefs": [{"name": "web"}], "rules": list(rules) or [rule()], **more})


def filtered(kind: str, name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, name: value}


REDIRECT = filtered("RequestRedirect", "requestRedirect", {"scheme": "https"})
REWRITE = filtered("URLRewrite", "urlRewrite", {"hostname": "example.com"})
PREFIX = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}

REFUSED = [
    (of_listeners(), "should have at least 1 items"),
    (of_listeners(*(listener(f"l{n}", 1000 + n) for n in range(65))), "must have at most 64 items"),
    (of_listeners(listener("a"), listener("a", 81)), "Duplicate value"),
    (of_listeners(listener("a"), listener("b")), "Combination of port, protocol and hostname must be unique"),
    (of_listeners(listener(tls={"mode": "Terminate"})), "tls must not be specified for protocols"),
    (of_listeners(listener(protocol="TCP", hostname="a.com")), "hostname must not be specified for protocols"),
    (of_listeners(listener(hostname="a..com")), "spec.listeners[0].hostname in body should match"),
    (of_listeners(listener(hostname="*.*.com")), "spec.listeners[0].hostname in body should match"),
    (of_listeners(listener(port=65536)), "should be less than or equal to 65535"),
    (
        of_listeners(listener("s", 443, "HTTPS", tls={"mode": "Terminate"})),
        "certificateRefs or options must be specified when mode is Terminate",
    ),
    (of_rules(rule(filters=[REDIRECT])), "RequestRedirect filter must not be used together with backendRefs"),
    (of_rules({"filters": [REDIRECT, REWRITE]}), "May specify either httpRouteFilterRequestRedirect"),
    (of_rules({"filters": [REDIRECT, REDIRECT]}), "RequestRedirect filter cannot be repeated"),
    (of_rules(rule(path="/../x")), "must not contain '/../'"),
    (of_rules(rule(path="x")), "value must be an absolute path"),
    (of_rules(rule({"name": "app"})), "Must have port for Service reference"),
    (
        of_rules(rule(filters=[filtered("URLRewrite", "urlRewrite", {"path": PREFIX})], matches=[{}, {}])),
        "exactly one PathPrefix match must be specified",
    ),
    (of_rules(*(rule(matches=[{}] * 64) for _ in range(3))), "the total number of matches across all rules"),
    (of_rules(*(rule() for _ in range(17))), "must have at most 16 items"),
    (of_rules(parentRefs=[{"name": "web"}, {"name": "web"}]), "sectionName must be unique when parentRefs includes"),
    (of_rules(parentRefs=[{"name": f"g{n}"} for n in range(33)]), "must have at most 32 items"),
    (of_rules(rule(timeouts={"request": "1s", "backendRequest": "2s"})), "cannot be longer than request timeout"),
    (body("ReferenceGrant", {"from": [], "to": [{"group": "", "kind": "Secret"}]}), "should have at least 1 items"),
]


async def test_invalid_objects_are_refused_in_upstreams_words(installed: ApiUnderTest) -> None:
    answers = [(message, await refusal(installed, made)) for made, message in REFUSED]
    assert not [(message, answer[:500]) for message, answer in answers if message not in answer]


ACCEPTED = [
    of_listeners(listener("a", hostname="a.com"), listener("b", hostname="*.a.com"), listener("c")),
    of_listeners(*(listener(f"l{n}", 1000 + n) for n in range(64))),
    of_listeners(listener("s", 443, "HTTPS"), listener("x", 9, "example.com/own")),
    of_rules(rule(path="/a"), {"filters": [REDIRECT]}, rule(backend(weight=0), backend("other", weight=9))),
    of_rules(rule(filters=[REWRITE], timeouts={"request": "10s", "backendRequest": "2s"}), hostnames=["*.a.com"]),
    of_rules(*(rule(matches=[{}] * 8) for _ in range(16))),
    of_rules(parentRefs=[parent(sectionName="a"), parent(sectionName="b")]),
]


async def test_valid_objects_are_accepted(installed: ApiUnderTest) -> None:
    assert not [answer for made in ACCEPTED if (answer := await refusal(installed, made))]


async def test_defaults_are_upstreams_in_both_versions(installed: ApiUnderTest) -> None:
    answer = await installed.request(
        "POST",
        "/apis/gateway.networking.k8s.io/v1beta1/namespaces/default/httproutes?dryRun=All",
        {**of_rules({"backendRefs": [{"name": "app", "port": 80}]}), "apiVersion": "gateway.networking.k8s.io/v1beta1"},
    )
    spec = answer.json["spec"]
    assert spec["parentRefs"] == [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}]
    assert spec["rules"] == [
        {
            "backendRefs": [{"group": "", "kind": "Service", "name": "app", "port": 80, "weight": 1}],
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        }
    ]


async def test_kubectl_explains_the_kinds(installed: ApiUnderTest) -> None:
    done = await installed.kubectl("explain", "gateway.spec.listeners.hostname")
    assert "Hostname, or *. and a domain" in done.stdout and "GROUP:      gateway.networking.k8s.io" in done.stdout
    done = await installed.kubectl("explain", "httproute.spec.rules.matches")
    assert "queryParams" in done.stdout
    done = await installed.kubectl("api-resources", "--categories=gateway-api", "-o", "name")
    assert sorted(done.stdout.split()) == sorted(each.name for each in definitions.load())


async def test_kubectl_prints_columns_of_a_gateway(cluster: GatewayCluster) -> None:
    await cluster.apply(of_listeners(listener()) | {"metadata": {"name": "web", "namespace": "infra"}})
    await cluster.gateway_has("web", "Programmed", "True")
    done = await cluster.server.kubectl("get", "gateway", "-n", "infra", "web")
    assert done.stdout.split()[:6] == ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "AGE", "web"]
    assert "wherry" in done.stdout and "10.0.0.1" in done.stdout
    done = await cluster.server.kubectl("get", "gatewayclass")
    assert "gateway.wherry.dev/controller" in done.stdout and "True" in done.stdout


async def test_definitions_of_another_version_are_left_alone(tmp_path: Path) -> None:
    async with api_server(tmp_path, gateway=True) as server:
        theirs = next(each for each in definitions.load() if each.name.startswith("gateways.")).as_object()
        theirs["metadata"]["annotations"][definitions.BUNDLE] = "v1.9.0"
        theirs["metadata"]["annotations"].pop(definitions.REVISION)
        theirs["metadata"]["labels"] = {}
        assert (await server.request("POST", DEFINITIONS, theirs)).status == 201
        own = networking_v1.IngressClass(spec=networking_v1.IngressClassSpec(controller="example.com/other"))
        own.metadata.name, own.metadata.annotations = "other", {DEFAULT_CLASS: "true"}
        await server.client().create(own)
        async with running(server.controllers(manager.ControllerConfig(gateway=True))):

            async def created() -> Any:
                return await server.client().get(networking_v1.IngressClass, "wherry")

            found = await eventually(created)
            assert DEFAULT_CLASS not in found.metadata.annotations
            metadata = (await server.request("GET", f"{DEFINITIONS}/{theirs['metadata']['name']}")).json["metadata"]
            assert metadata["annotations"][definitions.BUNDLE] == "v1.9.0"
            assert definitions.REVISION not in metadata["annotations"]


@pytest.mark.parametrize("annotation", [{definitions.BUNDLE: "v1.9.0"}, {definitions.CHANNEL: "experimental"}])
def test_a_definition_that_was_installed_over_wherrys_is_not_outdated(annotation: dict[str, str]) -> None:
    wanted = definitions.load()[0]
    metadata = wanted.as_object()["metadata"]
    older = {**metadata["annotations"], definitions.REVISION: "older"}
    found = meta_v1.ObjectMeta(name=wanted.name, labels=metadata["labels"], annotations=older)
    assert wanted.outdated(found)
    found.annotations = {**older, **annotation}
    assert not wanted.outdated(found)


async def test_an_older_definition_of_wherrys_is_updated(tmp_path: Path) -> None:
    async with api_server(tmp_path, gateway=True) as server:
        old = next(each for each in definitions.load() if each.name.startswith("httproutes.")).as_object()
        old["metadata"]["annotations"][definitions.REVISION] = "older"
        old["spec"]["versions"][0]["additionalPrinterColumns"] = []
        assert (await server.request("POST", DEFINITIONS, old)).status == 201
        async with running(server.controllers(manager.ControllerConfig(gateway=True))):

            async def updated() -> bool:
                found = (await server.request("GET", f"{DEFINITIONS}/{old['metadata']['name']}")).json
                return bool(found["spec"]["versions"][0].get("additionalPrinterColumns"))

            await eventually(updated)
        await asyncio.sleep(0)


def test_objects_of_the_support_are_valid() -> None:
    assert gateway().spec.listeners[0].port == 80 and route().spec.rules[0].backend_refs[0].port == 8080
