"""Small helpers over kubectl that several cluster tests share."""

from __future__ import annotations

from typing import Any

from tests.support.cluster import WEB_IMAGE, Cluster, eventually


def ready_pods(cluster: Cluster, ns: str, selector: str) -> list[dict[str, Any]]:
    """Return the Ready pods that a label selector finds, without those that are being deleted."""
    found = cluster.get("pods", "-n", ns, "-l", selector)["items"]
    return [pod for pod in found if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def condition(obj: dict[str, Any], type_: str) -> dict[str, Any]:
    found = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] == type_]
    return found[0] if found else {}


def web(cluster: Cluster, ns: str, replicas: int = 3, name: str = "web") -> str:
    """Create a Deployment and its Service as the README does; wait until all pods are Ready; return the ClusterIP."""
    cluster.kubectl("create", "deployment", name, f"--image={WEB_IMAGE}", f"--replicas={replicas}", "-n", ns)
    cluster.kubectl("expose", "deployment", name, "--port=80", "-n", ns)
    wait_pods(cluster, ns, f"app={name}", replicas)
    address: str = cluster.get("service", name, "-n", ns)["spec"]["clusterIP"]
    return address


def wait_pods(cluster: Cluster, ns: str, selector: str, count: int) -> list[dict[str, Any]]:
    def enough() -> list[dict[str, Any]] | None:
        found = ready_pods(cluster, ns, selector)
        assert len(found) == count, [(p["metadata"]["name"], p["status"]) for p in found]
        return found

    return eventually(enough, f"{count} Ready pods of {selector}", 120)


def pod_phase(cluster: Cluster, ns: str, name: str) -> str:
    phase: str = cluster.get("pod", name, "-n", ns)["status"]["phase"]
    return phase


def wait_phase(cluster: Cluster, ns: str, name: str, phase: str) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        pod: dict[str, Any] = cluster.get("pod", name, "-n", ns)
        assert pod["status"].get("phase") == phase, pod["status"]
        return pod

    return eventually(reached, f"pod {name} is {phase}", 120)


def container_ids(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Return "namespace/pod/container" -> (container ID, restart count) of everything that runs."""
    found = {}
    for pod in cluster.get("pods", "-A")["items"]:
        for status in pod["status"].get("containerStatuses", ()):
            if "running" in status.get("state", {}):
                key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{status['name']}"
                found[key] = (status["containerID"], status["restartCount"])
    return found


def events(cluster: Cluster, ns: str, name: str) -> list[dict[str, Any]]:
    """Return the events about one object, oldest first."""
    found = cluster.get("events", "-n", ns, f"--field-selector=involvedObject.name={name}")["items"]
    return sorted(found, key=lambda e: int(e["metadata"]["resourceVersion"]))
