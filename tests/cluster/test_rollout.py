"""Scaling and rolling updates, seen through kubectl and through requests that must not fail."""

from __future__ import annotations

import re

from tests.support.cluster import WEB2_IMAGE, WEB_IMAGE, Cluster, eventually
from tests.support.kube import wait_pods, web
from tests.support.load import Load


def test_scaling_up_and_down(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    shared.kubectl("scale", "deployment", "web", "--replicas=4", "-n", ns)
    wait_pods(shared, ns, "app=web", 4)
    shared.kubectl("scale", "deployment", "web", "--replicas=1", "-n", ns)
    eventually(lambda: len(shared.get("pods", "-n", ns, "-l", "app=web")["items"]) == 1, "one pod is left")
    wait_pods(shared, ns, "app=web", 1)


def test_a_rolling_update_loses_no_request_and_can_be_undone(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 3)
    patch = """{"spec":{"template":{"spec":{"containers":[{"name":"web","readinessProbe":{"httpGet":{"path":"/","port":80},
      "periodSeconds":1,"timeoutSeconds":10},"lifecycle":{"preStop":{"sleep":{"seconds":3}}}}]}}}}"""
    shared.kubectl("patch", "deployment", "web", "-n", ns, "-p", patch)
    shared.kubectl("rollout", "status", "deployment/web", "-n", ns, "--timeout=120s")
    # The pods of the first revision end at once, and the rollout is complete before they have.
    eventually(lambda: len(shared.get("pods", "-n", ns)["items"]) == 3, "the first revision's pods are gone")
    answered = r"web-\S+ v[12]"
    eventually(lambda: all(re.fullmatch(answered, shared.http(address)) for _ in range(10)), "no request goes to them")
    with Load(shared, address) as load:
        shared.kubectl("set", "image", "deployment/web", f"web={WEB2_IMAGE}", "-n", ns)
        done = shared.kubectl("rollout", "status", "deployment/web", "-n", ns, "--timeout=120s").stdout
        assert 'deployment "web" successfully rolled out' in done
        eventually(lambda: "v2" in load.answers[-1], "answers of the new version")
    assert len(load.answers) > 20
    assert [a for a in load.answers if not re.fullmatch(answered, a)] == []
    sets = {
        rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: rs
        for rs in shared.get("rs", "-n", ns)["items"]
    }
    assert set(sets) == {"1", "2", "3"}
    assert [sets[r]["spec"]["replicas"] for r in "123"] == [0, 0, 3]
    history = shared.kubectl("rollout", "history", "deployment/web", "-n", ns).stdout
    assert re.findall(r"^(\d) +<none>$", history, re.M) == ["1", "2", "3"]
    shown = shared.kubectl("rollout", "history", "deployment/web", "--revision=3", "-n", ns).stdout
    assert WEB2_IMAGE in shown
    shared.kubectl("rollout", "undo", "deployment/web", "-n", ns)
    shared.kubectl("rollout", "status", "deployment/web", "-n", ns, "--timeout=120s")
    image = shared.get("deployment", "web", "-n", ns)["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == WEB_IMAGE
    eventually(lambda: "v1" in shared.http(address), "the old version answers again")
