"""kubectl's commands that need a machine: a whole manifest starts, is debugged, copied to and from, and drained."""

from __future__ import annotations

from pathlib import Path

from tests.support import images
from tests.support.cluster import BUSYBOX, NODE, Cluster, eventually
from tests.support.kube import wait_phase

MANIFEST = (Path(images.__file__).parent / "manifest.yaml").read_text()


def test_a_large_manifest_comes_up_is_rolled_and_goes(shared: Cluster, ns: str) -> None:
    created = shared.kubectl("apply", "-n", ns, "-f", "-", input=MANIFEST).stdout
    assert created.count(" created\n") == MANIFEST.count("\nkind: ")
    for workload in ("deployment/big", "statefulset/big", "daemonset/big"):
        shared.kubectl("rollout", "status", workload, "-n", ns, "--timeout=120s")
    waited = shared.kubectl("wait", "--for=condition=complete", "job/big", "-n", ns, "--timeout=120s").stdout
    assert waited == "job.batch/big condition met\n"
    shared.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=1", "deployment/big", "-n", ns, "--timeout=120s")
    shared.kubectl("apply", "--server-side", "-n", ns, "-f", "-", input=MANIFEST)
    assert shared.get("job", "big", "-n", ns)["status"]["succeeded"] == 1, (
        "an apply of what was applied changes nothing"
    )
    shared.kubectl("rollout", "restart", "deployment/big", "-n", ns)
    shared.kubectl("rollout", "status", "deployment/big", "-n", ns, "--timeout=120s")
    assert "2" in shared.kubectl("rollout", "history", "deployment/big", "-n", ns).stdout.split()
    pods = shared.get("pods", "-n", ns, "-l", "app=big")["items"]
    [pod] = [each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]]
    shared.kubectl("delete", "deployment", "big", "-n", ns, "--cascade=orphan")
    assert pod in shared.kubectl("get", "pods", "-n", ns, "-l", "app=big", "-o", "name").stdout
    shared.kubectl("apply", "-n", ns, "-f", "-", input=MANIFEST)
    shared.kubectl("delete", "deployment", "big", "-n", ns, "--cascade=foreground", "--timeout=120s")
    assert shared.get("replicasets,pods", "-n", ns, "-l", "app=big")["items"] == []


def test_pods_and_nodes_are_debugged_and_files_copied(shared: Cluster, ns: str, tmp_path: Path) -> None:
    script = "trap exit TERM; while :; do sleep 0.2; done"
    shared.kubectl("run", "box", f"--image={BUSYBOX}", "-n", ns, "--", "sh", "-c", script)
    wait_phase(shared, ns, "box", "Running")
    say = ("--", "sh", "-c", "ps; echo seen")
    beside = shared.kubectl(
        "debug", "box", "-n", ns, f"--image={BUSYBOX}", "--target=box", "-i", "--profile=general", *say
    )
    assert "sleep 0.2" in beside.stdout and beside.stdout.endswith("seen\n"), "it sees the other container's processes"
    look = ("--", "sh", "-c", "ls /host")
    node = shared.kubectl("debug", f"node/{NODE}", "-n", ns, f"--image={BUSYBOX}", "-i", "--profile=sysadmin", *look)
    assert "etc\n" in node.stdout
    shared.kubectl(
        *("debug", "box", "-n", ns, f"--image={BUSYBOX}", "--copy-to=copy", "--profile=general", "--", "sleep", "1")
    )
    copy = shared.get("pod", "copy", "-n", ns)["spec"]["containers"]
    assert len(copy) == 2 and copy[0]["name"] == "box"
    (tmp_path / "out").write_text("carried\n")
    shared.kubectl("cp", str(tmp_path / "out"), f"{ns}/box:/tmp/file", "-c", "box")
    shared.kubectl("cp", f"{ns}/box:/tmp/file", str(tmp_path / "back"), "-c", "box")
    assert (tmp_path / "back").read_text() == "carried\n"
    explained = shared.kubectl("explain", "pods.containers.usage", "--api-version=metrics.k8s.io/v1beta1").stdout
    assert "usage <map[string]Quantity>" in explained

    def measured() -> bool:
        return "box" in shared.kubectl("top", "pods", "-n", ns, "--containers", check=False).stdout

    eventually(measured, "metrics of the pod", 60)
