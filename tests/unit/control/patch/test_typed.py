"""Validation of an applied configuration against its kind, and ownership of the replicas that a Scale shows."""

from __future__ import annotations

from typing import Any

import pytest

from control.patch.apply.scaling import to_parent, to_scale
from control.patch.apply.typed import check, path_of
from control.patch.schema import of_object
from kube.api import apps_v1, core_v1
from kube.errors import StatusError

POD = of_object(core_v1.Pod)
REPLICAS = ("spec", "replicas")


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}


C = '.spec.containers[name="c"]'
PATHS = [
    (pod(containers=[{"name": "c", "x": 1}]), "spec.containers[0].x", f"{C}.x"),
    (
        pod(containers=[{"name": "c", "ports": [{"containerPort": 80, "x": 1}]}]),
        "spec.containers[0].ports[0].x",
        f'{C}.ports[containerPort=80,protocol="TCP"].x',
    ),
    (pod(tolerations=[{"x": 1}]), "spec.tolerations[0].x", ".spec.tolerations[0].x"),
    (pod(containers=[{"x": 1}]), "spec.containers[0].x", ".spec.containers[0].x"),
    ({"x": 1}, "x", ".x"),
]


@pytest.mark.parametrize(("obj", "path", "shown"), PATHS, ids=[s for _, _, s in PATHS])
def test_items_are_named_by_their_keys(obj: dict[str, Any], path: str, shown: str) -> None:
    assert path_of(POD, obj, path) == shown


def refusal(obj: dict[str, Any]) -> str:
    with pytest.raises(StatusError) as caught:
        check(obj, POD)
    assert (caught.value.code, caught.value.reason) == (500, "")
    return caught.value.message.removeprefix("failed to create typed patch object (n/p; v1, Kind=Pod): ")


def test_an_item_may_not_be_applied_twice() -> None:
    assert refusal(pod(containers=[{"name": "c"}, {"name": "c"}])) == (
        '.spec.containers: duplicate entries for key [name="c"]'
    )
    twice = {**pod(), "metadata": {"name": "p", "namespace": "n", "finalizers": ["a/b", "a/b"]}}
    assert refusal(twice) == '.metadata.finalizers: duplicate entries for key [="a/b"]'


def test_all_type_errors_are_reported_at_once() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80}]
    assert refusal(pod(containers=[{"name": "c", "ports": ports}], volumes=[{"emptyDir": {}}])) == (
        f'errors:\n  {C}.ports: duplicate entries for key [containerPort=80,protocol="TCP"]\n  .spec.volumes: element 0: '
        'associative list with keys has an element that omits key field "name" (and doesn\'t have default value)'
    )


def test_what_fits_is_let_through() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]
    check(pod(containers=[{"name": "c", "ports": ports}], tolerations=[{}, {}]), POD)
    check({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}, of_object(apps_v1.Deployment))


def entry(name: str, fields: Any, version: str = "apps/v1", **more: str) -> dict[str, Any]:
    return {
        "manager": name,
        "operation": "Apply",
        "apiVersion": version,
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **more,
    }


OWNED = {"f:spec": {"f:replicas": {}}}
MORE = {"f:spec": {"f:paused": {}, "f:replicas": {}}}


def test_owners_of_replicas_own_those_of_the_scale() -> None:
    entries = [entry("a", MORE), entry("b", {"f:spec": {"f:paused": {}}})]
    assert to_scale(entries, REPLICAS) == [entry("a", OWNED, "autoscaling/v1")]
    assert to_scale(None, REPLICAS) == []
    assert to_scale([entry("a", {"f:spec": {"f:size": {}}})], ("spec", "size")) == [entry("a", OWNED, "autoscaling/v1")]


def test_what_comes_of_an_applied_scale_is_carried_back() -> None:
    entries = [entry("a", MORE), entry("b", OWNED)]
    taken = [entry("c", OWNED, "autoscaling/v1", subresource="scale")]
    assert to_parent(entries, taken, REPLICAS, "apps/v1") == [
        entry("a", {"f:spec": {"f:paused": {}}}),
        entry("c", OWNED, subresource="scale"),
    ]
    shared = [entry("a", OWNED, "autoscaling/v1"), entry("c", OWNED, "autoscaling/v1", subresource="scale")]
    assert to_parent(entries, shared, REPLICAS, "apps/v1") == [entry("a", MORE), entry("c", OWNED, subresource="scale")]
