"""kubectl top and autoscaling with real CPU load."""

from __future__ import annotations

from tests.cluster.test_workloads import apply, template
from tests.support.cluster import Cluster, eventually
from tests.support.kube import condition, events, wait_pods

BUSY = "while :; do test -e /tmp/rest && sleep 1; done"


def test_load_makes_a_deployment_grow_and_rest_makes_it_shrink(shared: Cluster, ns: str) -> None:
    # Each pod takes all that it is let have, which is more than what it asks for also on a machine that is busy.
    container = {"resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}}
    pods = template("busy", BUSY, container=container)
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "busy"}}, "template": pods}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"}, "spec": spec}
    apply(shared, ns, deployment)
    wait_pods(shared, ns, "app=busy", 1)

    def measured() -> bool:
        lines = shared.kubectl("top", "pods", "-n", ns, "--no-headers", check=False).stdout.splitlines()
        return bool(lines) and int(lines[0].split()[1].removesuffix("m")) > 30

    eventually(measured, "kubectl top shows the load", 60)
    nodes = shared.kubectl("top", "nodes", "--no-headers").stdout.split()
    assert nodes[0] == shared.node and int(nodes[1].removesuffix("m")) > 30

    shared.kubectl("autoscale", "deployment", "busy", "--min=1", "--max=2", "--cpu-percent=50", "-n", ns)
    down = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}}
    shared.kubectl("patch", "hpa", "busy", "-n", ns, "--type=merge", "-p", str(down).replace("'", '"'))
    grown = wait_pods(shared, ns, "app=busy", 2)
    found = eventually(
        lambda: [e for e in events(shared, ns, "busy") if e["reason"] == "SuccessfulRescale"], "the event"
    )
    assert found[0]["message"] == "New size: 2; reason: cpu resource utilization (percentage of request) above target"
    for pod in grown:
        shared.kubectl("exec", pod["metadata"]["name"], "-n", ns, "--", "touch", "/tmp/rest")
    eventually(lambda: shared.get("deployment", "busy", "-n", ns)["spec"]["replicas"] == 1, "it shrinks", 150)
    hpa = shared.get("hpa", "busy", "-n", ns)
    assert condition(hpa, "ScalingActive")["reason"] == "ValidMetricFound"
    line = shared.kubectl("get", "hpa", "busy", "-n", ns, "--no-headers").stdout
    assert line.split()[:2] == ["busy", "Deployment/busy"] and "cpu:" in line
