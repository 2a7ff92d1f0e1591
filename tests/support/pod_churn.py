"""Pods of every kind that come and go, and what pods leave on a machine while they live."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster

_BOOKKEEPING = {"lock", "last_reserved_ip.0"}


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}, {"name": "words", "mountPath": "/words"}]
    container = {"name": "c", "image": BUSYBOX, "command": ["sh", "-c", script], "volumeMounts": mounts}
    volumes = [{"name": "scratch", "emptyDir": {"medium": "Memory"}}, {"name": "words", "configMap": {"name": "words"}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"churn": "yes"}},
        "spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1, **spec},
    }


def batch(number: int) -> list[dict[str, Any]]:
    """Pods that run, end, fail, cannot start, wait in their init container, or have no network of their own."""
    crash = [{"name": "i", "image": BUSYBOX, "command": ["false"]}]
    return [
        pod(f"runs-{number}", "sleep 1000"),
        pod(f"ends-{number}", "true", restartPolicy="Never"),
        pod(f"crashes-{number}", "exit 1"),
        pod(f"stuck-{number}", "true", initContainers=crash),
        pod(f"host-{number}", "sleep 1000", hostNetwork=True),
        {**pod(f"nowhere-{number}", "true"), "spec": {"containers": [{"name": "c", "image": "127.0.0.1:9/none:1"}]}},
    ]


def traces(cluster: Cluster) -> set[str]:
    """List what pods leave on a machine while they live: mounts, cgroups, links, addresses, folders, logs, processes.

    The bridge and the cgroups above those of the pods come with the first pod, and stay.
    """
    prefix = str(cluster.prefix)
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines())
    found = {f"mount {point}" for point in mounted if point.startswith(prefix)}
    for root in Path("/sys/fs/cgroup").glob(f"*/wherry-tmp-{cluster.prefix.name}"):
        found |= {f"cgroup {path}" for path in root.rglob("kubepods/**/pod*/") if path.is_dir()}
    links = cluster.host.run("ip", "-brief", "link").stdout.splitlines()
    found |= {f"link {line.split()[0].partition('@')[0]}" for line in links if not line.startswith("cni0")}
    for folder in ("lib/kubelet/pods", "log/pods", "log/containers", "lib/cni/networks/wherry", "lib/cni/results"):
        found |= {f"file {p}" for p in (cluster.prefix / "var" / folder).glob("*") if p.name not in _BOOKKEEPING}
    found |= {f"container {name}" for name in cluster.ctr("containers", "ls", "-q").split()}
    found |= {f"task {name}" for name in cluster.ctr("tasks", "ls", "-q").split()}
    snapshots = [line.split() for line in cluster.ctr("snapshots", "ls").splitlines()]
    found |= {f"snapshot {line[0]}" for line in snapshots if line and line[-1] == "Active"}
    rules = cluster.host.run("iptables-save", "-t", "nat").stdout
    found |= {f"chain {name}" for name in re.findall(r"^:(KUBE-\S+)", rules, re.MULTILINE)}
    return found
