"""A sandbox that has another address than the pod's status: that is reported before a container runs in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent.pods.steps.sandbox import _report_addresses
from kube.api import core_v1


@pytest.mark.parametrize(
    ("known", "ips", "host_network", "reported"),
    [
        ([], ["10.244.1.3"], False, 0),  # the end of the start reports the first address
        (["10.244.1.2"], ["10.244.1.2"], False, 0),
        (["10.244.1.2"], ["10.244.1.3"], False, 1),
        (["10.244.1.2"], ["10.244.1.2", "fd00::2"], False, 1),
        (["192.0.2.1"], [], True, 0),
    ],
)
def test_an_address_that_differs_is_reported(
    known: list[str], ips: list[str], host_network: bool, reported: int
) -> None:
    published: list[bool] = []
    status = core_v1.PodStatus(pod_ips=[core_v1.PodIP(ip=ip) for ip in known])
    pod = core_v1.Pod(spec=core_v1.PodSpec(host_network=host_network))
    context: Any = SimpleNamespace(
        reporter=SimpleNamespace(last_status=status, publish=lambda: published.append(True)),
        state=SimpleNamespace(pod=pod, runtime=SimpleNamespace(sandbox=SimpleNamespace(ips=ips))),
    )
    _report_addresses(context)
    assert len(published) == reported
