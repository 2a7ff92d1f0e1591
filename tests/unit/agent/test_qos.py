"""QoS classes, requests of pods, CPU shares and scores of the OOM killer."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cgroups import qos
from kube.api import core_v1
from tests.unit.agent.pods import pod


# -- resources --------------------------------------------------------------------------------------------------------
def _sized(limits: dict[str, str] | None = None, requests: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": limits or {}, "requests": requests or {}}}


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        ([_sized()], "BestEffort"),
        ([_sized({"cpu": "1", "memory": "1Gi"})], "Guaranteed"),
        ([_sized({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})], "Guaranteed"),
        ([_sized({"cpu": "1"})], "Burstable"),
        ([_sized(None, {"cpu": "1m"})], "Burstable"),
        ([_sized({"cpu": "1", "memory": "1Gi"}), {"name": "b"}], "Burstable"),
        ([_sized({"ephemeral-storage": "1Gi"})], "BestEffort"),
    ],
)
def test_the_qos_class(containers: list[Any], found: str) -> None:
    assert qos.qos_class(pod(*containers)) == found


def test_a_pod_requests_the_most_that_it_needs_at_any_time() -> None:
    def sized(name: str, cpu: str, **more: Any) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}

    side = sized("side", "100m", restartPolicy="Always")
    assert qos.pod_request(pod(sized("a", "200m"), sized("b", "300m"), init=[side]), "cpu") == 600
    assert qos.pod_request(pod(sized("a", "200m"), init=[side, sized("i", "1")]), "cpu") == 1100
    assert (
        qos.pod_request(pod(sized("a", "200m"), init=[sized("i", "1"), side], overhead={"cpu": "50m"}), "cpu") == 1050
    )
    assert qos.pod_limit(pod(_sized({"memory": "1Gi"}), "b"), "memory") == 0


@pytest.mark.parametrize(("milli", "shares"), [(0, 2), (1, 2), (250, 256), (1000, 1024), (1_000_000, 262144)])
def test_cpu_requests_become_shares(milli: int, shares: int) -> None:
    assert qos.cpu_shares(milli) == shares


def test_out_of_memory_scores_rank_by_class_and_request() -> None:
    def score(given: core_v1.Pod) -> int:
        return qos.oom_score_adj(given, given.spec.containers[0], 1000 << 20)

    assert score(pod()) == 1000
    assert score(pod(_sized({"cpu": "1", "memory": "100Mi"}))) == -997
    assert score(pod(_sized(None, {"memory": "250Mi"}))) == 750
    assert score(pod(_sized(None, {"memory": "1Mi"}))) == 999
    assert score(pod(_sized(None, {"memory": "1000Mi"}))) == 3
    assert score(pod(priority=2000001000)) == -997
