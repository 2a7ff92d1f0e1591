"""Field ownership after updates: fields that an update acquires, moves and loses, and managed fields sent by clients."""

from __future__ import annotations

import copy
from datetime import timedelta

import yaml

from control.patch.apply import apply, track_update
from kube.json_object import Object
from tests.support.field_ownership import DEPLOYMENT, LATER, NOW, POD, STATUS, deployment, owners, updated


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
    live = apply(None, deployment("{paused: true}"), "applier", force=False, schema=DEPLOYMENT, now=NOW)
    for i in range(14):
        label = {**live["metadata"].get("labels", {}), f"l{i}": "x"}
        live = updated(live, {"metadata": {"labels": label}}, f"m{i:02}", now=NOW + timedelta(minutes=i))
    entries = live["metadata"]["managedFields"]
    assert [e["manager"] for e in entries] == ["applier", "ancient-changes", *(f"m{i:02}" for i in range(5, 14))]
    ancient = entries[1]
    assert ancient["time"] == "2026-01-01T00:04:00Z"
    assert ancient["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, **{f"f:l{i}": {} for i in range(5)}}}}
