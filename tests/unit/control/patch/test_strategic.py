from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from control.patch.strategic import strategic_merge
from kube.api import apps_v1, core_v1, policy_v1
from kube.errors import StatusError

POD = """
metadata: {name: web, labels: {app: web, tier: front}, finalizers: [a, b]}
spec:
  containers:
  - name: app
    image: nginx:1
    env: [{name: A, value: "1"}, {name: B, value: "2"}]
    ports: [{containerPort: 80, name: http}]
    args: [one, two]
  - {name: sidecar, image: envoy}
  volumes:
  - {name: data, emptyDir: {medium: Memory}}
  tolerations: [{key: x}]
"""

# What the patch says, and how the named part looks afterwards.
CASES: list[tuple[str, str, str, str]] = [
    (
        "maps merge by key",
        "{metadata: {labels: {tier: back, new: x}}}",
        "metadata.labels",
        "{app: web, tier: back, new: x}",
    ),
    ("null removes", "{metadata: {labels: {tier: null}}}", "metadata.labels", "{app: web}"),
    (
        "null of what is not there does nothing",
        "{metadata: {labels: {other: null}}}",
        "metadata.labels",
        "{app: web, tier: front}",
    ),
    (
        "items merge by key",
        "{spec: {containers: [{name: app, image: 'nginx:2'}]}}",
        "spec.containers.*.image",
        "[nginx:2, envoy]",
    ),
    (
        "items of items merge too",
        "{spec: {containers: [{name: app, env: [{name: B, value: '3'}, {name: C, value: '4'}]}]}}",
        "spec.containers.0.env",
        "[{name: A, value: '1'}, {name: B, value: '3'}, {name: C, value: '4'}]",
    ),
    (
        "new items come first unless ordered",
        "{spec: {containers: [{name: new, image: x}]}}",
        "spec.containers.*.name",
        "[new, app, sidecar]",
    ),
    (
        "lists without a strategy are replaced",
        "{spec: {containers: [{name: app, args: [three]}]}}",
        "spec.containers.0.args",
        "[three]",
    ),
    ("atomic lists are replaced", "{spec: {tolerations: [{key: y}]}}", "spec.tolerations", "[{key: y}]"),
    (
        "lists of scalars with a strategy are united",
        "{metadata: {finalizers: [b, c]}}",
        "metadata.finalizers",
        "[a, b, c]",
    ),
    (
        "an item is deleted by key",
        "{spec: {containers: [{name: app, $patch: delete}]}}",
        "spec.containers.*.name",
        "[sidecar]",
    ),
    (
        "deleting an item that is not there does nothing",
        "{spec: {containers: [{name: z, $patch: delete}]}}",
        "spec.containers.*.name",
        "[app, sidecar]",
    ),
    (
        "a list is replaced on demand",
        "{spec: {containers: [{$patch: replace}, {name: only, image: x}]}}",
        "spec.containers",
        "[{name: only, image: x}]",
    ),
    ("a map is replaced on demand", "{metadata: {labels: {$patch: replace, a: b}}}", "metadata.labels", "{a: b}"),
    ("a map is emptied on demand", "{metadata: {labels: {$patch: delete}}}", "metadata.labels", "{}"),
    (
        "merge is what happens anyway",
        "{metadata: {labels: {$patch: merge, a: b}}}",
        "metadata.labels",
        "{app: web, tier: front, a: b}",
    ),
    (
        "retainKeys drops what is not listed",
        "{spec: {volumes: [{name: data, $retainKeys: [name, hostPath], hostPath: {path: /x}}]}}",
        "spec.volumes",
        "[{name: data, hostPath: {path: /x}}]",
    ),
    (
        "scalars are deleted from a list",
        "{metadata: {$deleteFromPrimitiveList/finalizers: [a, z]}}",
        "metadata.finalizers",
        "[b]",
    ),
    (
        "scalars are deleted and added at once",
        "{metadata: {$deleteFromPrimitiveList/finalizers: [a], finalizers: [c], $setElementOrder/finalizers: [c, b]}}",
        "metadata.finalizers",
        "[c, b]",
    ),
    (
        "items are brought into order",
        "{spec: {$setElementOrder/containers: [{name: sidecar}, {name: app}]}}",
        "spec.containers.*.name",
        "[sidecar, app]",
    ),
    (
        "items only the server has keep their place",
        "{spec: {$setElementOrder/containers: [{name: new}, {name: sidecar}], containers: [{name: new, image: x}]}}",
        "spec.containers.*.name",
        "[new, app, sidecar]",
    ),
    (
        "a new map is stored without directives and nulls",
        "{spec: {securityContext: {runAsUser: 5, fsGroup: null, $retainKeys: [runAsUser]}}}",
        "spec.securityContext",
        "{runAsUser: 5}",
    ),
    (
        "a new list is stored without the items to be deleted",
        "{spec: {initContainers: [{name: a, image: x}, {name: b, $patch: delete}]}}",
        "spec.initContainers",
        "[{name: a, image: x}]",
    ),
    ("another type replaces", "{metadata: {labels: null, annotations: {a: b}}}", "metadata.annotations", "{a: b}"),
]


def part(obj: Any, path: str) -> Any:
    head, _, rest = path.partition(".")
    if head == "*":
        return [part(item, rest) for item in obj]
    value = obj[int(head)] if isinstance(obj, list) else obj[head]
    return part(value, rest) if rest else value


@pytest.mark.parametrize(("patch", "path", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_pods(patch: str, path: str, expected: str) -> None:
    pod, decoded = yaml.safe_load(POD), yaml.safe_load(patch)
    before, sent = copy.deepcopy(pod), copy.deepcopy(decoded)
    assert part(strategic_merge(pod, decoded, core_v1.Pod), path) == yaml.safe_load(expected)
    assert (pod, decoded) == (before, sent)


def test_service_ports_merge_by_port_alone() -> None:
    service = {"spec": {"ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}
    patched = strategic_merge(service, {"spec": {"ports": [{"port": 80, "nodePort": 30080}]}}, core_v1.Service)
    assert patched["spec"]["ports"][0] == {"port": 80, "protocol": "TCP", "nodePort": 30080}


def test_a_deployments_strategy_can_be_switched_with_retain_keys() -> None:
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge(deployment, patch, apps_v1.Deployment)["spec"]["strategy"] == {"type": "Recreate"}


def test_selectors_of_disruption_budgets_are_replaced() -> None:
    budget = {"spec": {"selector": {"matchLabels": {"a": "b"}}}}
    patch = {"spec": {"selector": {"matchLabels": {"c": "d"}}}}
    patched = strategic_merge(budget, patch, policy_v1.PodDisruptionBudget)
    assert patched["spec"]["selector"] == {"matchLabels": {"c": "d"}}


REFUSED: list[tuple[str, str, int, str]] = [
    ("an unknown directive", "{metadata: {$patch: sort}}", 400, "unknown patch type: sort in map"),
    (
        "an unknown directive in an item",
        "{spec: {containers: [{name: app, $patch: sort}]}}",
        400,
        "unknown patch type: sort",
    ),
    ("an item without its key", "{spec: {containers: [{image: x}]}}", 422, "does not contain declared merge key: name"),
    (
        "keys that retainKeys leaves out",
        "{metadata: {$retainKeys: [name], labels: {a: b}}}",
        400,
        "invalid patch format of retainKeys",
    ),
    (
        "an order that is no list",
        "{spec: {$setElementOrder/containers: 1}}",
        400,
        "invalid patch format of setElementOrder list",
    ),
    (
        "an order that leaves out what the patch has",
        "{spec: {$setElementOrder/containers: [{name: app}], containers: [{name: new}]}}",
        400,
        "invalid patch format of setElementOrder list",
    ),
    (
        "deleting from a list by no list",
        "{metadata: {$deleteFromPrimitiveList/finalizers: a}}",
        400,
        "invalid patch format of primitive list",
    ),
    ("lists in lists", "{metadata: {finalizers: [[a]]}}", 422, "lists of lists are not supported"),
    ("no object", "[]", 400, "invalid JSON document"),
]


@pytest.mark.parametrize(("patch", "code", "why"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(patch: str, code: int, why: str) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_merge(yaml.safe_load(POD), yaml.safe_load(patch), core_v1.Pod)
    assert caught.value.code == code
    assert why in caught.value.message + str(getattr(caught.value, "__notes__", ""))
