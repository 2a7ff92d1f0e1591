from __future__ import annotations

import copy
import json

import pytest
import yaml

from control.patch.apply import ApplyConflict, apply, track_update
from control.schemas.merge_rules import of_custom
from control.schemas.schema import compile_root
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.field_ownership import (
    CONFIG_MAP,
    CONTAINERS,
    DEPLOYMENT,
    LATER,
    NOW,
    SERVICE,
    STATUS,
    deployment,
    owners,
    updated,
)


# -- applying ---------------------------------------------------------------------------------------------------------
def test_an_applied_object_belongs_to_its_applier_field_by_field() -> None:
    config = deployment(CONTAINERS, labels={"app": "web"})
    result = apply(None, config, "gitops", force=False, schema=DEPLOYMENT, now=NOW)
    (entry,) = result["metadata"].pop("managedFields")
    assert result == config
    assert entry == {
        "manager": "gitops",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {
                    "f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}, "f:image": {}, "f:name": {}}}}
                },
            },
        },
    }


def test_a_struct_that_is_never_absent_belongs_to_nobody_while_it_is_empty() -> None:
    """A Job's template gets labels from the server: they must outlive an apply that says nothing of the metadata."""
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}], "securityContext": {}}}
    made = {**deployment("{replicas: 1}"), "spec": {"template": template}}
    made["metadata"]["managedFields"] = track_update(None, made, "kubectl", "", DEPLOYMENT, NOW)
    fields = owners(made)["kubectl", "Update"]["f:spec"]["f:template"]
    assert "f:metadata" not in fields and fields["f:spec"]["f:securityContext"] == {}


def test_applying_the_same_again_changes_nothing_not_even_the_time() -> None:
    config = deployment(CONTAINERS)
    first = apply(None, config, "gitops", force=False, schema=DEPLOYMENT, now=NOW)
    assert apply(first, config, "gitops", force=False, schema=DEPLOYMENT, now=LATER) == first


def test_nothing_that_goes_in_is_changed() -> None:
    config = deployment(CONTAINERS)
    live = apply(None, config, "gitops", force=False, schema=DEPLOYMENT, now=NOW)
    other = deployment("{replicas: 5, template: {spec: {containers: [{name: b, image: x}]}}}")
    before = copy.deepcopy((live, other))
    apply(live, other, "gitops", force=False, schema=DEPLOYMENT, now=LATER)
    assert (live, other) == before


def test_changing_another_appliers_field_is_a_conflict_in_upstreams_words() -> None:
    live = apply(None, deployment("{replicas: 3}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    with pytest.raises(StatusError) as caught:
        apply(live, deployment("{replicas: 5}"), "y", force=False, schema=DEPLOYMENT, now=LATER)
    status = caught.value.to_status()
    assert status["code"] == 409 and status["reason"] == "Conflict"
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "x": .spec.replicas'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".spec.replicas"}
    ]


def test_conflicts_with_updates_name_the_version_and_the_subresource() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "gitops", force=False, schema=DEPLOYMENT, now=NOW)
    live = updated(live, {"spec": {"replicas": 4, "paused": True}}, "kubectl-edit")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 3, paused: true}"), "gitops", force=False, schema=DEPLOYMENT, now=LATER)
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-edit" using apps/v1: .spec.replicas'
    )
    live = updated(live, {"spec": {"replicas": 5, "paused": True}}, "hpa", subresource="scale")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 3, paused: false}"), "other", force=False, schema=DEPLOYMENT, now=LATER)
    assert caught.value.message == (
        "Apply failed with 2 conflicts: "
        'conflicts with "gitops":\n- .spec.paused\n'
        'conflicts with "hpa" with subresource "scale" using apps/v1:\n- .spec.replicas'
    )


def test_force_takes_the_fields_over_and_the_other_loses_them() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    result = apply(live, deployment("{replicas: 5}"), "y", force=True, schema=DEPLOYMENT, now=LATER)
    assert result["spec"] == {"replicas": 5, "paused": True}
    assert owners(result) == {
        ("x", "Apply"): {"f:spec": {"f:paused": {}}},
        ("y", "Apply"): {"f:spec": {"f:replicas": {}}},
    }


def test_the_same_value_is_owned_together_and_survives_until_the_last_owner_leaves() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    live = apply(live, deployment("{replicas: 3}"), "y", force=False, schema=DEPLOYMENT, now=LATER)
    assert set(owners(live)) == {("x", "Apply"), ("y", "Apply")}
    live = apply(live, deployment("{paused: true}"), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert live["spec"] == {"replicas": 3, "paused": True}
    live = apply(live, deployment("{minReadySeconds: 1}"), "y", force=False, schema=DEPLOYMENT, now=LATER)
    assert live["spec"] == {"paused": True, "minReadySeconds": 1}


def test_what_is_no_longer_applied_is_removed() -> None:
    live = apply(
        None, deployment(CONTAINERS, labels={"a": "1", "b": "2"}), "x", force=False, schema=DEPLOYMENT, now=NOW
    )
    result = apply(live, deployment("{replicas: 3}", labels={"a": "1"}), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["metadata"]["labels"] == {"a": "1"}
    assert result["spec"].get("template", {}).get("spec", {}).get("containers", []) == []


def test_an_item_no_longer_applied_goes_with_the_defaults_it_was_given() -> None:
    both = "{template: {spec: {containers: [{name: a, image: x}, {name: b, image: y}]}}}"
    live = apply(None, deployment(both), "x", force=False, schema=DEPLOYMENT, now=NOW)
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"
    only = "{template: {spec: {containers: [{name: b, image: y}]}}}"
    result = apply(live, deployment(only), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [
        {"name": "b", "image": "y", "imagePullPolicy": "Always"}
    ]


def test_an_item_that_only_its_applier_wanted_goes_with_what_an_update_set_in_it() -> None:
    both = CONTAINERS.replace("[", "[{name: other, image: y}, ")
    live = apply(None, deployment(both), "x", force=False, schema=DEPLOYMENT, now=NOW)
    spec = copy.deepcopy(live["spec"])
    spec["template"]["spec"]["containers"][1]["workingDir"] = "/tmp"
    live = updated(live, {"spec": spec}, "editor")
    less = "{template: {spec: {containers: [{name: other, image: y}]}}}"
    result = apply(live, deployment(less), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [{"name": "other", "image": "y"}]
    assert set(owners(result)) == {("x", "Apply")}


def test_an_item_that_another_applier_wants_too_stays_with_what_that_one_wants() -> None:
    live = apply(None, deployment(CONTAINERS), "x", force=False, schema=DEPLOYMENT, now=NOW)
    mine = "{template: {spec: {containers: [{name: app, workingDir: /tmp}]}}}"
    live = apply(live, deployment(mine), "y", force=False, schema=DEPLOYMENT, now=NOW)
    result = apply(live, deployment("{replicas: 3}"), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [{"name": "app", "workingDir": "/tmp"}]


def test_what_others_added_stays() -> None:
    live = apply(None, deployment("{replicas: 3}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    live = updated(live, {"metadata": {"labels": {"by": "hand"}}}, "kubectl-label")
    result = apply(live, deployment("{replicas: 4}"), "x", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["metadata"]["labels"] == {"by": "hand"} and result["spec"] == {"replicas": 4}


def test_the_first_apply_to_an_untracked_object_conflicts_with_what_was_there() -> None:
    live = deployment("{replicas: 3, paused: true}", uid="u")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 4}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas'
    )
    result = apply(live, deployment("{replicas: 3}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert owners(result)[("before-first-apply", "Update")] == {"f:spec": {"f:paused": {}, "f:replicas": {}}}
    result = apply(result, deployment("{minReadySeconds: 1}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert result["spec"] == {"replicas": 3, "paused": True, "minReadySeconds": 1}


def test_managed_fields_may_not_be_applied() -> None:
    config = deployment("{replicas: 3}", managedFields=[{"manager": "x"}])
    with pytest.raises(StatusError) as caught:
        apply(None, config, "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert (caught.value.code, caught.value.message) == (400, "metadata.managedFields must be nil")


def test_fields_of_another_endpoint_are_not_owned() -> None:
    config = {**deployment("{replicas: 3}"), "status": {"replicas": 9}}
    result = apply(None, config, "x", force=False, schema=DEPLOYMENT, now=NOW, skip=STATUS)
    assert owners(result) == {("x", "Apply"): {"f:spec": {"f:replicas": {}}}}
    result = apply(
        result, config, "x", force=False, schema=DEPLOYMENT, now=NOW, subresource="status", skip=frozenset({"spec"})
    )
    assert [m.get("subresource") for m in result["metadata"]["managedFields"]] == [None, "status"]
    assert result["status"] == {"replicas": 9}


# -- lists ------------------------------------------------------------------------------------------------------------
ORDERS = [
    ("the configuration's order rules", "abc", "cab", "cab"),
    ("new items come where the configuration has them", "ab", "axb", "axb"),
    ("items of others stay before what followed them", "oab", "ab", "oab"),
    ("items of others stay behind what they followed", "abo", "ba", "boa"),
    ("items of others stay between", "aob", "axb", "aoxb"),
    ("new items at the end", "ao", "ab", "aob"),
]


@pytest.mark.parametrize(("live", "config", "expected"), [row[1:] for row in ORDERS], ids=[row[0] for row in ORDERS])
def test_the_order_of_merged_items(live: str, config: str, expected: str) -> None:
    def spec(names: str) -> str:
        return json.dumps({"template": {"spec": {"containers": [{"name": name} for name in names]}}})

    start = deployment(spec(live))
    start["metadata"]["managedFields"] = track_update(None, start, "other", "", DEPLOYMENT, NOW)
    result = apply(start, deployment(spec(config)), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert "".join(c["name"] for c in result["spec"]["template"]["spec"]["containers"]) == expected


def test_ports_are_known_by_number_and_protocol_with_tcp_as_default() -> None:
    live = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    live["spec"] = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
    live["metadata"]["managedFields"] = track_update(None, live, "other", "", SERVICE, NOW)  # type: ignore[index]
    config = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 53, "name": "dns"}]},
    }
    result = apply(live, config, "x", force=False, schema=SERVICE, now=NOW)
    assert result["spec"]["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "name": "dns"}]
    assert owners(result)[("x", "Apply")]["f:spec"]["f:ports"] == {
        'k:{"port":53,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}
    }


def test_sets_of_scalars_are_shared_value_by_value() -> None:
    live = apply(None, deployment("{}", finalizers=["a/a"]), "x", force=False, schema=DEPLOYMENT, now=NOW)
    live = apply(live, deployment("{}", finalizers=["b/b"]), "y", force=False, schema=DEPLOYMENT, now=NOW)
    assert live["metadata"]["finalizers"] == ["a/a", "b/b"]
    live = apply(live, deployment("{}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert live["metadata"]["finalizers"] == ["b/b"]
    assert owners(live)[("y", "Apply")]["f:metadata"] == {"f:finalizers": {'v:"b/b"': {}}}


def test_atomic_parts_have_one_owner_as_a_whole() -> None:
    live = apply(None, deployment("{selector: {matchLabels: {a: b}}}"), "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert owners(live) == {("x", "Apply"): {"f:spec": {"f:selector": {}}}}
    with pytest.raises(ApplyConflict, match=r'conflict with "x": .spec.selector'):
        apply(live, deployment("{selector: {matchLabels: {c: d}}}"), "y", force=False, schema=DEPLOYMENT, now=NOW)
    taken = apply(live, deployment("{selector: {matchLabels: {c: d}}}"), "y", force=True, schema=DEPLOYMENT, now=NOW)
    assert taken["spec"]["selector"] == {"matchLabels": {"c": "d"}} and set(owners(taken)) == {("y", "Apply")}


def test_an_item_without_its_key_is_refused() -> None:
    config = deployment("{template: {spec: {containers: [{image: x}]}}}")
    with pytest.raises(StatusError) as caught:
        apply(None, config, "x", force=False, schema=DEPLOYMENT, now=NOW)
    assert caught.value.code == 500
    assert 'omits key field "name"' in caught.value.message


# -- coming from client-side apply ------------------------------------------------------------------------------------
def client_side(spec: str) -> Object:
    config = deployment(spec)
    live = copy.deepcopy(config)
    live["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(config)}
    live["metadata"]["managedFields"] = track_update(None, live, "kubectl-client-side-apply", "", DEPLOYMENT, NOW)
    return live


def test_kubectl_takes_over_what_it_applied_on_the_client_side() -> None:
    live = client_side("{replicas: 3, paused: true}")
    config = deployment("{replicas: 4, paused: true}")
    with pytest.raises(ApplyConflict):
        apply(live, config, "other", force=False, schema=DEPLOYMENT, now=LATER)
    result = apply(live, config, "kubectl", force=False, schema=DEPLOYMENT, now=LATER)
    assert result["spec"]["replicas"] == 4
    assert owners(result)[("kubectl", "Apply")] == {"f:spec": {"f:paused": {}, "f:replicas": {}}}
    annotation = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert json.loads(annotation)["spec"] == {"replicas": 4, "paused": True}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"spec":' * 401 + "1" + "}" * 401, "5"])
def test_an_annotation_of_client_side_apply_that_cannot_be_read_allows_nothing(text: str) -> None:
    live = client_side("{replicas: 3}")
    live["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = text
    with pytest.raises(ApplyConflict):
        apply(live, deployment("{replicas: 4}"), "kubectl", force=False, schema=DEPLOYMENT, now=LATER)


def test_the_annotation_of_client_side_apply_is_written_as_kubectl_writes_it() -> None:
    config = deployment("{template: {spec: {containers: [{name: a, command: [sh, -c, 'a <b && c']}]}}, replicas: 4}")
    result = apply(client_side("{replicas: 3}"), config, "kubectl", force=True, schema=DEPLOYMENT, now=LATER)
    annotation = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    metadata = {**config["metadata"], "annotations": {}}
    plain = json.dumps({**config, "metadata": metadata}, sort_keys=True, separators=(",", ":"))
    assert annotation == plain.replace("a <b && c", "a \\u003cb \\u0026\\u0026 c") + "\n"


def test_but_not_what_somebody_else_changed_since() -> None:
    live = updated(client_side("{replicas: 3, paused: true}"), {"spec": {"replicas": 9, "paused": True}}, "hpa")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 4, paused: false}"), "kubectl", force=False, schema=DEPLOYMENT, now=LATER)
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas'


# -- custom resources -------------------------------------------------------------------------------------------------
WIDGET = of_custom(
    compile_root(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "integer"},
                        "parts": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["id", "side"],
                            "items": {
                                "type": "object",
                                "properties": {
                                    "id": {"type": "integer"},
                                    "side": {"type": "string", "default": "left"},
                                },
                            },
                        },
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "box": {
                            "type": "object",
                            "x-kubernetes-map-type": "atomic",
                            "properties": {"w": {"type": "integer"}},
                        },
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            },
        }
    )
)


def test_custom_resources_follow_their_schema() -> None:
    spec = yaml.safe_load("{size: 1, parts: [{id: 1}], tags: [a], names: [n], box: {w: 1}, free: {x: {y: [1]}}}")
    config = {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {"a": "b"}}, "spec": spec}
    result = apply(None, config, "x", force=False, schema=WIDGET, now=NOW)
    assert owners(result)[("x", "Apply")] == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            "f:box": {},
            "f:free": {"f:x": {".": {}, "f:y": {}}},
            "f:names": {'v:"n"': {}},
            "f:parts": {'k:{"id":1,"side":"left"}': {".": {}, "f:id": {}}},
            "f:size": {},
            "f:tags": {},
        },
    }
    second = {**config, "spec": yaml.safe_load("{parts: [{id: 1, side: right}], names: [m]}")}
    merged = apply(result, second, "y", force=False, schema=WIDGET, now=NOW)["spec"]
    assert merged["parts"] == [{"id": 1}, {"id": 1, "side": "right"}] and merged["names"] == ["n", "m"]


def test_free_keys_and_binary_data_of_config_maps_are_owned_one_by_one() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
    live = apply(None, config, "x", force=False, schema=CONFIG_MAP, now=NOW)
    changed = {**live, "data": {"a": "1", "b": "3", "c": "4"}}
    changed["metadata"] = {**live["metadata"], "managedFields": track_update(live, changed, "y", "", CONFIG_MAP, NOW)}
    assert owners(changed) == {
        ("x", "Apply"): {"f:data": {"f:a": {}}},
        ("y", "Update"): {"f:data": {"f:b": {}, "f:c": {}}},
    }
    assert apply(changed, {**config, "data": {"d": "5"}}, "x", force=False, schema=CONFIG_MAP, now=NOW)["data"] == {
        "b": "3",
        "c": "4",
        "d": "5",
    }
