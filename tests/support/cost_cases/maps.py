"""Maps with many keys: labels, annotations, amounts of resources; and what CNI plugins say of a pod."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from control.decoding.decode import media_type
from control.registry import metadata
from control.registry.strategies import strategy_for
from kube.resources import by_kind
from netproxy.podnet import cni_results
from tests.support.cost import Case
from tests.support.cost_cases.inputs import HEAD, OBJECT, cases, each, fill

_RESOURCE = by_kind("v1", "Pod")
assert _RESOURCE is not None
PODS, POD = strategy_for(_RESOURCE), _RESOURCE


def _names(size: int, form: str) -> dict[str, str]:
    return {form % i: "v" for i in range(size // (len(form) + 8))}


METADATA: dict[str, Callable[[int], dict[str, Any]]] = {
    "labels": lambda size: {"labels": _names(size, "k%d")},
    "labels with a prefix": lambda size: {"labels": _names(size, "example.com/k%d")},
    "wrong labels": lambda size: {"labels": _names(size, "-%d")},
    "a long label": lambda size: {"labels": {"a." * (size // 2): "v"}},
    "a long value": lambda size: {"labels": {"a": "v" * size}},
    "annotations": lambda size: {"annotations": _names(size, "k%d")},
    "a long annotation": lambda size: {"annotations": {"a": "v" * size}},
    "finalizers": lambda size: {"finalizers": list(_names(size, "example.com/k%d"))},
    "owners": lambda size: {
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"{i}"} for i in range(size // 60)
        ]
    },
}


def checked_metadata(meta: dict[str, Any]) -> object:
    return metadata.validate(POD, {"name": "a", "namespace": "default", **meta}, PODS.name_errors)


def _amounts(form: str, amount: str) -> Callable[[int], dict[str, Any]]:
    return lambda size: {form % i: amount for i in range(size // (len(form) + len(amount) + 8))}


AMOUNTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "extended resources": _amounts("example.com/r%d", "1"),
    "huge pages": _amounts("hugepages-%dMi", "1Mi"),
    "wrong names": _amounts("r%d", "1"),
    "long amounts": _amounts("example.com/r%d", "9" * 900),
}


def checked_pod(amounts: dict[str, Any]) -> object:
    container = {"name": "a", "image": "b", "resources": {"limits": dict(amounts)}}
    pod: dict[str, Any] = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"containers": [container]}}
    PODS.default(pod)
    PODS.prepare_create(pod)
    PODS.default(pod)
    return PODS.validate(pod), PODS.warnings(pod, None)


def _result(interfaces: int, addresses: int) -> bytes:
    result = {
        "interfaces": [{"name": f"v{i}", "mac": "0a:00:00:00:00:01", "sandbox": ""} for i in range(interfaces)],
        "ips": [{"address": f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/24"} for i in range(addresses)],
    }
    return json.dumps({"kind": "x", "networkName": "n", "result": result}).encode()


RESULTS: dict[str, Callable[[int], bytes]] = {
    "brackets": fill(b"["),
    "interfaces": lambda size: _result(size // 60, 1),
    "addresses": lambda size: _result(1, size // 28),
    "unknown fields": lambda size: ("{" + each('"u%d":1,')(size) + '"u":1}').encode(),
}
CASES: list[Case] = [
    *cases("metadata", METADATA, checked_metadata, largest=OBJECT, memory=1000),
    *cases("resources of a container", AMOUNTS, checked_pod, largest=OBJECT, memory=1500),
    *cases("CNI result", RESULTS, lambda data: cni_results.parse(data, "n", "cni0"), largest=OBJECT),
    *cases(
        "Content-Type",
        {"parameters": fill(";a=b", "application/json"), "spaces": fill(" ", "a", ";b"), "letters": fill("A")},
        media_type,
        largest=HEAD,
    ),
]
