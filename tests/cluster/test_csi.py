"""A CSI driver in a cluster: a claim of its class is provisioned, attached, written to, grown, and gone when it is deleted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import NODE, Cluster, eventually
from tests.support.kube import events
from tests.support.pods import apply, container, execute, pod, wait_running

NAME = "disk.csi.test"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def driver(shared: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The driver with its cluster's side, as a process of its own; its calls are in the file, a line each."""
    calls = tmp_path / "calls"
    registry = shared.prefix / "var/lib/kubelet/plugins_registry"
    argv = [sys.executable, "-m", "tests.support.csi_driver", "--name", NAME, "--data", str(shared.prefix / "csi")]
    argv += ["--registry", str(registry), "--node", NODE, "--kubeconfig", str(shared.kubeconfig)]
    about = {"kind": "CSIDriver", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": NAME}}
    about["spec"] = {"attachRequired": True, "podInfoOnMount": True, "fsGroupPolicy": "File"}  # type: ignore[assignment]
    storage = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "disks"},
        "provisioner": NAME,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    apply(shared, "default", about, storage)
    with calls.open("w") as out:
        process = subprocess.Popen(
            [*shared.host.enter, *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            eventually(lambda: shared.get("csinode", NODE)["spec"]["drivers"], "the driver is registered")
            yield calls
        finally:
            process.terminate()
            process.wait(30)
            shared.kubectl("delete", "storageclass/disks", f"csidriver/{NAME}", check=False)


def calls_of(calls: Path, rpc: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in calls.read_text().splitlines() if line.startswith("{")]
    return [call["request"] for call in found if call["rpc"] == rpc]


def test_a_claim_of_a_drivers_class_is_provisioned_attached_grown_and_gone(
    shared: Cluster, ns: str, driver: Path
) -> None:
    assert NAME in shared.kubectl("get", "csidrivers").stdout

    def known() -> bool:
        node = shared.get("node", NODE)["metadata"]
        assert json.loads(node["annotations"]["csi.volume.kubernetes.io/nodeid"]) == {NAME: NODE}
        return bool(node["labels"][f"topology.{NAME}/node"] == NODE)

    eventually(known, "the node says what it is to the driver")

    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "disks",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    web = pod("web", container(**mounted), volumes=volumes, securityContext={"fsGroup": 2000})
    apply(shared, ns, claim, web)
    wait_running(shared, ns, "web")
    execute(shared, ns, "web", "echo kept > /data/file")
    assert execute(shared, ns, "web", "stat -c %g /data/file").strip() == "2000"
    volume = shared.get("pvc", "data", "-n", ns)["spec"]["volumeName"]
    (attachment,) = shared.get("volumeattachments")["items"]
    assert attachment["spec"]["attacher"] == NAME and attachment["spec"]["nodeName"] == NODE
    assert attachment["spec"]["source"] == {"persistentVolumeName": volume} and attachment["status"]["attached"]
    status = shared.get("node", NODE)["status"]
    assert status["volumesInUse"] == [f"kubernetes.io/csi/{NAME}^{volume}"]

    def is_reported(name: str, reason: str) -> bool:
        return reason in [event["reason"] for event in events(shared, ns, name)]

    eventually(lambda: is_reported("web", "SuccessfulAttachVolume"), "the event of the attachment")
    assert calls_of(driver, "NodePublishVolume")[0]["volumeContext"]["csi.storage.k8s.io/pod.name"] == "web"

    def volume_statistics() -> Any:
        pods = json.loads(shared.kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/stats/summary").stdout)["pods"]
        found = next(p for p in pods if p["podRef"]["name"] == "web" and p["podRef"]["namespace"] == ns)
        return next((v for v in found.get("volume", []) if v.get("pvcRef", {}).get("name") == "data"), None)

    used = eventually(volume_statistics, "the driver's statistics are in the summary", 90)
    assert used["name"] == "data" and used["pvcRef"]["namespace"] == ns
    assert (used["capacityBytes"], used["usedBytes"], used["inodesUsed"]) == (1 << 30, 3 << 20, 7)

    grow = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    shared.kubectl("patch", "pvc", "data", "-n", ns, "-p", json.dumps(grow))
    eventually(lambda: shared.get("pv", volume)["spec"]["capacity"]["storage"] == "2Gi", "the driver made it larger")
    # The agent looks once a minute whether a volume grew, and at once where its pod changes.
    shared.kubectl("annotate", "pod", "web", "-n", ns, "look=now")
    eventually(
        lambda: shared.get("pvc", "data", "-n", ns)["status"]["capacity"]["storage"] == "2Gi",
        "the claim has grown while its pod runs",
        120,
    )
    eventually(lambda: is_reported("data", "ExternalExpanding"), "the event of the growth")
    eventually(lambda: not shared.get("pvc", "data", "-n", ns)["status"].get("conditions"), "nothing is left to do")

    # Another pod finds the data; the agent is killed in between.
    shared.kubectl("delete", "pod", "web", "-n", ns)
    shared.kill("agent")
    apply(shared, ns, pod("next", container(**mounted), volumes=volumes))
    wait_running(shared, ns, "next")
    assert execute(shared, ns, "next", "cat /data/file") == "kept\n"

    shared.kubectl("delete", "pod", "next", "-n", ns)
    shared.kubectl("delete", "pvc", "data", "-n", ns)
    eventually(lambda: not shared.get("volumeattachments")["items"], "the volume is detached")
    eventually(lambda: shared.kubectl("get", "pv", volume, check=False).returncode != 0, "the volume is deleted")
    assert "volumesInUse" not in shared.get("node", NODE)["status"]
    mounts = Path("/proc/self/mountinfo").read_text()
    assert str(shared.prefix / "var/lib/kubelet/plugins") not in mounts
