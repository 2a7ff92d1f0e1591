"""Clients that attach to a container and do not read: the container ends when its grace period is over."""

from __future__ import annotations

import subprocess

from tests.support.cluster import BUSYBOX, Cluster, eventually
from tests.support.kube import wait_phase

NOISY = "trap 'exit 0' TERM; yes 0123456789012345678901234567890123456789 & wait"


def attach_unread(cluster: Cluster, ns: str, name: str) -> subprocess.Popen[str]:
    """Attach to a pod and read only what shows that the session is open."""
    process = cluster.host.popen(*cluster.kubectl_argv("attach", name, "-n", ns))
    assert process.stdout is not None
    assert any("0123456789" in process.stdout.readline() for _ in range(100))
    return process


def log_bytes(cluster: Cluster, ns: str, name: str) -> int:
    folders = (cluster.prefix / "var/log/pods").glob(f"{ns}_{name}_*/{name}/0.log")
    return sum(file.stat().st_size for file in folders)


def test_a_pod_whose_attached_client_does_not_read_is_deleted_after_its_grace_period(shared: Cluster, ns: str) -> None:
    shared.kubectl("run", "noisy", f"--image={BUSYBOX}", "-n", ns, "--", "sh", "-c", NOISY)
    wait_phase(shared, ns, "noisy", "Running")
    process = attach_unread(shared, ns, "noisy")
    try:
        sizes = list[int]()

        def blocked() -> bool:
            sizes.append(log_bytes(shared, ns, "noisy"))
            return len(sizes) > 10 and len(set(sizes[-10:])) == 1

        eventually(blocked, "the client blocks the container's output")
        shared.kubectl("delete", "pod", "noisy", "-n", ns, "--grace-period=1", "--wait=false")

        def gone() -> bool:
            return not shared.kubectl("get", "pod", "noisy", "-n", ns, "--ignore-not-found", "-o", "name").stdout

        eventually(gone, "the pod is gone", 30)
        assert process.poll() is None, "the client has ended by itself"
    finally:
        process.kill()
        process.wait()
