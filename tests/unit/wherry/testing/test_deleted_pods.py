"""The last deletion of a simulated pod, which its node sends when all containers have stopped."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from kube.api import core_v1
from kube.client import Client, Response
from kube.errors import StatusError, conflict, not_found
from tests.unit.wherry.testing.test_simulated_pod import References, SteppedClock
from wherry.testing.nodes.node import SimulatedNode
from wherry.testing.nodes.reporter import NodeReporter
from wherry.testing.nodes.running_pods import RunningPods
from wherry.testing.nodes.scripts import Scripts

KEY = "default/web"


class Transport:
    """A transport that answers deletions with errors, one after the other."""

    def __init__(self, *errors: StatusError) -> None:
        self.errors, self.deletions = list(errors), 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "DELETE":
            self.deletions += 1
            if self.errors:
                raise self.errors.pop(0)
        return Response(200, {}, b'{"metadata":{"name":"web"}}')


def stopped(transport: Transport) -> RunningPods:
    """Return the pods of a node with one that is being deleted and has no container."""
    client, clock = Client(cast(Any, transport)), SteppedClock()
    reporter = NodeReporter(SimulatedNode("node-1", 1, range="10.244.0.0/24"), client, clock)
    pods = RunningPods(client, lambda name: reporter, clock, Scripts(), References())
    metadata = {"name": "web", "namespace": "default", "uid": "u1", "deletionGracePeriodSeconds": 30}
    metadata["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "nginx"}]}
    pods._informer._set(KEY, msgspec.convert({"metadata": metadata, "spec": spec}, core_v1.Pod))
    return pods


async def test_a_deletion_that_was_lost_is_sent_again() -> None:
    transport = Transport(StatusError(503, "ServiceUnavailable", "connection reset"))
    pods = stopped(transport)
    with pytest.raises(StatusError):
        await pods._reconcile(KEY)
    assert pods.find("default", "web") is not None, "the pod is still the node's"
    await pods._reconcile(KEY)
    assert transport.deletions == 2 and pods.find("default", "web") is None


@pytest.mark.parametrize("error", [not_found("", "pods", "web"), conflict("", "pods", "web", "Precondition failed")])
async def test_a_pod_that_is_gone_or_another_one_is_forgotten(error: StatusError) -> None:
    transport = Transport(error)
    pods = stopped(transport)
    await pods._reconcile(KEY)
    assert transport.deletions == 1 and pods.find("default", "web") is None
