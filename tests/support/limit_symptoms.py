"""Symptoms of docs/troubleshooting.md on a cluster: limits, and objects that contradict each other."""

from __future__ import annotations

from typing import Any

from tests.support.symptoms import Symptom, apply, gateway, load_balancer, pod, route

ADDRESS = r"\d+\.\d+\.\d+\.\d+"
KEY = "openssl req -x509 -newkey rsa:2048 -nodes -days 9 -subj /CN=a -addext subjectAltName=DNS:a -keyout {0}.key -out {0}.crt"


def without(text: str) -> str:
    return f"(?s)\\A(?!.*{text})"


def named(kind: str, version: str, name: str, namespace: str = "default", **rest: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, **rest}


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def ingress(name: str, space: str, host: str = "", secret: str = "") -> dict[str, Any]:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    rule = {
        "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]},
        **({"host": host} if host else {}),
    }
    spec = {"rules": [rule], **({"tls": [{"secretName": secret}]} if secret else {})}
    return named("Ingress", "networking.k8s.io/v1", name, space, spec=spec)


def served(space: str, name: str) -> tuple[str, str]:
    return f"kubectl get ingress -n {space} {name} -o jsonpath={{.status.loadBalancer.ingress[0].ip}}", ADDRESS


def gateways(count: int, space: str) -> list[dict[str, Any]]:
    return [gateway(f"g{number}", space, port=20100 + number) for number in range(count)]


def busy(matches: int) -> list[dict[str, Any]]:
    """Return a gateway with five listeners, and a route whose matches count once for each hostname and listener."""
    listeners = [{"name": f"l{number}", "protocol": "HTTP", "port": 20200 + number} for number in range(5)]
    found = gateway("busy", "busy")
    found["spec"]["listeners"] = listeners
    paths = [{"path": {"type": "Exact", "value": f"/{number}"}} for number in range(matches)]
    made = route("busy", {"name": "busy"})
    made["metadata"]["namespace"] = "busy"
    made["spec"]["hostnames"] = [f"h{number}.example" for number in range(16)]
    backends = made["spec"]["rules"][0]["backendRefs"]
    made["spec"]["rules"] = [{"matches": paths[at : at + 64], "backendRefs": backends} for at in range(0, matches, 64)]
    return [found, made]


def policy(name: str, values: int) -> dict[str, Any]:
    terms = [{"key": "app", "operator": "In", "values": [f"v{number}" for number in range(values)]}]
    rule = {"from": [{"podSelector": {"matchExpressions": terms}}]}
    spec = {"podSelector": {"matchLabels": {"app": "isolated"}}, "ingress": [rule]}
    return named("NetworkPolicy", "networking.k8s.io/v1", name, spec=spec)


def wide_service(addresses: int) -> list[dict[str, Any]]:
    ports = [{"name": f"p{number}", "port": 1000 + number, "protocol": "TCP"} for number in range(100)]
    endpoints = [
        {"addresses": [f"198.51.100.{number}"], "conditions": {"ready": True}} for number in range(1, addresses + 1)
    ]
    slice = named(
        "EndpointSlice", "discovery.k8s.io/v1", "wide-1", addressType="IPv4", endpoints=endpoints, ports=ports
    )
    slice["metadata"]["labels"] = {"kubernetes.io/service-name": "wide"}
    return [named("Service", "v1", "wide", spec={"ports": ports}), slice]


def other_class(handler: str) -> dict[str, Any]:
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "other"}, "handler": handler}


OBJECT = "kubectl create configmap twice --dry-run=client -o yaml"
AGENT = 'sed -n \'/"agent"/,/}/s/.*"pid": \\([0-9]*\\).*/\\1/p\''
SYMPTOMS: dict[str, Symptom] = {
    "The namespace has …": Symptom(
        apply(namespace("many"), *gateways(33, "many")),
        "g32",
        "kubectl delete gateway -n many g0",
        ("kubectl get gateways -n many -o yaml", without("The namespace has")),
        seen="kubectl get gateways -n many -o yaml",
        command="kubectl get gateways -n many",
    ),
    "The routes of a namespace have more than … matches": Symptom(
        apply(namespace("busy"), *busy(128)),
        "h15.example",
        apply(*busy(1)),
        ("kubectl get gateways,httproutes -n busy -o yaml", without("have more than")),
        seen="kubectl get gateways,httproutes -n busy -o yaml",
        command="kubectl get httproutes -n busy",
    ),
    "host … belongs to another namespace, whose Ingress named it first": Symptom(
        apply(namespace("second"), ingress("first", "default", "shared.example"))
        + "\nsleep 1; "
        + apply(ingress("later", "second", "shared.example")),
        "default +first .*shared.example",
        apply(ingress("later", "second", "own.example")),
        ("kubectl get ingress -n second later", "own.example +" + ADDRESS),
        seen="kubectl describe ingress -n second later",
    ),
    "a certificate without a hostname is used of an older Ingress in another namespace": Symptom(
        apply(namespace("third"), ingress("any", "default", "", "any"))
        + f"\n{KEY.format('any')}; kubectl create secret tls any --cert=any.crt --key=any.key; "
        + "kubectl create secret tls any -n third --cert=any.crt --key=any.key; sleep 1; "
        + apply(ingress("any", "third", "", "any")),
        "third +any",
        "kubectl delete ingress any",
        served("third", "any"),
        seen="kubectl describe ingress -n third any",
    ),
    "port … of the nodes is used by …": Symptom(
        apply(load_balancer("taken", 8110)) + "\nsleep 1; " + apply(gateway("late", port=8110)),
        "8110",
        "kubectl delete service taken",
        ("kubectl get gateway late -o jsonpath={.status.addresses[0].value}", ADDRESS),
        seen="kubectl describe gateway late",
        command="kubectl describe gateway late",
    ),
    "it belongs to another ApplySet, …: remove it from one of them": Symptom(
        f"{OBJECT} >$ADDONS/one.yaml; sleep 5; {OBJECT} >$ADDONS/two.yaml",
        "applyset.kubernetes.io/part-of",
        "rm $ADDONS/two.yaml",
        ("wherry addons list", without("another ApplySet")),
        seen="wherry addons list",
        command="kubectl get configmap twice -o yaml",
    ),
    "Failed to create pod sandbox: …": Symptom(
        apply(other_class("none"), pod("other", runtimeClassName="other")),
        "Failed to create pod sandbox",
        "kubectl delete pod other --now && " + apply(pod("other")),
        ("kubectl get pod other", "1/1 +Running"),
        values={"NAME": "other"},
    ),
    "Pods on node … that it selects are isolated: …": Symptom(
        apply(pod("isolated"), policy("wide", 1001)),
        "networkpolicy/wide",
        "kubectl delete networkpolicy wide && " + apply(policy("narrow", 1)),
        ("kubectl get events --field-selector involvedObject.name=narrow", "No resources found"),
    ),
    "Node … does not serve it: …": Symptom(
        apply(*wide_service(210)),
        "ServiceNotServed",
        apply(*wide_service(2)),
        ("iptables-save -t nat", "198.51.100.2:1099"),
        values={"NAME": "wide"},
    ),
    "… does not answer: …": Symptom(
        f"agent=$(wherry status -o json | {AGENT}); test $agent && kill -STOP $agent",
        ".",
        "kill -CONT $agent",
        ("wherry status", "agent: +running|agent +running|node1: Ready"),
        seen="wherry status",
        command="wherry logs agent",
        alone=True,
    ),
}
