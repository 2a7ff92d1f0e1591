from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from control.patch.apply import ApplyConflict, apply, track_update
from control.patch.schema import Node, of_custom, of_object
from kube.api import apps_v1, core_v1
from kube.errors import StatusError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
DEPLOYMENT, POD, SERVICE, CONFIG_MAP = map(
    of_object, (apps_v1.Deployment, core_v1.Pod, core_v1.Service, core_v1.ConfigMap)
)
STATUS = frozenset({"status"})

Object = dict[str, Any]


def deployment(spec: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", **metadata},
        "spec": yaml.safe_load(spec),
    }


def owners(obj: Object) -> dict[tuple[str, str], Any]:
    return {(m["manager"], m["operation"]): m["fieldsV1"] for m in obj["metadata"].get("managedFields", [])}


def updated(
    obj: Object, change: Object, manager: str, schema: Node = DEPLOYMENT, subresource: str = "", now: datetime = NOW
) -> Object:
    """Do an update of some top-level parts as a client would, with the bookkeeping."""
    new = copy.deepcopy({**obj, **change})
    new["metadata"] = {**copy.deepcopy(obj["metadata"]), **change.get("metadata", {})}
    new["metadata"]["managedFields"] = track_update(obj, new, manager, subresource, schema, now)
    return new


CONTAINERS = "{replicas: 3, template: {spec: {containers: [{name: app, image: 'nginx:1'}]}}}"


# -- applying ---------------------------------------------------------------------------------------------------------
def test_an_applied_object_belongs_to_its_applier_field_by_field() -> None:
    config = deployment(CONTAINERS, labels={"app": "web"})
    result = apply(None, config, "gitops", False, DEPLOYMENT, NOW)
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
    first = apply(None, config, "gitops", False, DEPLOYMENT, NOW)
    assert apply(first, config, "gitops", False, DEPLOYMENT, LATER) == first


def test_nothing_that_goes_in_is_changed() -> None:
    config = deployment(CONTAINERS)
    live = apply(None, config, "gitops", False, DEPLOYMENT, NOW)
    other = deployment("{replicas: 5, template: {spec: {containers: [{name: b, image: x}]}}}")
    before = copy.deepcopy((live, other))
    apply(live, other, "gitops", False, DEPLOYMENT, LATER)
    assert (live, other) == before


def test_changing_another_appliers_field_is_a_conflict_in_upstreams_words() -> None:
    live = apply(None, deployment("{replicas: 3}"), "x", False, DEPLOYMENT, NOW)
    with pytest.raises(StatusError) as caught:
        apply(live, deployment("{replicas: 5}"), "y", False, DEPLOYMENT, LATER)
    status = caught.value.to_status()
    assert status["code"] == 409 and status["reason"] == "Conflict"
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "x": .spec.replicas'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "x"', "field": ".spec.replicas"}
    ]


def test_conflicts_with_updates_name_the_version_and_the_subresource() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "gitops", False, DEPLOYMENT, NOW)
    live = updated(live, {"spec": {"replicas": 4, "paused": True}}, "kubectl-edit")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 3, paused: true}"), "gitops", False, DEPLOYMENT, LATER)
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "kubectl-edit" using apps/v1: .spec.replicas'
    )
    live = updated(live, {"spec": {"replicas": 5, "paused": True}}, "hpa", subresource="scale")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 3, paused: false}"), "other", False, DEPLOYMENT, LATER)
    assert caught.value.message == (
        "Apply failed with 2 conflicts: "
        'conflicts with "gitops":\n- .spec.paused\n'
        'conflicts with "hpa" with subresource "scale" using apps/v1:\n- .spec.replicas'
    )


def test_force_takes_the_fields_over_and_the_other_loses_them() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "x", False, DEPLOYMENT, NOW)
    result = apply(live, deployment("{replicas: 5}"), "y", True, DEPLOYMENT, LATER)
    assert result["spec"] == {"replicas": 5, "paused": True}
    assert owners(result) == {
        ("x", "Apply"): {"f:spec": {"f:paused": {}}},
        ("y", "Apply"): {"f:spec": {"f:replicas": {}}},
    }


def test_the_same_value_is_owned_together_and_survives_until_the_last_owner_leaves() -> None:
    live = apply(None, deployment("{replicas: 3, paused: true}"), "x", False, DEPLOYMENT, NOW)
    live = apply(live, deployment("{replicas: 3}"), "y", False, DEPLOYMENT, LATER)
    assert set(owners(live)) == {("x", "Apply"), ("y", "Apply")}
    live = apply(live, deployment("{paused: true}"), "x", False, DEPLOYMENT, LATER)
    assert live["spec"] == {"replicas": 3, "paused": True}
    live = apply(live, deployment("{minReadySeconds: 1}"), "y", False, DEPLOYMENT, LATER)
    assert live["spec"] == {"paused": True, "minReadySeconds": 1}


def test_what_is_no_longer_applied_is_removed() -> None:
    live = apply(None, deployment(CONTAINERS, labels={"a": "1", "b": "2"}), "x", False, DEPLOYMENT, NOW)
    result = apply(live, deployment("{replicas: 3}", labels={"a": "1"}), "x", False, DEPLOYMENT, LATER)
    assert result["metadata"]["labels"] == {"a": "1"}
    assert result["spec"].get("template", {}).get("spec", {}).get("containers", []) == []


def test_an_item_no_longer_applied_goes_with_the_defaults_it_was_given() -> None:
    both = "{template: {spec: {containers: [{name: a, image: x}, {name: b, image: y}]}}}"
    live = apply(None, deployment(both), "x", False, DEPLOYMENT, NOW)
    for container in live["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "Always"
    only = "{template: {spec: {containers: [{name: b, image: y}]}}}"
    result = apply(live, deployment(only), "x", False, DEPLOYMENT, LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [
        {"name": "b", "image": "y", "imagePullPolicy": "Always"}
    ]


def test_an_item_that_only_its_applier_wanted_goes_with_what_an_update_set_in_it() -> None:
    both = CONTAINERS.replace("[", "[{name: other, image: y}, ")
    live = apply(None, deployment(both), "x", False, DEPLOYMENT, NOW)
    spec = copy.deepcopy(live["spec"])
    spec["template"]["spec"]["containers"][1]["workingDir"] = "/tmp"
    live = updated(live, {"spec": spec}, "editor")
    less = "{template: {spec: {containers: [{name: other, image: y}]}}}"
    result = apply(live, deployment(less), "x", False, DEPLOYMENT, LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [{"name": "other", "image": "y"}]
    assert set(owners(result)) == {("x", "Apply")}


def test_an_item_that_another_applier_wants_too_stays_with_what_that_one_wants() -> None:
    live = apply(None, deployment(CONTAINERS), "x", False, DEPLOYMENT, NOW)
    mine = "{template: {spec: {containers: [{name: app, workingDir: /tmp}]}}}"
    live = apply(live, deployment(mine), "y", False, DEPLOYMENT, NOW)
    result = apply(live, deployment("{replicas: 3}"), "x", False, DEPLOYMENT, LATER)
    assert result["spec"]["template"]["spec"]["containers"] == [{"name": "app", "workingDir": "/tmp"}]


def test_what_others_added_stays() -> None:
    live = apply(None, deployment("{replicas: 3}"), "x", False, DEPLOYMENT, NOW)
    live = updated(live, {"metadata": {"labels": {"by": "hand"}}}, "kubectl-label")
    result = apply(live, deployment("{replicas: 4}"), "x", False, DEPLOYMENT, LATER)
    assert result["metadata"]["labels"] == {"by": "hand"} and result["spec"] == {"replicas": 4}


def test_the_first_apply_to_an_untracked_object_conflicts_with_what_was_there() -> None:
    live = deployment("{replicas: 3, paused: true}", uid="u")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 4}"), "x", False, DEPLOYMENT, NOW)
    assert caught.value.message == (
        'Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .spec.replicas'
    )
    result = apply(live, deployment("{replicas: 3}"), "x", False, DEPLOYMENT, NOW)
    assert owners(result)[("before-first-apply", "Update")] == {"f:spec": {"f:paused": {}, "f:replicas": {}}}
    result = apply(result, deployment("{minReadySeconds: 1}"), "x", False, DEPLOYMENT, NOW)
    assert result["spec"] == {"replicas": 3, "paused": True, "minReadySeconds": 1}


def test_managed_fields_may_not_be_applied() -> None:
    config = deployment("{replicas: 3}", managedFields=[{"manager": "x"}])
    with pytest.raises(StatusError) as caught:
        apply(None, config, "x", False, DEPLOYMENT, NOW)
    assert (caught.value.code, caught.value.message) == (400, "metadata.managedFields must be nil")


def test_fields_of_another_endpoint_are_not_owned() -> None:
    config = {**deployment("{replicas: 3}"), "status": {"replicas": 9}}
    result = apply(None, config, "x", False, DEPLOYMENT, NOW, skip=STATUS)
    assert owners(result) == {("x", "Apply"): {"f:spec": {"f:replicas": {}}}}
    result = apply(result, config, "x", False, DEPLOYMENT, NOW, "status", frozenset({"spec"}))
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
    result = apply(start, deployment(spec(config)), "x", False, DEPLOYMENT, NOW)
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
    result = apply(live, config, "x", False, SERVICE, NOW)
    assert result["spec"]["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "name": "dns"}]
    assert owners(result)[("x", "Apply")]["f:spec"]["f:ports"] == {
        'k:{"port":53,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}}
    }


def test_sets_of_scalars_are_shared_value_by_value() -> None:
    live = apply(None, deployment("{}", finalizers=["a/a"]), "x", False, DEPLOYMENT, NOW)
    live = apply(live, deployment("{}", finalizers=["b/b"]), "y", False, DEPLOYMENT, NOW)
    assert live["metadata"]["finalizers"] == ["a/a", "b/b"]
    live = apply(live, deployment("{}"), "x", False, DEPLOYMENT, NOW)
    assert live["metadata"]["finalizers"] == ["b/b"]
    assert owners(live)[("y", "Apply")]["f:metadata"] == {"f:finalizers": {'v:"b/b"': {}}}


def test_atomic_parts_have_one_owner_as_a_whole() -> None:
    live = apply(None, deployment("{selector: {matchLabels: {a: b}}}"), "x", False, DEPLOYMENT, NOW)
    assert owners(live) == {("x", "Apply"): {"f:spec": {"f:selector": {}}}}
    with pytest.raises(ApplyConflict, match=r'conflict with "x": .spec.selector'):
        apply(live, deployment("{selector: {matchLabels: {c: d}}}"), "y", False, DEPLOYMENT, NOW)
    taken = apply(live, deployment("{selector: {matchLabels: {c: d}}}"), "y", True, DEPLOYMENT, NOW)
    assert taken["spec"]["selector"] == {"matchLabels": {"c": "d"}} and set(owners(taken)) == {("y", "Apply")}


def test_an_item_without_its_key_is_refused() -> None:
    config = deployment("{template: {spec: {containers: [{image: x}]}}}")
    with pytest.raises(StatusError) as caught:
        apply(None, config, "x", False, DEPLOYMENT, NOW)
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
        apply(live, config, "other", False, DEPLOYMENT, LATER)
    result = apply(live, config, "kubectl", False, DEPLOYMENT, LATER)
    assert result["spec"]["replicas"] == 4
    assert owners(result)[("kubectl", "Apply")] == {"f:spec": {"f:paused": {}, "f:replicas": {}}}
    annotation = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert json.loads(annotation)["spec"] == {"replicas": 4, "paused": True}


def test_the_annotation_of_client_side_apply_is_written_as_kubectl_writes_it() -> None:
    config = deployment("{template: {spec: {containers: [{name: a, command: [sh, -c, 'a <b && c']}]}}, replicas: 4}")
    result = apply(client_side("{replicas: 3}"), config, "kubectl", True, DEPLOYMENT, LATER)
    annotation = result["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    metadata = {**config["metadata"], "annotations": {}}
    plain = json.dumps({**config, "metadata": metadata}, sort_keys=True, separators=(",", ":"))
    assert annotation == plain.replace("a <b && c", "a \\u003cb \\u0026\\u0026 c") + "\n"


def test_but_not_what_somebody_else_changed_since() -> None:
    live = updated(client_side("{replicas: 3, paused: true}"), {"spec": {"replicas": 9, "paused": True}}, "hpa")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, deployment("{replicas: 4, paused: false}"), "kubectl", False, DEPLOYMENT, LATER)
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas'


# -- updates ----------------------------------------------------------------------------------------------------------
def test_an_update_owns_what_it_sets_containers_included() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "d",
            "uid": "u",
            "labels": {"a": "b"},
            "ownerReferences": [{"uid": "o", "name": "n"}],
        },
        "spec": {
            "containers": [{"name": "c", "env": [{"name": "E", "value": "v"}], "resources": {"limits": {"cpu": "1"}}}],
            "nodeSelector": {"x": "y"},
            "securityContext": {},
        },
    }
    (entry,) = track_update(None, pod, "kubectl-run", "", POD, NOW, STATUS)
    assert entry["fieldsV1"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:ownerReferences": {".": {}, 'k:{"uid":"o"}': {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:env": {".": {}, 'k:{"name":"E"}': {".": {}, "f:name": {}, "f:value": {}}},
                    "f:name": {},
                    "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
                }
            },
            "f:nodeSelector": {},
            "f:securityContext": {},
        },
    }
    assert (entry["operation"], entry["time"], "subresource" in entry) == ("Update", "2026-01-01T00:00:00Z", False)


def test_status_is_owned_through_its_subresource() -> None:
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]},
    }
    pod["metadata"]["managedFields"] = track_update(None, pod, "kubectl-run", "", POD, NOW, STATUS)
    new = updated(
        pod,
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
        "kubelet",
        POD,
        "status",
    )
    entry = new["metadata"]["managedFields"][1]
    assert (entry["manager"], entry["subresource"]) == ("kubelet", "status")
    assert entry["fieldsV1"] == {
        "f:status": {
            "f:conditions": {".": {}, 'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}},
            "f:phase": {},
        }
    }


def test_changing_a_field_moves_it_from_its_owner() -> None:
    live = updated(deployment("{}"), {}, "nobody")
    first = deployment("{replicas: 3, paused: true}")
    first["metadata"]["managedFields"] = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    second = updated(first, {"spec": {"replicas": 4, "paused": True}}, "b", now=LATER)
    assert owners(second) == {
        ("a", "Update"): {"f:spec": {"f:paused": {}}},
        ("b", "Update"): {"f:spec": {"f:replicas": {}}},
    }
    assert [m["time"] for m in second["metadata"]["managedFields"]] == ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"]
    assert live["metadata"].get("managedFields") == []


def test_removed_fields_have_no_owner() -> None:
    first = deployment("{replicas: 3, paused: true}", labels={"a": "b"})
    first["metadata"]["managedFields"] = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    second = copy.deepcopy(first)
    del second["spec"]["paused"], second["metadata"]["labels"]
    second["metadata"]["annotations"] = {"c": "d"}
    second["metadata"]["managedFields"] = track_update(first, second, "b", "", DEPLOYMENT, NOW)
    assert owners(second) == {
        ("a", "Update"): {"f:spec": {"f:replicas": {}}},
        ("b", "Update"): {"f:metadata": {"f:annotations": {".": {}, "f:c": {}}}},
    }
    third = updated(second, {"spec": {}}, "b")
    assert set(owners(third)) == {("b", "Update")}


def test_a_write_that_changes_nothing_leaves_the_entries_as_they_are() -> None:
    first = deployment("{replicas: 3}")
    first["metadata"]["managedFields"] = entries = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    again = copy.deepcopy(first)
    again["metadata"] |= {"resourceVersion": "9", "generation": 2, "uid": "x"}
    assert track_update(first, again, "b", "", DEPLOYMENT, LATER) == entries


def test_an_update_by_the_owner_moves_only_the_time() -> None:
    first = deployment("{replicas: 3}")
    first["metadata"]["managedFields"] = (before,) = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    (after,) = updated(first, {"spec": {"replicas": 4}}, "a", now=LATER)["metadata"]["managedFields"]
    assert after == {**before, "time": "2026-01-01T00:01:00Z"}


def test_the_order_of_items_belongs_to_nobody() -> None:
    first = deployment("{template: {spec: {containers: [{name: a}, {name: b}]}}}")
    first["metadata"]["managedFields"] = entries = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    spec = yaml.safe_load("{template: {spec: {containers: [{name: b}, {name: a}]}}}")
    assert track_update(first, {**first, "spec": spec}, "b", "", DEPLOYMENT, LATER) == entries


def test_clients_may_rewrite_or_reset_the_entries_but_not_lose_them() -> None:
    first = deployment("{replicas: 3}", uid="u")
    first["metadata"]["managedFields"] = (entry,) = track_update(None, first, "a", "", DEPLOYMENT, NOW)
    unaware = copy.deepcopy(first)
    del unaware["metadata"]["managedFields"]
    assert track_update(first, unaware, "b", "", DEPLOYMENT, NOW) == [entry]
    renamed = copy.deepcopy(first)
    renamed["metadata"]["managedFields"][0]["manager"] = "new"
    assert track_update(first, renamed, "b", "", DEPLOYMENT, NOW) == [{**entry, "manager": "new"}]
    assert track_update(first, renamed, "b", "status", DEPLOYMENT, NOW) == [entry]
    reset = copy.deepcopy(first)
    reset["metadata"]["managedFields"] = [{}]
    assert track_update(first, reset, "b", "", DEPLOYMENT, NOW) == []
    garbage = copy.deepcopy(first)
    garbage["metadata"]["managedFields"] = [{"manager": "x", "operation": "Guess", "fieldsV1": {}}]
    assert track_update(first, garbage, "b", "", DEPLOYMENT, NOW) == [entry]


def test_an_object_that_is_not_tracked_stays_so_until_it_is_applied() -> None:
    first = deployment("{replicas: 3}", uid="u")
    assert track_update(first, {**first, "spec": {"replicas": 4}}, "b", "", DEPLOYMENT, NOW) == []


def test_there_are_at_most_ten_update_managers_and_the_oldest_become_ancient() -> None:
    live = apply(None, deployment("{paused: true}"), "applier", False, DEPLOYMENT, NOW)
    for i in range(14):
        label = {**live["metadata"].get("labels", {}), f"l{i}": "x"}
        live = updated(live, {"metadata": {"labels": label}}, f"m{i:02}", now=NOW + timedelta(minutes=i))
    entries = live["metadata"]["managedFields"]
    assert [e["manager"] for e in entries] == ["applier", "ancient-changes", *(f"m{i:02}" for i in range(5, 14))]
    ancient = entries[1]
    assert ancient["time"] == "2026-01-01T00:04:00Z"
    assert ancient["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, **{f"f:l{i}": {} for i in range(5)}}}}


# -- custom resources -------------------------------------------------------------------------------------------------
WIDGET = of_custom(
    json.dumps(
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
    result = apply(None, config, "x", False, WIDGET, NOW)
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
    merged = apply(result, second, "y", False, WIDGET, NOW)["spec"]
    assert merged["parts"] == [{"id": 1}, {"id": 1, "side": "right"}] and merged["names"] == ["n", "m"]


def test_free_keys_and_binary_data_of_config_maps_are_owned_one_by_one() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
    live = apply(None, config, "x", False, CONFIG_MAP, NOW)
    changed = {**live, "data": {"a": "1", "b": "3", "c": "4"}}
    changed["metadata"] = {**live["metadata"], "managedFields": track_update(live, changed, "y", "", CONFIG_MAP, NOW)}
    assert owners(changed) == {
        ("x", "Apply"): {"f:data": {"f:a": {}}},
        ("y", "Update"): {"f:data": {"f:b": {}, "f:c": {}}},
    }
    assert apply(changed, {**config, "data": {"d": "5"}}, "x", False, CONFIG_MAP, NOW)["data"] == {
        "b": "3",
        "c": "4",
        "d": "5",
    }
