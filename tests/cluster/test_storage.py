"""A running cluster's storage: saved and restored, moved from SQLite to etcd, and looked at with etcdctl; containers run on."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.cluster import NODE, Cluster, cluster, eventually
from tests.support.etcd import ETCDCTL, Etcd, needs_etcd, needs_etcdctl
from tests.support.kube import container_ids, wait_pods, web

pytestmark = [needs_etcd, needs_etcdctl]


def node_ready(made: Cluster) -> bool:
    conditions = made.get("node", NODE)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def wait_etcd(made: Cluster, store: Etcd) -> None:
    url = f"{store.servers[0]}/health"
    eventually(lambda: '"true"' in made.host.run("curl", "-s", url, check=False).stdout, "etcd is healthy")


def test_a_cluster_is_saved_restored_and_moved_to_etcd_while_its_containers_run_on(tmp_path: Path) -> None:
    with cluster(f"wherry-s{os.getpid()}") as made:
        address = web(made, "default", 2)
        before = container_ids(made)
        revision = int(made.get("deployment", "web")["metadata"]["resourceVersion"])

        # The move, with kubectl and the node none the wiser.
        store = Etcd(tmp_path / "etcd", members=1, tls=False)
        etcd = made.host.popen(*store.members[0].argv)
        try:
            wait_etcd(made, store)
            moved = made.wherry("store", "migrate", "--etcd-servers", store.servers[0])
            assert "to etcd" in moved.stdout
            assert made.kubectl("get", "--raw", "/readyz").stdout == "ok"
            assert made.http(address)
            deployment = made.get("deployment", "web")
            assert int(deployment["metadata"]["resourceVersion"]) > revision
            argv = (str(ETCDCTL), "--endpoints", store.servers[0], "get", "/registry/deployments/default/web")
            shown = made.host.run(*argv, "--print-value-only", env={"ETCDCTL_API": "3"}).stdout
            assert json.loads(shown)["metadata"]["uid"] == deployment["metadata"]["uid"]
            eventually(lambda: node_ready(made), "the node is Ready", 60)
            wait_pods(made, "default", "app=web", 2)
            assert container_ids(made) == before

            # What is deleted after a snapshot is there again after its restore.
            made.kubectl("create", "configmap", "kept", "--from-literal=a=1")
            saved = made.wherry("snapshot", "save").stdout.split(":")[0]
            made.kubectl("delete", "configmap", "kept")
            made.kubectl("create", "configmap", "later")
            made.wherry("snapshot", "restore", saved, "--yes")
            assert made.get("configmap", "kept")["data"] == {"a": "1"}
            assert made.kubectl("get", "configmap", "later", check=False).returncode == 1
            eventually(lambda: node_ready(made), "the node is Ready", 60)
            wait_pods(made, "default", "app=web", 2)
            assert container_ids(made) == before
            assert saved in made.wherry("snapshot", "list").stdout

            # And it works: controllers, scheduler and node go on.
            made.kubectl("scale", "deployment", "web", "--replicas=3")
            wait_pods(made, "default", "app=web", 3)
        finally:
            made.wherry("down", check=False)
            etcd.kill()
            etcd.wait()


def test_snapshots_are_taken_on_a_schedule_that_was_changed_without_a_restart(tmp_path: Path) -> None:
    with cluster(f"wherry-p{os.getpid()}") as made:
        assert "the next one at" in made.wherry("status").stdout  # SQLite's default
        before = made.pid("control")
        made.up("--snapshot-schedule", "* * * * *", "--snapshot-retention", "1")
        assert made.pid("control") == before

        def scheduled() -> list[dict[str, object]]:
            rows = json.loads(made.wherry("snapshot", "list", "-o", "json").stdout)
            return [row for row in rows if row["name"].startswith(f"scheduled-{NODE}-")]

        eventually(scheduled, "a scheduled snapshot", 120)
        (row,) = scheduled()
        mine = made.wherry("snapshot", "save", "--name", "mine").stdout.split(":")[0]
        status = made.wherry("status").stdout
        assert f"({row['path']}, " in status and "FAILED" not in status
        metrics = made.kubectl("get", "--raw", "/metrics").stdout.splitlines()
        shown = dict(line.rsplit(" ", 1) for line in metrics if line.startswith("wherry_snapshot"))
        assert float(shown["wherry_snapshot_last_size_bytes"]) == row["size"]
        assert float(shown["wherry_snapshot_failed_attempts"]) == 0
        assert float(shown['wherry_snapshots_total{result="success"}']) >= 1
        made.up("--snapshot-schedule", "off")
        assert "snapshots:" not in made.wherry("status").stdout
        assert "deleted" in made.wherry("snapshot", "prune", "--keep", "0").stdout
        assert not scheduled()
        made.wherry("snapshot", "delete", Path(mine).name)
        assert "snapshot /" in made.log("control")
