"""Objects of every new cluster: later clusters of a process begin with those that the first one created."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from control.controllers.identities import ACCOUNTS
from wherry.testing import Cluster, ClusterError, default_objects

KINDS = (
    "clusterroles",
    "clusterrolebindings",
    "flowschemas",
    "prioritylevelconfigurations",
    "apiservices",
    "priorityclasses",
)
START = datetime(2031, 5, 6, tzinfo=UTC)


def identities(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Return the UIDs of the objects of each kind by their names."""
    return {kind: {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.list(kind)} for kind in KINDS}


def content(cluster: Cluster, kind: str) -> list[Any]:
    """Return the objects of a kind without metadata that differ from one cluster to the next."""
    found = cluster.list(kind)
    for each in found:
        each["metadata"] = {key: each["metadata"].get(key) for key in ("name", "labels", "annotations")}
        for condition in each.get("status", {}).get("conditions", ()):
            condition.pop("lastTransitionTime", None)
    return found


def test_a_later_cluster_has_the_objects_of_the_first_one_with_uids_and_times_of_its_own() -> None:
    with Cluster(nodes=0) as first:
        before, contents = identities(first), {kind: content(first, kind) for kind in KINDS}
    assert default_objects._kept
    with Cluster(nodes=0, time="virtual", start=START) as second:
        after = identities(second)
        assert {kind: content(second, kind) for kind in KINDS} == contents
        role = second.get("clusterrole/view")["metadata"]
    uids = {uid for found in (before, after) for names in found.values() for uid in names.values()}
    assert len(uids) == 2 * sum(map(len, before.values()))
    assert role["creationTimestamp"].startswith(
        "2031-05-05T23:59"
    )  # the start is over at the beginning of virtual time
    assert all(each["time"].startswith("2031-05-0") for each in role["managedFields"])


def test_what_a_test_changes_is_not_in_the_next_cluster() -> None:
    with Cluster(nodes=0) as first:
        first.patch("clusterrole/view", {"metadata": {"labels": {"mine": "yes"}}})
        first.create(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "mine"}}
        )
    with Cluster(nodes=0) as second:
        assert "mine" not in second.get("clusterrole/view")["metadata"]["labels"]
        with pytest.raises(ClusterError):
            second.get("clusterrole/mine")


def test_a_server_completes_kept_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(nodes=0) as first:
        before = {kind: set(names) for kind, names in identities(first).items()}
    monkeypatch.setattr(default_objects, "_kept", default_objects._kept[::2])
    with Cluster(nodes=0) as second:
        assert {kind: set(names) for kind, names in identities(second).items()} == before


def test_later_clusters_begin_with_accounts_that_the_first_one_creates_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default_objects, "_kept", [])
    missing, most = set(ACCOUNTS.values()), 20
    while missing and most:
        with Cluster(nodes=0):
            missing -= {item.key.rpartition("/")[2] for item in default_objects._kept}
        most -= 1
    assert not missing
