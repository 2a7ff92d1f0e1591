"""`wherry up` restarts a containerd that runs with another configuration; pods keep running."""

from __future__ import annotations

from tests.support.cluster import BUSYBOX, NODE, Cluster, eventually
from tests.support.kube import wait_phase

RESTART = '"io.containerd.internal.v1.restart", "io.containerd.monitor.container.v1.restart", '


def restart_monitors(cluster: Cluster) -> list[str]:
    rows = [line.split() for line in cluster.ctr("plugins", "ls").splitlines()]
    return [row[0] for row in rows if len(row) > 1 and row[1] == "restart"]


def test_an_upgrade_disables_the_restart_monitor_of_a_containerd_that_runs(shared: Cluster, ns: str) -> None:
    shared.kubectl("run", "box", f"--image={BUSYBOX}", "-n", ns, "--", "sleep", "100000")
    wait_phase(shared, ns, "box", "Running")
    file = shared.prefix / "etc/wherry/containerd.toml"
    ours = file.read_text()
    assert RESTART in ours and not restart_monitors(shared)
    file.write_text(ours.replace(RESTART, ""))  # as an older version wrote it
    try:
        shared.kill("containerd")
        assert eventually(lambda: restart_monitors(shared), "the plugin of an older version")
        old = shared.pid("containerd")
        shared.up()
        assert shared.pid("containerd") != old and file.read_text() == ours and not restart_monitors(shared)
        running = shared.pid("containerd")
        shared.up()
        assert shared.pid("containerd") == running, "it runs with this configuration"
    finally:
        file.write_text(ours)
    pod = shared.get("pod", "box", "-n", ns)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    node = shared.get("node", NODE)
    assert next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready") == "True"
