"""Services whose ports, addresses, traffic policies or network policies let no connection or only some through."""

from __future__ import annotations

from typing import Any

import pytest

from kube.api import networking_v1
from tests.support.broken_clusters import NO_CAUSES, Broken, Object, mended, pod, run, story_of
from wherry.errors import UsageError, WherryError
from wherry.testing import AsyncCluster
from wherry.why.causes.policies import types_of
from wherry.why.model import Cause


def service(name: str = "web", *, target: int | str = "http", **spec: Any) -> Object:
    inner = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": target}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": inner}


def web(name: str = "web", port: str = "http", node: str = "", **labels: str) -> Object:
    found = pod(name, ports=[{"containerPort": 8080, "name": port}], spec={"nodeName": node} if node else {})
    found["metadata"]["labels"] = {"app": "web", **labels}
    return found


def policy(name: str, selector: dict[str, str], **spec: Any) -> Object:
    inner = {"podSelector": {"matchLabels": selector}, **spec}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": inner,
    }


def peer(**labels: str) -> Object:
    return {"podSelector": {"matchLabels": labels}}


def slice_of(*, ready: bool = True, name: str = "") -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "mine", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}],
        "ports": [{"port": 8080, "name": name}],
    }


CASES = {
    "endpoint that is not ready": Broken(
        "service/web",
        "none of the 1 endpoints of its EndpointSlices is ready, as in endpointslice/mine",
        "kubectl edit endpointslice/mine -n default",
        [service(selector=None), slice_of(ready=False)],
        edited=("ready: false", "ready: true"),
        healthy=NO_CAUSES,
    ),
    "name of a port of an EndpointSlice": Broken(
        "service/web",
        "no EndpointSlice has a port without a name for its port 80",
        "kubectl edit endpointslice/mine -n default",
        [service(selector=None), slice_of(name="other")],
        edited=('name: "\\?other"\\?', 'name: ""'),
        healthy=NO_CAUSES,
    ),
    "named port that no pod has": Broken(
        "service/web",
        r"its port 80 leads to port http of its pods, which declare 8080 \(main\)",
        "kubectl patch service/web -n default -p",
        [service(), web(port="main")],
        healthy=NO_CAUSES,
    ),
    "protocol": Broken(
        "service/web",
        "its port 80 leads to port http of its pods, and they declare no ports",
        "kubectl edit service/web -n default",
        [service(ports=[{"port": 80, "targetPort": "http", "protocol": "UDP"}]), web()],
        edited=("protocol: UDP", "protocol: TCP"),
        healthy=NO_CAUSES,
    ),
    "node ports of nodes without pods": Broken(
        "service/web",
        r"connections to the node ports \(30080\) of node-2 are dropped: externalTrafficPolicy is Local",
        "kubectl patch service/web -n default -p",
        [
            service(
                type="NodePort",
                externalTrafficPolicy="Local",
                ports=[{"port": 80, "targetPort": "http", "nodePort": 30080}],
            ),
            web(node="node-1"),
        ],
        healthy=NO_CAUSES,
    ),
    "headless": Broken(
        "service/web",
        "it is headless .* clients have to use port 8080, not 80",
        "kubectl edit service/web -n default",
        [service(clusterIP="None", target=8080), web()],
        edited=("port: 80$", "port: 8080"),
        healthy=NO_CAUSES,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_cause_is_named_and_the_fix_mends_it(name: str) -> None:
    await mended(CASES[name], nodes=2)


async def of_service(cluster: AsyncCluster, source: str = "") -> list[Cause]:
    await cluster.wait("pod/web", "Ready")

    async def has_address(_: object) -> bool:
        found = await cluster.list("endpointslices", selector="kubernetes.io/service-name=web")
        return any(each.get("endpoints") for each in found)

    await cluster.wait("service/web", has_address)
    return list(reversed((await story_of(cluster, "service/web", source=source)).causes))


async def test_a_named_port_is_looked_up_in_each_pod() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service(), web(), web("old", port="main")])
        await cluster.wait("pod/old", "Ready")
        (cause,) = await of_service(cluster)
        assert cause.text == (
            "its port 80 leads to port http of its pods, and 1 of 2 pods have no port of that name, such as pod/old"
        )
        await cluster.delete("pod/old")
        await cluster.wait("pod/old", "deleted")
        assert not await of_service(cluster)


async def test_peers_of_a_policy_are_a_further_cause_that_is_partial() -> None:
    async with AsyncCluster(1) as cluster:
        rule = {"from": [peer(app="client"), {"ipBlock": {"cidr": "192.0.2.0/24"}}, {"namespaceSelector": {}}]}
        await cluster.apply([service(), web(), policy("some", {"app": "web"}, ingress=[rule])])
        (cause,) = await of_service(cluster)
        assert cause.partial and cause.text == (
            "only pods with app=client of namespace default, addresses in 192.0.2.0/24, pods of all namespaces may connect "
            "to port 8080 of pod/web (network policy some)"
        )


async def test_a_policy_with_one_rule_for_everybody_is_no_cause() -> None:
    async with AsyncCluster(1) as cluster:
        rules = [{"from": [peer(app="client")]}, {"ports": [{"port": 8080}]}]
        await cluster.apply([service(), web(), policy("some", {"app": "web"}, ingress=rules)])
        assert not await of_service(cluster)


def test_a_policy_without_types_isolates_for_ingress_and_with_egress_rules_for_egress_too() -> None:
    found = networking_v1.NetworkPolicy()
    assert types_of(found) == ["Ingress"]
    found.spec.egress = [networking_v1.NetworkPolicyEgressRule()]
    assert types_of(found) == ["Ingress", "Egress"]


def client(name: str = "client", **labels: str) -> Object:
    found = pod(name)
    found["metadata"]["labels"] = {"app": name, **labels}
    return found


async def test_policies_of_both_ends_are_named_and_their_fixes_let_the_connection_through() -> None:
    async with AsyncCluster(1) as cluster:
        incoming = policy("in", {"app": "web"}, ingress=[{"from": [peer(app="other")]}])
        outgoing = policy("out", {"app": "client"}, policyTypes=["Egress"])
        await cluster.apply([service(), web(), client(), client("other"), incoming, outgoing])
        await cluster.wait("pod/client", "Ready")
        first, second = await of_service(cluster, "pod/client")
        assert first.text.startswith("network policy out lets no connection of pod/client reach port 8080 of pod/web")
        assert second.text.startswith("network policy in lets no connection of pod/client reach port 8080 of pod/web")
        assert '{"to":[' in first.fix and '{"from":[' in second.fix.rpartition("}]},")[2] and not first.partial
        assert not await of_service(cluster, "pod/other")
        for cause in (first, second):
            await run(cluster, cause.fix, Broken("", "", ""))
        assert not await of_service(cluster, "pod/client")


async def test_an_egress_policy_without_dns_is_named() -> None:
    async with AsyncCluster(1) as cluster:
        dns = service("kube-dns", selector={"k8s-app": "kube-dns"}, ports=[{"port": 53, "protocol": "UDP"}])
        allowed = {"to": [peer(app="web")], "ports": [{"port": 8080}]}
        server = client("dns", **{"k8s-app": "kube-dns"})
        await cluster.apply([dns, server], namespace="kube-system")
        await cluster.apply(
            [service(), web(), client(), policy("out", {"app": "client"}, egress=[allowed], policyTypes=["Egress"])]
        )
        (cause,) = await of_service(cluster, "pod/client")
        assert cause.text.startswith("network policy out lets pod/client look up no names")
        await run(cluster, cause.fix, Broken("", "", ""))
        assert not await of_service(cluster, "pod/client")
        (_, rule) = (await cluster.get("networkpolicy/out"))["spec"]["egress"]  # to cluster DNS, and nowhere else
        (to,) = rule["to"]
        assert to["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
        assert to["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}


ALLOWED = {
    "port by its name": ([{"ports": [{"port": "http"}]}], True),
    "other name": ([{"ports": [{"port": "main"}]}], False),
    "range": ([{"ports": [{"port": 8000, "endPort": 8080}]}], True),
    "range that ends before": ([{"ports": [{"port": 8000, "endPort": 8079}]}], False),
    "range that begins after": ([{"ports": [{"port": 8081, "endPort": 9000}]}], False),
    "protocol": ([{"ports": [{"port": 8080, "protocol": "UDP"}]}], False),
    "all ports of a protocol": ([{"ports": [{"protocol": "TCP"}]}], True),
    "namespace": (
        [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}]}],
        True,
    ),
    "other namespace": (
        [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}]}],
        False,
    ),
    "pods of namespaces": ([{"from": [{"namespaceSelector": {}, **peer(app="client")}]}], True),
    "other pods of namespaces": ([{"from": [{"namespaceSelector": {}, **peer(app="x")}]}], False),
    "all addresses": ([{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}], True),
    "addresses without the pod's": ([{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}], False),
    "one rule of two": ([{"from": [peer(app="x")]}, {"from": [peer(app="client")]}], True),
    "no rule": ([], False),
}


async def test_rules_of_a_policy_are_read_as_the_nodes_read_them() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service(), web(), client()])
        await cluster.wait("pod/client", "Ready")
        assert (await cluster.get("pod/client"))["status"]["podIP"].startswith("10.")
        for name, (rules, allowed) in ALLOWED.items():
            await cluster.apply(policy("in", {"app": "web"}, ingress=rules, policyTypes=["Ingress"]))
            assert (not await of_service(cluster, "pod/client")) is allowed, name


async def test_a_wrong_client_is_one_sentence() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply([service(), web()])
        for source, text in (("web", "name a pod as pod/NAME"), ("x:pod/web", "there is no pod web in namespace x")):
            with pytest.raises(WherryError, match=text):
                await of_service(cluster, source)
        with pytest.raises(UsageError, match="--from belongs to a Service"):
            await story_of(cluster, "pod/web", source="pod/web")
